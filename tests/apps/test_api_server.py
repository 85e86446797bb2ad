"""``holdfast api`` as a process of its own, called by boto3."""

import contextlib
import http.client
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError
from served_api import KEYS, Served, holdfast, private, rejected, serving, with_keys
from written_runs import machine, node

from holdfast.api.identity import token_digest
from holdfast.apps.exit_codes import ExitCode
from holdfast.model.requests import Verb


@pytest.fixture
def served(runs, tmp_path) -> Iterator[Served]:
    with serving(with_keys(tmp_path / "api.toml")) as served:
        yield served


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory) -> Iterator[Served]:
    """An API that no test ends or changes."""
    with serving(with_keys(tmp_path_factory.mktemp("unchanged") / "api.toml")) as served:
        yield served


def shown(sagemaker, run: str) -> bool:
    """Whether a run answers to its name."""
    try:
        return sagemaker.describe_cluster(ClusterName=run)["ClusterName"] == run
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFound":
            raise
        return False


def test_the_nodes_of_a_run_answer_to_its_name_and_the_run_is_not_listed(runs, served) -> None:
    store = runs.add("train", nodes=(1, 2, 3), ranks=(1, 2))
    sagemaker = served.client()

    cluster = sagemaker.describe_cluster(ClusterName="train")
    nodes = sagemaker.list_cluster_nodes(ClusterName=cluster["ClusterArn"])["ClusterNodeSummaries"]
    requested = sagemaker.batch_reboot_cluster_nodes(ClusterName="train", NodeIds=[machine(1)])

    assert sagemaker.list_clusters()["ClusterSummaries"] == []
    assert {one["InstanceId"] for one in nodes} == {machine(n) for n in (1, 2, 3)}
    assert {one["InstanceStatus"]["Status"] for one in nodes} == {"Running"}
    assert requested["Successful"] == [machine(1)]
    request = store.requests()[node(1)]
    assert (request.verb, request.requested_by) == (Verb.REBOOT, "operate")


def test_a_run_that_begins_later_is_there_and_one_that_ended_is_not(runs, served) -> None:
    sagemaker = served.client()
    assert not shown(sagemaker, "late")
    runs.add("late")
    assert shown(sagemaker, "late")
    runs.end()

    assert not shown(sagemaker, "late")


def test_a_new_key_is_taken_as_it_is_printed(runs, tmp_path) -> None:
    runs.add("train")
    made = holdfast("api", "--new-key", "operate", "--name", 'Ada "the \U0001f600" \\ L')
    config = private(tmp_path / "api.toml", made.stdout)

    with serving(config) as served:
        assert shown(served.client(), "train")


def test_a_key_in_a_file_is_taken_and_no_secret_is_printed(runs, tmp_path) -> None:
    runs.add("train")
    config = tmp_path / "api.toml"
    made = [
        holdfast("api", "--new-key", role, "--name", role, "--out", str(config))
        for role in ("view", "admin")
    ]
    keys = tomllib.loads(config.read_text(encoding="utf-8"))["keys"]
    files = sorted(tmp_path.glob("api.toml*"))
    tokens = [
        (tmp_path / f"api.toml.{key['access_key_id']}.token").read_text(encoding="utf-8").strip()
        for key in keys
    ]

    assert [key["role"] for key in keys] == ["view", "admin"]
    assert len(files) == 3
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600}
    assert [token_digest(one) for one in tokens] == [key["token_sha256"] for key in keys]
    for text in (*tokens, *(key["secret_access_key"] for key in keys)):
        assert not any(text in one.stdout + one.stderr for one in made)
    with serving(config) as served:
        assert shown(served.client(1), "train")


@pytest.mark.attack
def test_a_key_goes_to_no_file_that_others_may_read(tmp_path) -> None:
    loose, link, target = (tmp_path / name for name in ("loose", "link", "target"))
    loose.touch(0o644)
    link.symlink_to(target)

    for path in (loose, link):
        ended = rejected("api", "--new-key", "view", "--out", str(path))
        assert ended.returncode == ExitCode.BAD_INPUT
        assert str(path) in ended.stderr
    assert not loose.read_text(encoding="utf-8")
    assert not target.exists()


def test_a_key_for_reading_reads(runs, served) -> None:
    runs.add("train")
    reader = served.client(1)

    assert shown(reader, "train")
    with pytest.raises(ClientError, match="AccessDeniedException"):
        reader.batch_replace_cluster_nodes(ClusterName="train", NodeIds=[machine(1)])


def test_two_hundred_clients_at_once_are_all_answered(runs, served) -> None:
    store = runs.add("train", nodes=tuple(range(1, 51)))
    sagemaker = served.client()

    def ask(number: int) -> list[str]:
        if number % 4:
            return [sagemaker.describe_cluster(ClusterName="train")["ClusterName"]]
        name = machine(1 + number // 4)
        answer = sagemaker.batch_replace_cluster_nodes(ClusterName="train", NodeIds=[name])
        return answer["Successful"]

    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(ask, range(200)))

    assert all(len(answer) == 1 for answer in answers)
    assert set(store.requests()) == {node(n) for n in range(1, 51)}


def test_what_was_accepted_outlives_the_server(runs, served) -> None:
    store = runs.add("train", nodes=(1, 2))
    served.client().batch_reboot_cluster_nodes(ClusterName="train", NodeIds=[machine(2)])
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()

    assert set(store.requests()) == {node(2)}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/", b"", 405),
        ("POST", "/other", b"{}", 404),
        ("POST", "/", b"{}", 400),
        ("POST", "/", b"x" * 1_000_001, 413),
        ("GET", "/healthz", b"", 200),
    ],
)
def test_what_is_no_call_is_answered_in_kind(unchanged, method, path, body, status) -> None:
    host, _, port = unchanged.url.removeprefix("http://").partition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=10)) as connection:
        connection.request(method, path, body)

        assert connection.getresponse().status == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(served, number) -> None:
    served.process.send_signal(number)

    assert served.process.wait(timeout=20) == ExitCode.OK


ENDED_AT_ONCE = """
import os, signal, sys
from pathlib import Path
from holdfast.apps.api.config import load_api_config
from holdfast.apps.api.session import run_api
from holdfast.apps.target import Where

def report(text):
    if text.startswith("serving on"):
        os.kill(os.getpid(), signal.SIGTERM)

run_api(load_api_config(Path(sys.argv[1])), Where(), report)
"""


def test_a_signal_as_soon_as_it_serves_ends_it(runs, tmp_path) -> None:
    config = private(tmp_path / "api.toml", f'listen = "127.0.0.1:0"\n{KEYS}')

    ended = subprocess.run([sys.executable, "-c", ENDED_AT_ONCE, config], timeout=60, check=False)

    assert ended.returncode == 0


def test_secrets_are_not_reported(served) -> None:
    secret = tomllib.loads(served.config.read_text(encoding="utf-8"))["keys"][0]
    served.client().list_clusters()
    served.process.send_signal(signal.SIGTERM)

    served.process.wait()

    assert secret["secret_access_key"] not in served.said()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "keys"),
        ("keys = []", "keys must contain at least one key"),
        ('[[keys]]\naccess_key_id = "short"\nsecret_access_key = "x"', "access_key_id"),
        ('region = "r"\n[[keys]]\naccess_key_id = "AKIAAAAAAAAAAAAAAAAA"', "secret_access_key"),
        (f"{KEYS}[ec2]\nimages = 1", "ec2.images: unknown key (did you mean ec2.image?)"),
        (f"{KEYS}[ec2]", "ec2: EC2 machines join a Kubernetes or Slurm cluster"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_reported(tmp_path, monkeypatch, text, said) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    config = private(tmp_path / "api.toml", text)

    ended = rejected("api", "--config", str(config), "--listen", "0")

    assert ended.returncode == ExitCode.BAD_INPUT
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_keys_nothing_is_served() -> None:
    ended = rejected("api")

    assert ended.returncode == ExitCode.BAD_INPUT
    assert "--new-key" in ended.stderr


@pytest.mark.attack
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o602, 0o610])
@pytest.mark.parametrize("command", [["api"], ["clusters", "list"]])
def test_keys_that_others_may_read_or_change_are_refused(tmp_path, mode, command) -> None:
    config = with_keys(tmp_path / "keys.toml")
    config.chmod(mode)

    ended = rejected(*command, "--config", str(config))

    assert ended.returncode == ExitCode.BAD_INPUT
    assert f"has mode {mode:04o}, expected 0600; run: chmod 600 {config}" in ended.stderr


def test_a_port_that_is_taken_is_reported(unchanged) -> None:
    ended = rejected("api", "--config", str(unchanged.config), "--listen", str(unchanged.port))

    assert ended.returncode == ExitCode.BAD_INPUT
    assert ended.stderr.splitlines()[-1] == (
        f"holdfast: listen: cannot listen on 127.0.0.1:{unchanged.port}: Address already in use"
    )
