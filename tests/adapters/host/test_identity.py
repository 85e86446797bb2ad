"""What a machine knows of itself, and the instance metadata service."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.identity import (
    RESOURCE_CONFIG,
    Identity,
    is_on_ec2,
    machine_identity,
)
from holdfast.adapters.host.instance_metadata import metadata_instance_id

CONFIG = Path(__file__).parents[2] / "recordings" / "hyperpod" / "resource_config.json"
ID = "i-0592464924bd45322"


def firmware(root: Path, **files: str) -> None:
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def hyperpod(root: Path, text: str | None = None) -> None:
    file = root / RESOURCE_CONFIG
    file.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        shutil.copy(CONFIG, file)
    else:
        file.write_text(text, encoding="utf-8")


def test_a_machine_of_hyperpod_knows_its_cluster_its_group_and_itself(tmp_path: Path) -> None:
    firmware(tmp_path, board_asset_tag=ID, sys_vendor="Amazon EC2")
    hyperpod(tmp_path)

    assert machine_identity(tmp_path) == Identity(
        instance_id=ID,
        instance_group="worker-group-1",
        cluster="ml-cluster",
        cluster_id="abcde01234yz",
        region="us-west-2",
    )


def test_a_machine_that_is_not_listed_knows_its_cluster_but_no_group(tmp_path: Path) -> None:
    firmware(tmp_path, board_asset_tag="i-0aaaaaaaaaaaaaaaa")
    hyperpod(tmp_path)

    known = machine_identity(tmp_path)

    assert (known.cluster, known.instance_id, known.instance_group) == (
        "ml-cluster",
        "i-0aaaaaaaaaaaaaaaa",
        "",
    )


def test_a_machine_without_such_files_knows_nothing(tmp_path: Path) -> None:
    assert machine_identity(tmp_path) == Identity()
    assert not is_on_ec2(tmp_path)


@pytest.mark.parametrize(
    "tag", ["", "Not Specified", "0000", "i-", "i-XYZ", f"{ID} "[:-1] + "0" * 9]
)
def test_an_asset_tag_of_another_maker_is_no_instance_id(tmp_path: Path, tag: str) -> None:
    firmware(tmp_path, board_asset_tag=tag)

    assert machine_identity(tmp_path).instance_id == ""


@pytest.mark.parametrize(
    ("vendor", "uuid", "is_there"),
    [("Amazon EC2", "", True), ("Xen", "ec2e1916-9099", True), ("Dell Inc.", "", False)],
)
def test_the_firmware_says_whether_it_is_ec2s(
    tmp_path: Path, vendor: str, uuid: str, is_there: bool
) -> None:
    firmware(tmp_path, sys_vendor=vendor)
    (tmp_path / "sys/hypervisor").mkdir()
    (tmp_path / "sys/hypervisor/uuid").write_text(uuid, encoding="utf-8")

    assert is_on_ec2(tmp_path) is is_there


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["ClusterConfig", "ClusterArn", "InstanceGroups", "Instances", "InstanceId", "Name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON.map(json.dumps) | st.text(max_size=40))
def test_no_content_of_the_file_is_more_than_unknown(tmp_path_factory, text: str) -> None:
    root = tmp_path_factory.mktemp("root")
    firmware(root, board_asset_tag=ID)
    hyperpod(root, text)

    assert machine_identity(root).instance_id == ID


class Metadata(BaseHTTPRequestHandler):
    """IMDSv2: nothing without a token."""

    answer = ID
    pause_s = 0.0

    def do_PUT(self) -> None:
        is_requested = self.path == "/latest/api/token" and (
            int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
        )
        self._say(200 if is_requested else 400, "the-token")

    def do_GET(self) -> None:
        time.sleep(self.pause_s)
        is_known = self.headers["X-aws-ec2-metadata-token"] == "the-token"
        is_requested = self.path == "/latest/meta-data/instance-id"
        self._say(200 if is_known and is_requested else 401, self.answer)

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Keep standard error clean."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_metadata_service_gives_the_instance_id_for_a_token(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metadata_instance_id(service) == ID
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service)
    assert metadata_instance_id() == ID


def test_the_metadata_service_is_not_asked_where_that_is_switched_off(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    assert metadata_instance_id(service) == ""


@pytest.mark.parametrize("answer", ["", "<html>", "i-1; rm -rf /"])
def test_an_answer_that_is_no_instance_id_is_none(
    service: str, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(Metadata, "answer", answer)

    assert metadata_instance_id(service) == ""


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://127.0.0.1:99999", "nonsense"])
def test_a_metadata_service_out_of_reach_gives_nothing(endpoint: str, monkeypatch) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)

    assert metadata_instance_id(endpoint) == ""
