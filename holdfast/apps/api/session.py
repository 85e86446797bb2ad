"""API server, assembled from its configuration."""

import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing

from holdfast.api.call import AwsLocation
from holdfast.api.console import Console
from holdfast.api.console_live import Live
from holdfast.api.console_sessions import Sessions
from holdfast.api.identity import Keyring
from holdfast.api.protocol import Protocol
from holdfast.api.server import application
from holdfast.apps.api.adopted import clusters_of
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.api.connections import OpenConnections, api_server, listening
from holdfast.apps.api.console import ConsoleSource
from holdfast.apps.api.making import making_of
from holdfast.apps.cli.where import Where
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress

Report = Callable[[str], None]


def run_api(config: ApiConfig, where: Where, report: Report) -> None:
    """Serve until a termination signal.

    Raises:
        ConfigError: the address is in use, or the cluster cannot be found.

    """

    def failed(error: Exception) -> None:
        report(f"a bug: {''.join(traceback.format_exception(error))}")

    with ExitStack() as opened:
        connections = OpenConnections(config.connection_limits)
        listener = opened.enter_context(listening(config.listen, connections, report))
        shown = clusters_of(where, config.name, opened)
        clusters, maker = making_of(config, where, shown, opened, report)
        protocol = Protocol(
            Keyring(config.keys),
            AwsLocation(region=config.region, account=config.account),
            clusters,
            SystemClock(),
            maker,
        )
        source = opened.enter_context(closing(ConsoleSource(where, SystemClock())))
        live = Live(source, SystemClock(), failed)
        console = Console(source, Sessions(config.keys, SystemClock()), live)
        server = api_server(application(protocol, failed, console.routes()), connections)
        host, port = listener.getsockname()[:2]
        url = f"http://{ListenAddress(host, port)}"
        call = f"aws --endpoint-url {url} --region {config.region} sagemaker list-clusters"
        report(f"serving on {url}; try: {call}")
        report(f"console: {url}/")
        live.is_ending = lambda: server.should_exit
        server.run(sockets=[listener])
