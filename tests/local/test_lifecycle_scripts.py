"""Lifecycle scripts of local machines: run once, before the agent, under HyperPod's names."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from holdfast.adapters.local.first_boot import prepare, provision_of
from holdfast.adapters.local.groups import LocalMachineGroups
from holdfast.adapters.local.layout import NodeDir
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    LifecycleScripts,
    MachineGroup,
    MachineState,
)
from holdfast.model.sagemaker import ClusterStatus

TIMEOUT_S = 30.0
RESOURCES = {"ClusterConfig": {"ClusterName": "lab"}, "InstanceGroups": []}


@pytest.fixture
def machine(tmp_path) -> NodeDir:
    machine = NodeDir(tmp_path / "node")
    machine.create()
    return machine


@pytest.fixture
def scripts(tmp_path) -> Path:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    return scripts


def written(scripts: Path, text: str, name: str = "on_create.sh") -> LifecycleScripts:
    (scripts / name).parent.mkdir(exist_ok=True)
    (scripts / name).write_text(text, encoding="utf-8")
    return LifecycleScripts(source=str(scripts), on_create=name)


@contextlib.contextmanager
def booting(machine: NodeDir, *, timeout_s: float = 30.0) -> Iterator[None]:
    """The machine's first process, whose agent leaves a file named ``agent``."""
    agent = ["touch", str(machine.path / "agent-ran")]
    argv = [sys.executable, "-m", "holdfast.adapters.local.first_boot", "--dir", str(machine.path),
            "--timeout", str(timeout_s), *agent]  # fmt: skip
    with subprocess.Popen(argv) as process:
        try:
            yield
        finally:
            process.kill()


def boot(machine: NodeDir, **options) -> tuple[MachineState, str]:
    """How the first boot ends."""
    with booting(machine, **options):
        deadline = time.monotonic() + TIMEOUT_S
        ran = machine.path / "agent-ran"
        while provision_of(machine).state is not MachineState.FAILED and not ran.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    found = provision_of(machine)
    assert ran.exists() == (found.state is MachineState.RUNNING)
    return found.state, found.message


def log(machine: NodeDir) -> str:
    path = machine.path / "var" / "log" / "provision" / "provisioning.log"
    return path.read_text(encoding="utf-8")


def test_a_script_finds_what_hyperpod_gives_it_and_the_agent_follows(machine, scripts) -> None:
    (scripts / "provisioning_parameters.json").write_text('{"version": "1.0.0"}')
    text = 'cat "$SAGEMAKER_RESOURCE_CONFIG_PATH" provisioning_parameters.json; echo over >&2\n'
    prepare(machine, written(scripts, text), RESOURCES)
    joining = provision_of(machine)
    assert (joining.state, str(scripts) in joining.message) == (MachineState.JOINING, True)

    assert boot(machine) == (MachineState.RUNNING, "")
    said = log(machine)
    lines = said.splitlines()
    assert lines[0] == "START"
    assert lines[1] == (
        f"[SageMaker] Lifecycle scripts were provided, with S3 uri: [{scripts}] and entrypoint "
        "script: [on_create.sh]"
    )
    assert lines[-1] == "[SageMaker] The lifecycle scripts succeeded"
    assert json.dumps(RESOURCES, indent=2) in said
    assert '"version": "1.0.0"' in said
    assert "over" in said


def test_a_script_runs_once_for_a_machine(machine, scripts) -> None:
    wanted = written(scripts, "echo once\n")
    for _ in range(2):
        prepare(machine, wanted, RESOURCES)
        (machine.path / "agent-ran").unlink(missing_ok=True)
        assert boot(machine)[0] is MachineState.RUNNING

    assert log(machine).splitlines().count("once") == 1


@pytest.mark.parametrize(
    ("text", "entry", "says"),
    [
        ("exit 3\n", "on_create.sh", "exited with code 3"),
        ("kill -9 $$\n", "on_create.sh", "exited with code -9"),
        ("exit 0\n", "other.sh", "file not found"),
    ],
)
def test_a_script_that_fails_keeps_the_agent_from_beginning(
    machine, scripts, text, entry, says
) -> None:
    wanted = LifecycleScripts(source=written(scripts, text).source, on_create=entry)
    prepare(machine, wanted, RESOURCES)

    state, message = boot(machine)

    assert state is MachineState.FAILED
    assert says in message
    assert "provisioning.log" in message
    assert log(machine).splitlines()[-1] == f"[SageMaker] The lifecycle scripts failed: {says}"


def test_a_script_that_takes_too_long_is_ended_with_all_it_began(machine, scripts) -> None:
    text = (
        f"(sleep 600; touch {scripts}/late) & echo $! > {scripts}/pid; trap '' TERM; wait; wait\n"
    )
    prepare(machine, written(scripts, text), RESOURCES)

    state, message = boot(machine, timeout_s=0.5)

    assert (state, "it took longer than 0.5 seconds" in message) == (MachineState.FAILED, True)
    left = Path("/proc") / (scripts / "pid").read_text().strip()
    deadline = time.monotonic() + TIMEOUT_S
    while left.exists() and "Z" not in (left / "stat").read_text().rpartition(")")[2].split()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sources_of_other_kinds_work_alike(machine, scripts) -> None:
    wanted = written(scripts, "print('from python')\n", "in/on_create.py")
    source = f"file://{wanted.source}"
    prepare(machine, LifecycleScripts(source=source, on_create="in/on_create.py"), RESOURCES)

    assert boot(machine)[0] is MachineState.RUNNING
    assert "from python" in log(machine).splitlines()


def test_a_source_that_is_not_there_is_reported(machine) -> None:
    prepare(machine, LifecycleScripts(source="/missing", on_create="x.sh"), RESOURCES)

    state, message = boot(machine)

    assert state is MachineState.FAILED
    assert "/missing cannot be fetched: No such file or directory; see " in message


def test_scripts_that_are_not_there_are_reported_before_a_machine_is_made(
    scripts, tmp_path
) -> None:
    there = written(scripts, "exit 0\n")
    requested = {
        "none": None,
        "right": there,
        "file": LifecycleScripts(source=f"file://{scripts}", on_create="on_create.sh"),
        "bucket": LifecycleScripts(source="s3://bucket/base", on_create="x.sh"),
        "web": LifecycleScripts(source="https://host.example/base", on_create="x.sh"),
        "gone": LifecycleScripts(source="/missing", on_create="x.sh"),
        "other": LifecycleScripts(source=str(scripts), on_create="x.sh"),
        "old": LifecycleScripts(source="/missing", on_create="x.sh"),
    }
    since = datetime(2026, 1, 1, tzinfo=UTC)
    cluster = DesiredCluster(
        name="lab",
        uid="0123456789ab",
        created_at=since,
        status=ClusterStatus.CREATING,
        since=since,
        groups=tuple(
            DesiredGroup(
                made_of=MachineGroup(cluster="lab", name=name, scripts=one),
                target=1,
                stage=GroupStage.MADE if name == "old" else GroupStage.NEW,
            )
            for name, one in requested.items()
        ),
    )

    reported = LocalMachineGroups(tmp_path, lambda _: None).rejections(cluster)

    assert reported == [
        "InstanceGroups: web: LifeCycleConfig: https://host.example/base cannot be fetched; "
        "expected s3://..., file://... or a directory",
        "InstanceGroups: gone: LifeCycleConfig: /missing is not a directory on the machine of the "
        "API server",
        f"InstanceGroups: other: LifeCycleConfig: x.sh not found in {scripts}",
    ]


def test_scripts_come_from_s3(machine, tmp_path, monkeypatch) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="sagemaker-scripts")
    for key, text in {
        "lcs/on_create.sh": "cat lib/words\n",
        "lcs/lib/words": "from s3\n",
        "lcs/../out": "out of the directory",
        "lcsx/other": "not below",
    }.items():
        client.put_object(Bucket="sagemaker-scripts", Key=key, Body=text.encode())
    client.close()
    wanted = LifecycleScripts(source="s3://sagemaker-scripts/lcs/", on_create="on_create.sh")
    prepare(machine, wanted, RESOURCES)

    assert boot(machine)[0] is MachineState.RUNNING
    assert "from s3" in log(machine).splitlines()
    assert not list(machine.path.rglob("out")) + list(machine.path.rglob("other"))

    empty = NodeDir(tmp_path / "empty")
    empty.create()
    wanted = LifecycleScripts(source="s3://sagemaker-scripts/none", on_create="on_create.sh")
    prepare(empty, wanted, RESOURCES)
    state, message = boot(empty)
    assert (state, "no files below" in message) == (MachineState.FAILED, True)
    server.stop()

    (empty.path / "provisioned.json").unlink()
    state, message = boot(empty)
    assert (state, "Could not connect" in message) == (MachineState.FAILED, True)
