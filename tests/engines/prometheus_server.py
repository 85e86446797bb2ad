"""A throw-away Prometheus on loopback, with a given configuration."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.engines.ports import free_port
from tests.engines.waiting import TIMEOUT_S, until

_DIES_WITH_US = ("setpriv", "--pdeathsig", "SIGKILL")


class PrometheusServer:
    """A running Prometheus."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self._port, self._process, self._log = port, process, log

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Labels without the name of the metric, sorted, to the value now."""
        found = self._get("query", query=expression)["result"]
        return {
            tuple(
                sorted((name, text) for name, text in one["metric"].items() if name != "__name__")
            ): float(one["value"][1])
            for one in found
        }

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes."""
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def firing(self) -> dict[str, dict[str, str]]:
        """The alerts that fire, with their annotations."""
        alerts = self._get("alerts")["alerts"]
        return {
            one["labels"]["alertname"]: one["annotations"]
            for one in alerts
            if one["state"] == "firing"
        }

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        try:
            return self._response("/-/ready")[0] == HTTPStatus.OK
        except OSError:
            return False

    def _get(self, what: str, **parameters: str) -> Any:
        _, body = self._response(f"/api/v1/{what}?{urlencode(parameters)}")
        return json.loads(body)["data"]

    def _response(self, path: str) -> tuple[int, bytes]:
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()


@contextmanager
def prometheus_server(
    program: Path, config: dict[str, Any], folder: Path
) -> Iterator[PrometheusServer]:
    """Run Prometheus until the end of the block.

    Args:
        program: its executable.
        config: its configuration; paths of rule files are relative to the folder.
        folder: an existing directory for its files.

    """
    file, log, port = folder / "prometheus.yaml", folder / "prometheus.log", free_port()
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command: list[str | Path] = [
        *_DIES_WITH_US, program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        server = PrometheusServer(port, process, log)
        until(server.is_ready)
        yield server
    finally:
        process.kill()
        process.wait()
