import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.providers.settings import KubernetesAccess, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import ConfigError, ProviderError, RetryLater
from holdfast.testing.builders import a_node
from holdfast.testing.fakes import FakeClock

NAMES = [ProviderName.KARPENTER, ProviderName.CLUSTER_API]


def kubeconfig(path: Path, url: str) -> Path:
    file = path / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def build(name: ProviderName, file: Path) -> Any:
    config = ProviderConfig(replace=name)
    return build_provider(config, FakeClock(), KubernetesAccess(kubeconfig=file))


class Refusing(BaseHTTPRequestHandler):
    status = 500

    def do_GET(self) -> None:
        content = json.dumps({"kind": "Status", "code": self.status, "message": "not now"}).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[500, 503, 429])
def refusing(request: pytest.FixtureRequest) -> Iterator[str]:
    handler = type("Handler", (Refusing,), {"status": request.param})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", NAMES)
def test_an_api_server_that_cannot_answer_now_is_asked_later(
    refusing: str, tmp_path: Path, name: ProviderName
) -> None:
    with pytest.raises(RetryLater, match="not now"):
        build(name, kubeconfig(tmp_path, refusing)).replace(a_node(), "t/1")


@pytest.mark.parametrize("name", NAMES)
def test_while_the_api_server_is_away_orders_wait(tmp_path: Path, name: ProviderName) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        file = kubeconfig(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")

        with pytest.raises(RetryLater, match="the API server does not answer"):
            build(name, file).replace(a_node(), "t/1")


def test_a_kubeconfig_that_goes_missing_refuses_orders_until_it_is_back(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    provider = build(ProviderName.KARPENTER, file)
    file.unlink()

    with pytest.raises(ProviderError, match=f"no cluster to be reached: .*{file}"):
        provider.replace(a_node(), "t/1")


@pytest.mark.parametrize(
    "content", [None, "", "[]", "a: [", "clusters: 1\nusers: []\ncontexts: []", "contexts: [1]"]
)
def test_an_unfit_kubeconfig_is_told_at_the_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ConfigError, match="provider: no cluster to be reached"):
        build_provider(
            ProviderConfig(replace=ProviderName.KARPENTER),
            FakeClock(),
            KubernetesAccess(kubeconfig=file),
        )
