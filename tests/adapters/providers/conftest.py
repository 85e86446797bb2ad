import urllib.request
from collections.abc import Iterator

import pytest
from aws_front import Cloud, Door, Front
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
}


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    WSGIRequestHandler.disable_nagle_algorithm = True  # 40 ms a call otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def cloud(moto: str) -> Iterator[Cloud]:
    """An AWS of each file's own: all servers of moto in a process share one, and any resets it."""
    request = urllib.request.Request(f"{moto}/moto-api/reset", method="POST")  # noqa: S310
    with urllib.request.urlopen(request):  # noqa: S310
        pass
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield Cloud(moto)


@pytest.fixture
def front(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    front = Front(moto)
    door = Door(front)
    yield front
    door.close()
