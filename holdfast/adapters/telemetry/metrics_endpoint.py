"""``/metrics`` for Prometheus and ``/healthz`` for probes."""

import time
from datetime import timedelta

from holdfast.adapters.telemetry.exposition import CONTENT_TYPE
from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer
from holdfast.adapters.telemetry.metrics import AgentMetrics
from holdfast.model.report import NodeReport


class MetricsEndpoint:
    """A ``ReportObserver`` that serves ``AgentMetrics`` over HTTP."""

    def __init__(self, host: str, port: int, metrics: AgentMetrics, *, timeout: timedelta) -> None:
        """Serve on ``host`` and ``port``.

        Args:
            host: name or address to listen on.
            port: 0 is any free one.
            metrics: what to serve.
            timeout: the agent is unhealthy without a heartbeat for this long.

        Raises:
            ConfigError: the address cannot be used.

        """
        self._metrics = metrics
        self._timeout_s = timeout.total_seconds()
        self._heartbeat_at = time.monotonic()
        self._server = HttpServer(
            host, port, {"/metrics": self._metrics_page, "/healthz": self._health_page}
        )
        self.port = self._server.port
        """Port of the server."""

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """See ``ReportObserver.changed``."""

    def heartbeat_sent(self) -> None:
        """See ``ReportObserver.heartbeat_sent``."""
        self._heartbeat_at = time.monotonic()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def _metrics_page(self) -> HttpResponse:
        return HttpResponse(self._metrics.text(), content_type=CONTENT_TYPE)

    def _health_page(self) -> HttpResponse:
        silent_s = time.monotonic() - self._heartbeat_at
        if silent_s > self._timeout_s:
            return HttpResponse(f"no heartbeat for {silent_s:.1f} s\n", 503)
        return HttpResponse("ok\n")
