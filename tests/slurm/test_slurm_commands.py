"""What Slurm's commands may answer, by the words of the real ones."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError

TIME = timedelta(seconds=20)


@pytest.fixture
def answers(tmp_path: Path, monkeypatch):
    """Lets scontrol and squeue say something; the arguments they got are in ``argv``."""

    def answer(errors: str = "", output: str = "", status: int = 1) -> Path:
        for name in ("scontrol", "squeue"):
            program = tmp_path / name
            program.write_text(
                f'#!/bin/sh\necho "$SLURM_CONF" "$@" >> {tmp_path}/argv\n'
                f"printf '%s' '{output}'\nprintf '%s' '{errors}' >&2\nexit {status}\n",
                encoding="utf-8",
            )
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "argv"

    return answer


@pytest.mark.parametrize(
    "said", ["slurm_update error: Invalid user id", "Access/permission denied for job 1"]
)
def test_a_missing_privilege_is_reported_with_what_to_grant(answers, said: str) -> None:
    answers(said)
    slurm = Slurm(None, TIME)

    for act in (lambda: slurm.close_node("n1", "x"), lambda: slurm.requeue("1")):
        with pytest.raises(BackendError, match="is not permitted; run the controller as SlurmUser"):
            act()


def test_slurmctld_being_away_is_reported_as_it_is(answers) -> None:
    answers("slurm_load_node error: Unable to contact slurm controller (connect failure)")

    with pytest.raises(BackendError, match="Unable to contact slurm controller"):
        Slurm(None, TIME).nodes()


def test_a_machine_without_a_cluster_is_reported_with_what_to_do(answers) -> None:
    answers("squeue: fatal: Could not establish a configuration source")

    with pytest.raises(BackendError, match=r"^squeue .*: no slurm.conf was found: run this on a"):
        Slurm(None, TIME).jobs()


def test_a_machine_without_slurm_is_reported_with_what_to_do(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BackendError, match=r"^squeue is not installed: install Slurm's commands"):
        Slurm(None, TIME).jobs()


def test_a_configuration_that_does_not_exist_is_reported_at_once(answers, monkeypatch) -> None:
    answers(output="")
    monkeypatch.setenv("SLURM_CONF", "/no/slurm.conf")

    with pytest.raises(BackendError, match=r"^SLURM_CONF is '/no/slurm.conf', which cannot be"):
        Slurm(None, TIME).jobs()


def test_a_node_that_is_open_already_is_no_error(answers) -> None:
    answers("slurm_update error: Invalid node state specified")

    Slurm(None, TIME).open_node("n1")
    with pytest.raises(BackendError, match="Invalid node state"):
        Slurm(None, TIME).close_node("n1", "x")


@pytest.mark.parametrize(
    "said",
    [
        "Only batch jobs are accepted or processed for job 2",
        "Requested operation is presently disabled for job 1",
        "Invalid job id specified for job 77",
    ],
)
def test_a_job_that_cannot_be_requeued_is_no_error(answers, said: str) -> None:
    answers(said)

    assert not Slurm(None, TIME).requeue("1")
    answers(status=0)
    assert Slurm(None, TIME).requeue("1")


def test_what_is_asked_goes_to_the_cluster_of_the_configuration(answers, tmp_path: Path) -> None:
    argv = answers(status=0)
    (tmp_path / "slurm.conf").touch()

    Slurm(tmp_path / "slurm.conf", TIME).close_node("n1", "a b; c")

    reported = argv.read_text(encoding="utf-8").strip()
    assert reported == f"{tmp_path}/slurm.conf update nodename=n1 state=fail reason=a b; c"


def test_many_nodes_are_asked_for_in_parts(answers) -> None:
    argv = answers(status=0)

    assert Slurm(None, TIME).jobs_on(f"n{number}" for number in range(450)) == []

    assert len(argv.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("output", ["surprise", "1|RUNNING|n[1-"])
def test_another_answer_is_reported(answers, output: str) -> None:
    answers(output=output, status=0)

    with pytest.raises(BackendError, match="cannot be read"):
        Slurm(None, TIME).jobs_on(["n1"])
    with pytest.raises(BackendError, match="cannot be read"):
        Slurm(None, TIME).nodes()


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; wait"

    with pytest.raises(BackendError, match=r"did not end within 0\.5 s and was killed"):
        run(["sh", "-c", script], timeout=timedelta(seconds=0.5))

    child = Path(f"/proc/{pid.read_text().strip()}/status")
    deadline = time.monotonic() + 10
    while child.exists() and "(zombie)" not in child.read_text():
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.05)  # killed at once, but not ended at once on a busy machine


@pytest.mark.parametrize("name", ["/no/such/program", "nul\0"])
def test_a_program_that_cannot_be_run_is_reported(name: str) -> None:
    with pytest.raises(BackendError, match="cannot run"):
        run([name], timeout=TIME)


def test_an_outcome_has_all_that_was_reported() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=TIME)

    assert (done.status, done.output, done.errors) == (3, "out\n", "err\n")
