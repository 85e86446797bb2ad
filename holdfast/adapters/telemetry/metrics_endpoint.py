"""``/metrics`` for Prometheus and ``/healthz`` for probes."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from holdfast.adapters.telemetry.exposition import CONTENT_TYPE
from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer
from holdfast.adapters.telemetry.metrics import AgentMetrics
from holdfast.model.report import NodeReport


class MetricsEndpoint:
    """A ``ReportObserver`` that serves ``AgentMetrics`` over HTTP."""

    def __init__(self, metrics: AgentMetrics, *, timeout: timedelta) -> None:
        """Serve nothing yet.

        Args:
            metrics: what to serve.
            timeout: the agent is unhealthy without a heartbeat for this long.

        """
        self._metrics = metrics
        self._timeout_s = timeout.total_seconds()
        self._heartbeat_at = time.monotonic()
        self._servers: list[HttpServer] = []

    def serve(self, host: str, port: int) -> int:
        """Serve metrics and the probe; see ``_serve``."""
        return self._serve(
            host, port, {"/metrics": self._metrics_page, "/healthz": self._health_page}
        )

    def serve_probes(self, host: str, port: int) -> int:
        """Serve the probe alone, from a thread of its own; see ``_serve``."""
        return self._serve(host, port, {"/healthz": self._health_page})

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """See ``ReportObserver.changed``."""

    def heartbeat_sent(self) -> None:
        """See ``ReportObserver.heartbeat_sent``."""
        self._heartbeat_at = time.monotonic()

    def close(self) -> None:
        """Stop serving."""
        for server in self._servers:
            server.close()

    def _serve(self, host: str, port: int, pages: Mapping[str, Callable[[], HttpResponse]]) -> int:
        """Serve pages on a name or address and a port, 0 for any free one; returns the port.

        Raises:
            ConfigError: the address cannot be used.

        """
        server = HttpServer(host, port, pages)
        self._servers.append(server)
        return server.port

    def _metrics_page(self) -> HttpResponse:
        return HttpResponse(self._metrics.text(), content_type=CONTENT_TYPE)

    def _health_page(self) -> HttpResponse:
        silent_s = time.monotonic() - self._heartbeat_at
        if silent_s > self._timeout_s:
            return HttpResponse(f"no heartbeat for {silent_s:.1f} s\n", 503)
        return HttpResponse("ok\n")
