"""What slurm.conf can name: only broken hardware fails, and the controller hears of it."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checked_node import CheckedNode

from holdfast.apps.checks.job import faults_found
from holdfast.apps.main import run
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from holdfast.model.health import Remedy
from holdfast.model.names import Reason
from holdfast.model.node_checks import PartResult
from tests.engines.host_tools import require_tool
from tests.engines.slurm_cluster import installed_slurm, running_munged
from tests.ports.builders import NOW

BROKEN = "dcgm/diag4-memory.json"
GOOD = "dcgm/diag4-pass.json"


class JobNode(CheckedNode):
    """The node as slurmd calls our commands on it."""

    def __init__(self, folder, capture) -> None:
        super().__init__(folder, capture)
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.lock = folder / "run/check.lock"
        boot = self.root / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("boot-1\n")
        (self.root / "etc").mkdir()
        (self.root / "etc/machine-id").write_text("machine-1\n")
        self.more = "[expected]\ngpus = 2\n"

    def calls(self, what: str, *options: str, report: bool = True) -> tuple[int, str]:
        """Exit code, and what was said."""
        argv = ["check", what, "--config", str(self.write_config()), *options]
        argv += ["--report-dir", str(self.shared)] if report else []
        argv += [] if what == "health" else ["--lock", str(self.lock)]
        code = run(argv)
        captured = self.capture()
        assert captured.out == ""
        return code, captured.err

    def diag(self, recording: str, *, status: int = 0) -> None:
        """DCGM that says this; the arguments are in the file ``argv``."""
        self.records("dcgmi", recording, status=status)
        tool = self.bin / "dcgmi"
        first, _, rest = tool.read_text().partition("\n")
        note = f"import sys; open({str(self.folder / 'argv')!r}, 'w').write(' '.join(sys.argv[1:]))"
        tool.write_text(f"{first}\n{note}\n{rest}")

    @property
    def argv_of_diag(self) -> str:
        path = self.folder / "argv"
        return path.read_text() if path.exists() else ""

    @property
    def verdict(self) -> dict | None:
        path = self.shared / "n1.check.json"
        return json.loads(path.read_text().splitlines()[0]) if path.exists() else None


@pytest.fixture
def munged(tmp_path: Path, monkeypatch) -> Iterator[None]:
    """A munged that signs what the commands report."""
    try:
        programs = installed_slurm()
    except BackendError as error:
        pytest.skip(str(error))
    with running_munged(programs) as socket:
        conf = tmp_path / "slurm.conf"
        conf.write_text(f"AuthInfo=socket={socket}\n")
        monkeypatch.setenv("SLURM_CONF", str(conf))
        yield


@pytest.fixture
def node(tmp_path: Path, capsys, monkeypatch) -> JobNode:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,1")
    return JobNode(tmp_path, capsys.readouterr)


def test_the_gpus_of_the_job_are_put_under_load_before_it(node) -> None:
    node.diag(GOOD)

    code, _ = node.calls("prolog")

    assert (code, node.argv_of_diag) == (0, "diag -r 2 -j -i 0,1")
    assert node.verdict is None


@pytest.mark.parametrize(("gpus", "argv"), [("job", ""), ("all", "diag -r 2 -j")])
def test_gpus_that_the_job_does_not_have_are_left_alone(node, monkeypatch, gpus, argv) -> None:
    monkeypatch.delenv("SLURM_JOB_GPUS")
    node.diag(GOOD)

    assert node.calls("prolog", "--gpus", gpus)[0] == 0
    assert node.argv_of_diag == argv


def test_what_is_broken_fails_and_is_reported_to_the_controller(node, munged) -> None:
    node.diag(BROKEN, status=226)

    code, said = node.calls("prolog")

    assert code == 1
    assert "n1: dcgm: failed: " in said
    assert node.verdict["machine"] == "machine-1"
    report = node.verdict["report"]
    assert (report["node"], report["boot_id"]) == ("n1.check", "boot-1")
    assert [fault["remedy"] for fault in report["faults"]] == ["replace"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("time.sleep(600)", "did not end within"),
        ("os.kill(os.getpid(), 9)", "terminated by signal 9"),
        ("print('{')", "dcgm: unknown"),
        (None, "dcgmi not found: install it"),
    ],
)
def test_a_tool_that_is_missing_hangs_or_dies_is_reported_and_passes(node, code, said) -> None:
    if code is not None:
        node.tool("dcgmi", code)

    status, reported = node.calls("prolog", "--timeout", "1s")

    assert status == 0
    assert said in reported
    assert node.verdict is None


def test_after_a_job_nothing_is_put_under_load(node, munged) -> None:
    node.diag(BROKEN, status=226)
    node.prints("nvidia-smi", "No devices were found\n", status=6)

    code, _ = node.calls("epilog")

    assert node.argv_of_diag == ""
    assert code == (node.verdict is not None)


@pytest.mark.parametrize("what", ["prolog", "epilog", "health"])
def test_trouble_of_our_own_is_reported_and_passes(node, what) -> None:
    node.more = "surprise = 1\n"

    code, said = node.calls(what)

    assert code == 0
    assert "passed without a result" in said
    assert "surprise" in said


def test_a_controller_that_cannot_be_reached_makes_no_node_good(node, munged) -> None:
    node.diag(BROKEN, status=226)
    node.shared.rmdir()

    code, said = node.calls("prolog")

    assert code == 1
    assert "n1: report: cannot report to the controller: " in said


def test_a_munged_that_is_away_makes_no_node_good(node, tmp_path, monkeypatch) -> None:
    require_tool("munge")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    node.diag(BROKEN, status=226)

    code, said = node.calls("prolog")

    assert (code, node.verdict) == (1, None)
    assert "cannot report to the controller: munge: " in said


def test_one_check_runs_on_a_node_at_a_time(node) -> None:
    node.diag(GOOD)
    node.lock.parent.mkdir()
    with node.lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, said = node.calls("prolog", "--timeout", "300ms")

    assert (code, node.argv_of_diag) == (0, "")
    assert "another check is still running" in said
    assert node.calls("prolog")[0] == 0
    assert node.argv_of_diag


def test_a_check_that_slurm_ends_takes_its_tool_with_it(node) -> None:
    started = node.folder / "started"
    node.tool("dcgmi", f"print(os.getpid(), file=open({str(started)!r}, 'w'))\ntime.sleep(99)")
    argv = ["check", "prolog", "--config", str(node.write_config()), "--lock", str(node.lock)]
    process = subprocess.Popen([sys.executable, "-m", "holdfast", *argv])
    deadline = time.monotonic() + 30
    while not started.exists() or not started.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=30) == 143
    assert not Path(f"/proc/{started.read_text().strip()}").exists()


def test_outside_of_slurm_the_message_says_who_calls_it(node, monkeypatch) -> None:
    monkeypatch.delenv("SLURMD_NODENAME")

    code, said = node.calls("prolog")

    assert code == 2
    assert "slurmd sets it when this command is its prolog" in said


def test_where_the_agent_lives_nothing_is_left_to_do(node) -> None:
    (node.folder / "heartbeat").write_text("boot-1 1\n")

    assert node.calls("health", "--agent-dir", str(node.folder)) == (0, "")


def test_without_an_agent_the_devices_are_counted(node, munged) -> None:
    heartbeat = node.folder / "heartbeat"
    heartbeat.write_text("boot-1 1\n")
    os.utime(heartbeat, (time.time() - 60, time.time() - 60))
    gpus = node.root / "proc/driver/nvidia/gpus"
    (gpus / "0").mkdir(parents=True)
    agent = ("--agent-dir", str(node.folder))

    code, said = node.calls("health", *agent)
    assert code == 1
    assert "no agent is running on this node; 1 of 2 GPUs are present" in said
    (fault,) = node.verdict["report"]["faults"]
    assert (fault["reason"], fault["remedy"]) == (Reason.GPU_COUNT, "reboot")

    (gpus / "1").mkdir()
    code, said = node.calls("health", *agent)
    assert (code, "no device is missing" in said) == (0, True)
    assert node.verdict["report"]["faults"] == []


def reasons(node: JobNode) -> list[str]:
    return [fault["reason"] for fault in node.verdict["report"]["faults"]]


def counts(node: JobNode, *gpus: int, agent: bool = False) -> int:
    """The exit code of the health check on a node with these GPUs; ``agent``: with one at work."""
    there = node.root / "proc/driver/nvidia/gpus"
    shutil.rmtree(there, ignore_errors=True)
    for gpu in gpus:
        (there / str(gpu)).mkdir(parents=True)
    heartbeat = node.folder / "run/heartbeat"
    heartbeat.parent.mkdir(exist_ok=True)
    heartbeat.write_text("boot-1 1\n")
    if not agent:
        os.utime(heartbeat, (time.time() - 60, time.time() - 60))
    return node.calls("health", "--agent-dir", str(heartbeat.parent))[0]


def test_missing_devices_that_are_back_are_withdrawn_beside_an_agent_too(node, munged) -> None:
    """As after a driver that was loaded late: the agent is started after the first check."""
    assert counts(node, 0) == 1
    assert counts(node, 0, agent=True) == 0
    assert reasons(node) == [Reason.GPU_COUNT]

    assert counts(node, 0, 1, agent=True) == 0

    assert reasons(node) == []


def test_a_fault_under_load_stays_whatever_passes_later_in_the_boot(node, munged) -> None:
    node.diag(BROKEN, status=226)
    assert node.calls("prolog")[0] == 1
    under_load = reasons(node)
    assert counts(node, 0) == 1
    assert reasons(node) == [*under_load, Reason.GPU_COUNT]

    assert counts(node, 0, 1) == 0
    node.diag(GOOD)
    assert node.calls("prolog")[0] == 0

    assert reasons(node) == under_load
    (node.root / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    assert counts(node, 1) == 1
    assert reasons(node) == [Reason.GPU_COUNT]


def test_a_verdict_that_no_agent_has_signed_is_not_signed_again(node, munged) -> None:
    assert counts(node, 0) == 1
    path = node.shared / "n1.check.json"
    forged = path.read_text().replace(Reason.GPU_COUNT, Reason.CHECK_FAILED)
    path.write_text(forged)

    assert counts(node, 0) == 1

    assert reasons(node) == [Reason.GPU_COUNT]


@pytest.mark.parametrize(("state", "is_drained"), [("IDLE", True), ("IDLE+DRAIN", False)])
def test_where_nobody_is_notified_the_node_is_drained_once(
    node, monkeypatch, state, is_drained
) -> None:
    calls = node.folder / "scontrol.calls"
    node.tool(
        "scontrol",
        f"open({str(calls)!r}, 'a').write(' '.join(argv) + chr(10))\n"
        f"print('NodeName=n1 State={state} Reason=fans [bob@2026-11-21T04:27:53]')",
    )
    monkeypatch.setenv("PATH", f"{node.bin}:{os.environ['PATH']}")

    node.calls("health", "--agent-dir", str(node.folder), report=False)

    wanted = f"reason=holdfast: {Reason.GPU_COUNT}: 0 of 2 GPUs are present"
    assert (f"update nodename=n1 state=drain {wanted}" in calls.read_text()) is is_drained


@pytest.mark.parametrize("outcome", Outcome)
def test_a_part_that_fails_without_a_finding_is_a_fault_of_the_node_all_the_same(outcome) -> None:
    part = PartResult(name="nccl", outcome=outcome, detail="12 GB/s")

    faults = faults_found([part, part], NOW)

    if outcome is not Outcome.FAILED:
        assert faults == ()
        return
    assert {fault.message for fault in faults} == {"nccl: 12 GB/s"}
    assert {(fault.reason, fault.remedy) for fault in faults} == {
        (Reason.CHECK_FAILED, Remedy.REPLACE)
    }


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_part_that_counts_a_device_has_to_pass_too_after_a_job(node, munged, is_whole) -> None:
    """What the driver shows may not respond to its tool."""
    node.more = "[expected]\ngpus = 8\n"
    assert counts(node, *range(7)) == 1
    (node.root / "proc/driver/nvidia/gpus/7").mkdir()
    if is_whole:
        node.records("nvidia-smi", "nvidia-smi/healthy.xml")
    else:
        node.prints("nvidia-smi", "", status=9)

    assert node.calls("epilog")[0] == 0

    assert reasons(node) == ([] if is_whole else [Reason.GPU_COUNT])


@pytest.mark.parametrize("program", ["prolog", "epilog", "health"])
def test_a_program_of_slurm_loads_nothing_of_other_checks(program: str) -> None:
    """Nodes run them before and after each job, or every minute."""
    show = (
        f"import sys; from holdfast.apps.main import run; run(['check', '{program}', '--help']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, check=True, encoding="utf-8"
    )

    assert f"holdfast check {program}" in done.stdout
    assert set(done.stderr.split()).isdisjoint(
        {
            *(
                f"holdfast.apps.cli.check.{other}"
                for other in ("node", "pair", "pairs", "slurm_prolog")
            ),
            "holdfast.apps.slurm.nodes",
            "holdfast.decisions.job_resume",
            "rich.console",
        }
    )
