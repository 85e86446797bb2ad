"""The server of ``holdfast api`` without anybody who brings clusters about.

python quiet_api.py URL CONFIG LARGEST    # of the database; of keys; bytes of the largest file
"""

import resource
import sys
from contextlib import closing, nullcontext
from pathlib import Path

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.api.audit import AuditTrail
from holdfast.api.aws_services import AwsServices
from holdfast.api.call import AwsLocation, ClusterCreation
from holdfast.api.created import CreatedClusters
from holdfast.api.identity import Keyring
from holdfast.api.protocol import Protocol
from holdfast.api.server import application
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.api.connections import OpenConnections, api_server, listening
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.config import load_config
from holdfast.kit.rotated_lines import RotatedLines


class NoController:
    def incidents(self, cluster):
        return ()

    def submit(self, *_):
        return "no controller manages it"


def serve(url: str, config: ApiConfig, log: Path) -> None:
    with closing(Database(url, SystemClock())) as database:
        records = DatabaseRecords(database)
        made = CreatedClusters(records, NoController())
        creation = ClusterCreation(
            records=records,
            rejections=lambda _: (),
            wake=lambda _: None,
            node_limit=10_000,
            has_alarms=False,
        )
        protocol = Protocol(
            Keyring(config.keys),
            AwsLocation(region=config.region, account=config.account),
            lambda: nullcontext(made.all()),
            SystemClock(),
            AuditTrail(RotatedLines(log), SystemClock()),
            creation,
        )
        app = application(
            AwsServices(
                sagemaker=protocol,
                sts=protocol,
                eks=protocol,
                operations=protocol.operations,
            ).routes(),
            lambda error: sys.stderr.write(f"a bug: {error!r}\n"),
        )
        connections = OpenConnections(config.connection_limits)
        address = ListenAddress("127.0.0.1", 0)
        with listening(address, connections, sys.stderr.write) as listener:
            sys.stdout.write(f"{listener.getsockname()[1]}\n")
            sys.stdout.flush()
            api_server(app, connections).run(sockets=[listener])


if __name__ == "__main__":
    largest = int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    serve(sys.argv[1], load_config(Path(sys.argv[2]), ApiConfig), Path(f"{sys.argv[2]}.audit"))
