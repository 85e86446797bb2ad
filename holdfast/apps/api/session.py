"""API server, assembled from its configuration."""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Final

import uvicorn
from starlette.routing import Route
from starlette.types import ASGIApp

from holdfast.adapters.local.layout import default_home
from holdfast.api.audit import AuditTrail
from holdfast.api.console import Console
from holdfast.api.console_clusters import ClusterViews
from holdfast.api.console_live import Live
from holdfast.api.console_sessions import Sessions
from holdfast.api.server import application
from holdfast.apps.api.adopted import clusters_of
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.api.connections import OpenConnections, api_server, listening
from holdfast.apps.api.console import ConsoleSource
from holdfast.apps.api.creation import creation_of
from holdfast.apps.api.proxies import TrustedProxies
from holdfast.apps.api.services import services_of
from holdfast.apps.api.tls import TlsContext
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress
from holdfast.apps.target import Where
from holdfast.kit.rotated_lines import RotatedLines
from holdfast.kit.signals import handling
from holdfast.ports.session_records import SessionRecords

Report = Callable[[str], None]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def run_api(config: ApiConfig, where: Where, report: Report) -> None:
    """Serve until a termination signal.

    Raises:
        ConfigError: the address is in use, or the cluster cannot be found.

    """

    def failed(error: Exception) -> None:
        report(f"a bug: {''.join(traceback.format_exception(error))}")

    with ExitStack() as opened:
        tls = TlsContext(config.tls, report) if config.tls is not None else None
        connections = OpenConnections(config.connection_limits, config.behind_proxy)
        listener = opened.enter_context(listening(config.listen, connections, report, tls))
        shown = clusters_of(where, config.name, opened)
        clusters, creation, sessions = creation_of(config, where, shown, opened, report)
        audit = AuditTrail(
            RotatedLines(config.audit_log or default_home() / "audit.jsonl"), SystemClock()
        )
        services = services_of(config, where, clusters, audit, creation)
        source = opened.enter_context(closing(ConsoleSource(where, SystemClock())))
        live = Live(source, SystemClock(), failed)
        views = ClusterViews(services.operations)
        routes = _console_routes(config, (source, live, views), sessions, audit)
        app: ASGIApp = application(services.routes(), failed, routes)
        if config.behind_proxy:
            app = TrustedProxies(app, config.behind_proxy)
        server = api_server(app, connections, tls)
        host, port = listener.getsockname()[:2]
        url = replace(config, listen=ListenAddress(host, port)).url
        call = f"aws --endpoint-url {url} --region {config.region} sagemaker list-clusters"
        live.is_ending = lambda: server.should_exit
        with _ended_by_signals(server):
            report(f"serving on {url}; try: {call}")
            report(f"console: {url}/")
            server.run(sockets=[listener])


@contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """End the server by a signal that comes before uvicorn handles signals, too.

    Uvicorn raises those that it has handled again at its end.
    """

    def end(*_: object) -> None:
        server.should_exit = True

    with handling(_ENDING, end):
        yield


def _console_routes(
    config: ApiConfig,
    shown: tuple[ConsoleSource, Live, ClusterViews],
    records: SessionRecords,
    audit: AuditTrail,
) -> list[Route]:
    source, live, clusters = shown
    groups = config.oidc.groups if config.oidc is not None else None
    sessions = Sessions(config.keys, records, SystemClock(), groups)
    if config.oidc is None:
        return Console(source, sessions, live, audit, clusters).routes()
    oidc = import_module("holdfast.api.console_oidc")  # slow to import
    login = oidc.OidcLogin(config.oidc, sessions, audit)
    console = Console(source, sessions, live, audit, clusters, oidc.LOGIN)
    return [*login.routes(), *console.routes()]
