import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.providers.kubernetes_api import NODES
from holdfast.adapters.providers.settings import ClusterApiSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.apps.controller.kubernetes_calls import Clusters
from holdfast.model.errors import ConfigError, ProviderError, RetryLater
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

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


def call(server: Server, timeout: timedelta = timedelta(milliseconds=300)) -> Api:
    return Api(server, user_agent="test", field_manager="test", timeout=timeout)


def replace(name: ProviderName, url: str, timeout: timedelta = timedelta(milliseconds=300)) -> None:
    """Order a replacement from the cluster there."""
    with closing(call(Server(url=url), timeout)) as own:
        provider = build_provider(ProviderConfig(replace=name), FakeClock(), Clusters(own, call))
        provider.replace(a_node(), "t/1")


def elsewhere(file: Path, context: str = "") -> Any:
    return Clusters(call(Server(url="http://127.0.0.1:1")), call)(file, context)


class Refusing(BaseHTTPRequestHandler):
    status = 500
    message = "not now"

    def do_GET(self) -> None:
        reported = {"kind": "Status", "code": self.status, "message": self.message}
        content = json.dumps(reported).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def refusing(status: int, message: str) -> Iterator[str]:
    handler = type("Handler", (Refusing,), {"status": status, "message": message})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [429, 500, 503, 599])
@pytest.mark.parametrize("name", NAMES)
def test_an_api_server_that_cannot_answer_now_is_asked_later(
    name: ProviderName, status: int
) -> None:
    why = "not now|did not respond within"  # where its last try was cut off by the time limit
    with refusing(status, "not now") as url, pytest.raises(RetryLater, match=why):
        replace(name, url)


@pytest.mark.parametrize("status", [400, 401, 403, 409, 410, 499])
@pytest.mark.parametrize("name", NAMES)
def test_what_an_api_server_refuses_is_reported_with_its_words(
    name: ProviderName, status: int
) -> None:
    permission = "not permitted to " if status in (401, 403) else "cannot "

    with (
        refusing(status, "because") as url,
        pytest.raises(ProviderError, match="because") as reported,
    ):
        replace(name, url, timeout=timedelta(seconds=30))

    assert not isinstance(reported.value, RetryLater)
    assert str(reported.value).startswith(permission)


@pytest.mark.parametrize("name", NAMES)
def test_while_the_api_server_is_away_orders_wait(name: ProviderName) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(RetryLater, match=f"cannot (get|list) .*cannot reach {url}"):
            replace(name, url)


def test_a_kubeconfig_that_goes_missing_refuses_orders_until_it_is_back(tmp_path: Path) -> None:
    cluster = elsewhere(kubeconfig(tmp_path, "http://127.0.0.1:1"))
    (tmp_path / "kubeconfig").unlink()

    with pytest.raises(ProviderError, match=f"cannot connect to the cluster: .*{tmp_path}"):
        cluster.find(NODES, "node-1")

    with refusing(403, "it is back") as url:
        kubeconfig(tmp_path, url)
        with pytest.raises(ProviderError, match="it is back"):
            cluster.find(NODES, "node-1")


def test_without_a_kubeconfig_orders_go_to_the_cluster_of_the_nodes() -> None:
    with refusing(403, "here") as url, closing(call(Server(url=url))) as own:
        cluster = Clusters(own, call)(None, "")
        with pytest.raises(ProviderError, match="here"):
            cluster.find(NODES, "node-1")


@pytest.mark.parametrize(
    "content", [None, "", "[]", "a: [", "clusters: 1\nusers: []\ncontexts: []", "contexts: [1]"]
)
def test_an_unfit_kubeconfig_is_reported_at_the_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)

    config = ProviderConfig(
        replace=ProviderName.CLUSTER_API, cluster_api=ClusterApiSettings(kubeconfig=file)
    )

    with pytest.raises(ConfigError, match="provider: cannot connect to the cluster"):
        build_provider(config, FakeClock(), Clusters(call(Server(url="http://127.0.0.1:1")), call))


def test_a_context_that_is_not_there_is_reported_at_the_start(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")

    with pytest.raises(ConfigError, match="nowhere"):
        elsewhere(file, "nowhere")


def test_an_address_that_is_none_is_reported_at_the_start(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://")

    expected = (
        r"provider: cannot connect to the cluster: API server: expected https://HOST\[:PORT\]"
    )
    with pytest.raises(ConfigError, match=f"{expected}, got 'http://'"):
        elsewhere(file)
