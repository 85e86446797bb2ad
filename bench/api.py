"""The API over 10,000 nodes: how long a page of ListClusterNodes takes, and the server's memory.

The server is a process of its own, with the nodes in its database; it has everything but the loop
that brings clusters about, which would want machines. One client lists all pages in turn, in every
order, over one connection, and signs each call.

    python -m bench api
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from bench.agent import resident_mib
from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.api.audit import AuditTrail
from holdfast.api.call import AwsLocation, ClusterCreation
from holdfast.api.created import CreatedClusters
from holdfast.api.identity import AccessKey, Keyring, Role
from holdfast.api.protocol import Protocol
from holdfast.api.server import application
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.api.connections import OpenConnections, api_server, listening
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.rotated_lines import RotatedLines
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupMachine,
    MachineGroup,
    MachineState,
    Member,
)
from holdfast.model.incidents import Incident
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus
from holdfast.ports.cluster_records import Change, RecordedRequest

NODES = 10_000
CALLS = 2_000
QUICK_CALLS = 400
CLUSTER = "train"
KEY = AccessKey(
    access_key_id="AKIABENCHBENCHBENCH2",
    secret_access_key="bench-bench-bench",  # noqa: S106 - of this bench only
    role=Role.ADMIN,
)
REGION = "us-east-1"
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def run(*, quick: bool = False) -> list[Figure]:
    """List all nodes again and again."""
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/api.db"
        _fill(url)
        with _served(url) as (port, pid):
            latencies = list(_latencies(port, QUICK_CALLS if quick else CALLS))
            resident = resident_mib(pid)
    return [
        Figure(
            name=f"ListClusterNodes over {NODES:,} nodes, p99",
            value=percentile(latencies, 0.99), unit="ms", goal=50,
        ),
        Figure(name="resident memory of the API", value=resident, unit="MiB", goal=150),
    ]  # fmt: skip


def _fill(url: str) -> None:
    group = MachineGroup(cluster=CLUSTER, name="workers", instance_type="ml.p5.48xlarge")
    cluster = DesiredCluster(
        name=CLUSTER,
        created_at=LONG_AGO,
        status=ClusterStatus.IN_SERVICE,
        since=LONG_AGO,
        groups=(DesiredGroup(made_of=group, target=NODES),),
    )
    requested = RecordedRequest(at=LONG_AGO, person="bench", operation="CreateCluster", request={})
    with closing(Database(url, SystemClock())) as database:
        records = DatabaseRecords(database)
        records.create(cluster, (), {}, requested)
        members = tuple(_member(number) for number in range(NODES))
        records.change(
            CLUSTER, lambda _: Change(cluster=cluster, members=members, answer={}), requested
        )


def _member(number: int) -> Member:
    at = LONG_AGO + timedelta(seconds=number // 7)
    machine = GroupMachine(
        id=f"i-{number:017x}",
        name=f"ip-10-0-{number // 256}-{number % 256}.ec2.internal",
        state=MachineState.RUNNING,
        launched_at=at,
    )
    return Member(
        logical_id=f"workers-{number}",
        group="workers",
        added_at=at,
        status_since=at,
        status=InstanceStatus.RUNNING,
        machine=machine,
    )


@contextmanager
def _served(url: str) -> Iterator[tuple[int, int]]:
    """The port and the process of a server."""
    argv = [sys.executable, "-m", "bench.api", url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def _latencies(port: int, count: int) -> Iterator[float]:
    """In milliseconds, one for each call."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        yield from islice(_pages(connection, port), count)


def _pages(connection: http.client.HTTPConnection, port: int) -> Iterator[float]:
    """How long each page took, of the whole list in every order, for ever."""
    while True:
        for by, order in product(("NAME", "CREATION_TIME"), ("Ascending", "Descending")):
            request = {"ClusterName": CLUSTER, "MaxResults": 100, "SortBy": by, "SortOrder": order}
            listed, token = 0, None
            while listed == 0 or token is not None:
                more = {"NextToken": token} if token is not None else {}
                took, answer = _called(connection, port, {**request, **more})
                listed += len(answer["ClusterNodeSummaries"])
                token = answer.get("NextToken")
                yield took
            assert listed == NODES


def _called(
    connection: http.client.HTTPConnection, port: int, request: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    body = json.dumps(request).encode()
    headers = {
        "X-Amz-Target": "SageMaker.ListClusterNodes",
        "Content-Type": "application/x-amz-json-1.1",
    }
    signed = AWSRequest("POST", f"http://127.0.0.1:{port}/", data=body, headers=headers)
    credentials = Credentials(KEY.access_key_id, KEY.secret_access_key)
    SigV4Auth(credentials, "sagemaker", REGION).add_auth(signed)
    began = time.perf_counter()
    connection.request("POST", "/", body, dict(signed.headers.items()))
    response = connection.getresponse()
    content = response.read()
    took = (time.perf_counter() - began) * 1000
    assert response.status == 200, content
    return took, json.loads(content)


class _NoController:
    """No controller manages the nodes."""

    def incidents(self, cluster: str) -> tuple[Incident, ...]:  # noqa: ARG002
        return ()

    def ask(self, *_: object) -> str:
        return "no controller manages it"


def serve(url: str) -> None:
    """Serve the clusters of a database until this process is ended."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Database(url, SystemClock())) as database,
    ):
        records = DatabaseRecords(database)
        made = CreatedClusters(records, _NoController())
        maker = ClusterCreation(
            records=records,
            rejections=lambda _: (),
            wake=lambda _: None,
            node_limit=NODES,
            has_alarms=False,
        )
        place = AwsLocation(region=REGION, account="000000000000")
        audit = AuditTrail(RotatedLines(Path(folder, "audit.jsonl")), SystemClock())
        protocol = Protocol(
            Keyring((KEY,)), place, lambda: nullcontext(made.all()), SystemClock(), audit, maker
        )
        app = application(protocol, lambda error: print(error, file=sys.stderr))
        connections = OpenConnections(ApiConfig(keys=(KEY,)).connection_limits)
        address = ListenAddress("127.0.0.1", 0)
        with listening(address, connections, print) as listener:
            print(listener.getsockname()[1], flush=True)
            api_server(app, connections).run(sockets=[listener])


if __name__ == "__main__":
    serve(sys.argv[1])
