"""How the job of a deep health check is asked for."""

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast.adapters.slurm.commands.checks import CheckCommands, CheckJob
from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import parse_reason
from holdfast.adapters.slurm.nodes.deep_checks import DeepChecks, RequestedCheck, requested_of
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.model.errors import BackendError
from holdfast.model.nodes import CheckResult, Pairing, Phase
from tests.ports.builders import NOW, a_record
from tests.ports.fakes import FakeClock, FakeEvents

TIME = timedelta(seconds=20)
NODE = (
    "NodeName=n1 Gres=gpu:h100:8(S:0-1),shard:h100:80,nic:4 State=IDLE Partitions=train,debug "
    "BootTime=2026-11-20T21:10:29"
)


@pytest.fixture
def answers(tmp_path: Path, monkeypatch):
    """Lets all commands say something; their arguments are in ``argv``, ``A`` with them."""

    def answer(output: str) -> Path:
        for name in ("scontrol", "squeue", "sbatch", "scancel"):
            program = tmp_path / name
            program.write_text(
                f'#!/bin/sh\necho {name} "$@" A=$A >> {tmp_path}/argv\ncat {tmp_path}/said\n',
                encoding="utf-8",
            )
            program.chmod(0o755)
        (tmp_path / "said").write_text(output, encoding="utf-8")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "argv"

    return answer


def submit(log: str = "/fsx/checks/n1.log", nodes: tuple[str, ...] = ("n1",)) -> None:
    CheckCommands(None, TIME).submit_check(
        "holdfast-check-1", nodes, ("--time=60", "run.sh", "x", "a b"),
        log=Path(log), variables={"A": "1"},
    )  # fmt: skip


def test_a_pair_shares_a_partition_whatever_the_reasons_of_its_nodes_hold(answers) -> None:
    one = f"{NODE} Reason=bad\nDIMM [bob@2026-11-21T01:38:11]"
    argv = answers(f"{one}\n{one.replace('n1', 'n2').replace('train,', '')}\n")

    submit(nodes=("n1", "n2"))

    assert "--partition=debug" in argv.read_text(encoding="utf-8")


def test_a_check_has_all_of_its_node_and_only_that(answers) -> None:
    argv = answers(NODE)

    submit("/fsx/50%/n1.log")

    requested = argv.read_text(encoding="utf-8").splitlines()[-1]
    assert requested == (
        "sbatch --parsable --job-name=holdfast-check-1 --reservation=holdfast-check-1"
        " --nodelist=n1 --nodes=1 --exclusive --mem=0 --no-requeue --chdir=/"
        " --output=/fsx/50%%/n1.log --gres=gpu:h100:8 --partition=train --time=60 run.sh x a b A=1"
    )


@pytest.mark.parametrize(
    ("gres", "option"),
    [
        ("gpu:8", "--gres=gpu:8 "),
        ("gpu:a100:4(IDX:0-3),gpu:h100:4", "--gres=gpu:a100:4,gpu:h100:4 "),
        ("(null)", ""),
        ("nic:2", ""),
    ],
)
def test_all_gpus_are_asked_for_and_nothing_else(answers, gres: str, option: str) -> None:
    argv = answers(f"NodeName=n1 Gres={gres} State=IDLE Partitions=p ")

    submit()

    requested = argv.read_text(encoding="utf-8")
    assert f"n1.log {option}--partition=p " in requested


def test_a_node_without_a_partition_cannot_be_checked(answers) -> None:
    answers("NodeName=n1 Gres=(null) State=IDLE ")

    with pytest.raises(BackendError, match="no partition has n1,"):
        submit()


def test_jobs_and_reservations_of_others_are_left_alone(answers) -> None:
    answers(
        "7|PENDING|N/A|holdfast-check-1|Resources\n"
        "8|RUNNING|2026-11-21T03:59:17|holdfast-check-2|None\n"
        "9|RUNNING|N/A|a|holdfast-check-3|None\n10|RUNNING|N/A|train|None\n"
    )
    slurm = CheckCommands(None, TIME)

    found = slurm.check_jobs()

    assert found == {
        "holdfast-check-1": CheckJob(id="7", state="PENDING", waits_for="Resources"),
        "holdfast-check-2": CheckJob(
            id="8",
            state="RUNNING",
            waits_for="None",
            began_at=datetime(2026, 11, 21, 3, 59, 17).astimezone(),
        ),
    }
    assert [job.is_waiting for job in found.values()] == [True, False]
    answers(
        "ReservationName=holdfast-check-1 Nodes=n1\nReservationName=HOT Users=holdfast-check-2\n"
    )
    assert slurm.check_reservations() == {"holdfast-check-1"}


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("reason", "is_ours"),
    [("holdfast: checking", True), ("cabling", False), ("Action:Replace", False)],
)
def test_a_node_that_somebody_else_has_closed_is_not_opened_for_its_check(
    answers, tmp_path: Path, reason: str, is_ours: bool, waits: bool
) -> None:
    wanted = RequestedCheck(nodes=("n1",), began_at=NOW)
    name = wanted.name
    argv = answers(f"7|PENDING|N/A|{name}|Resources\n" if waits else f"{NODE}\n")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())
    checks.refresh([wanted])

    checks.begin(wanted, [NodeFacts("n1", frozenset(("IDLE", "DRAIN")), parse_reason(reason))])

    requested = argv.read_text(encoding="utf-8")
    assert ("state=resume" in requested) is is_ours
    assert ("sbatch" in requested) is (is_ours and not waits)


def test_a_log_that_cannot_be_read_holds_up_no_other_node(answers, tmp_path: Path) -> None:
    answers("")
    record = a_record(Phase.CHECKING)
    both = [requested_of(node, record) for node in ("n1", "n2")]
    (tmp_path / "checks/n1.log").mkdir(parents=True)
    end = f"{both[1].name} ended with exit status 0\n"
    (tmp_path / "checks/n2.log").write_text(f"fine\n{end}", encoding="utf-8")
    events = FakeEvents()
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), events)

    for _ in range(2):
        checks.refresh(both)

    assert checks.result("n1", record) is None
    assert checks.result("n2", record) == CheckResult(passed=True, ended_at=NOW)
    (reported,) = events.reported
    assert reported.what == "the deep health check of n1"


@pytest.mark.parametrize(
    ("text", "has_begun"),
    [
        ("", True),  # cut short, as by the time limit of its job
        ("NAME ended with exit status 127\n", False),
        ("NAME ended with exit status 137\n", False),
    ],
)
def test_a_check_has_begun_unless_it_waits_or_could_not_be_run(
    answers, tmp_path: Path, text: str, *, has_begun: bool
) -> None:
    record = a_record(Phase.CHECKING)
    wanted = requested_of("n1", record)
    answers(f"7|PENDING|2026-11-21T03:59:17|{wanted.name}|Resources\n")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())
    checks.refresh([wanted])
    assert checks.pending("n1", record) == "its job waits (Resources)"
    assert checks.began_at("n1", record) is None

    answers(f"7|RUNNING|2026-11-21T03:59:17|{wanted.name}|None\n")
    checks.refresh([wanted])
    began_at = datetime(2026, 11, 21, 3, 59, 17).astimezone()
    assert (checks.pending("n1", record), checks.began_at("n1", record)) == ("", began_at)

    answers("")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/n1.log").write_text(text.replace("NAME", wanted.name), encoding="utf-8")
    checks.refresh([wanted])

    assert checks.pending("n1", record) == ("" if has_begun else "its job was not found")
    assert checks.began_at("n1", record) == (began_at if has_begun else None)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("NAME ended with exit status 0\n", True),
        ("NAME ended with exit status 1\n", False),
        ("failed: disk\nNAME ended with exit status 1\n", False),
        ("NAME ended with exit status 0", None),  # is just being written
        ("holdfast-check-other ended with exit status 0\n", None),
        ("NAME ended with exit status 137\n", None),
        ("NAME ended with exit status 2\n", None),
        ("NAME ended with exit status 0\nmore\n", None),
        ("", None),
    ],
)
def test_only_a_check_that_came_to_its_end_says_something(
    answers, tmp_path: Path, text: str, passed: bool | None
) -> None:
    answers("")
    record = a_record(Phase.CHECKING)
    wanted = requested_of("n1", record)
    (tmp_path / "checks").mkdir()
    said = text.replace("NAME", wanted.name)
    (tmp_path / "checks/n1.log").write_text(said, encoding="utf-8")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())

    checks.refresh([wanted])

    result = checks.result("n1", record)
    assert (None if result is None else result.passed) is passed
    if passed is False and "disk" in text:
        assert result.detail == "failed: disk"


# between two nodes


def a_pair(**changes):
    """The record of n1, which is tested with n2 now."""
    pairing = Pairing(since=NOW, partner="n2", began_at=NOW)
    return a_record(Phase.CHECKING, pairing=replace(pairing, **changes))


def closed(name: str, reason: str = "holdfast: checking") -> NodeFacts:
    return NodeFacts(name, frozenset(("IDLE", "FAIL")), parse_reason(reason))


def test_a_test_between_two_nodes_is_one_job_that_has_both(answers, tmp_path: Path) -> None:
    wanted = requested_of("n1", a_pair())
    argv = answers("NodeName=n1 Partitions=a,b State=IDLE\nNodeName=n2 Partitions=b,c State=IDLE\n")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())

    checks.begin(wanted, [closed("n1"), closed("n2")])

    requested = argv.read_text(encoding="utf-8")
    assert f"create reservation reservationname={wanted.name} nodes=n1,n2 " in requested
    assert " --nodelist=n1,n2 --nodes=2 --exclusive " in requested
    assert " --partition=b " in requested
    assert "srun --nodes=2 --ntasks-per-node=1 holdfast check pair --rank-from slurm" in requested
    assert requested.count("state=resume") == 2


def test_a_test_waits_while_somebody_else_has_closed_one_of_its_nodes(
    answers, tmp_path: Path
) -> None:
    argv = answers("")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())

    checks.begin(requested_of("n1", a_pair()), [closed("n1"), closed("n2", "cabling")])

    assert not argv.exists()


@pytest.mark.parametrize("waits", [True, False])
def test_a_test_that_does_not_begin_says_nothing_after_a_while(
    answers, tmp_path: Path, waits: bool
) -> None:
    record, clock = a_pair(), FakeClock()
    name = requested_of("n1", record).name
    answers(f"7|PENDING|N/A|{name}|Resources\n" if waits else "")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), clock, FakeEvents())
    checks.refresh([requested_of("n1", record)])

    clock.time = NOW + timedelta(minutes=5) - timedelta(microseconds=1)
    assert checks.pair_outcome("n1", record) is None
    clock.time = NOW + timedelta(minutes=5)
    assert checks.pair_outcome("n1", record).passed is None


def test_a_test_that_runs_is_not_taken_for_one_that_never_began(answers, tmp_path: Path) -> None:
    record = a_pair()
    answers(f"7|RUNNING|N/A|{requested_of('n1', record).name}|None\n")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(NOW + 9 * TIME), FakeEvents())
    checks.refresh([requested_of("n1", record)])

    clock = FakeClock(NOW + timedelta(hours=1))
    later = DeepChecks(SlurmSettings(report_dir=tmp_path), clock, FakeEvents())
    later.refresh([requested_of("n1", record)])

    assert checks.pair_outcome("n1", record) is None
    assert later.pair_outcome("n1", record) is None


@pytest.mark.parametrize(
    ("said", "written", "status", "passed"),
    [
        ("fine", '{"summary": "passed", "outcome": "passed"}', 0, True),
        ("slow", '{"summary": "failed: tcp: slow", "outcome": "failed"}', 1, False),
        ("gone", '{"summary": "nobody listens", "outcome": "unknown"}', 1, None),
        ("none", '{"summary": "nothing was checked", "outcome": "skipped"}', 0, None),
        ("a script of ours: too slow", "", 1, False),
        ("a script of ours", "", 0, True),
        ("srun: error: Unable to create step for job 7: Requested nodes are busy", "", 1, None),
        ("srun: error: n1: task 0: Exited with exit code 1", "", 1, False),
        ("killed", "", 137, None),
        ("a bug of ours", "", 70, None),
        ("no such command", "", 127, None),
    ],
)
def test_what_a_test_says_is_distinguished_from_what_says_nothing(
    answers, tmp_path: Path, said: str, written: str, status: int, passed: bool | None
) -> None:
    answers("")
    record = a_pair()
    wanted = requested_of("n1", record)
    folder = tmp_path / "checks"
    folder.mkdir()
    end = f"{said}\n{wanted.name} ended with exit status {status}\n"
    (folder / "n1.pair.log").write_text(end, encoding="utf-8")
    if written:
        (folder / "n1.pair.json").write_text(written, encoding="utf-8")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())

    checks.refresh([wanted])
    outcome = checks.pair_outcome("n1", record)

    assert (outcome.passed, outcome.partner) == (passed, "n2")
    assert bool(outcome.detail) is not bool(passed)
    assert checks.result("n1", record) is None


def test_what_the_test_before_has_left_is_not_taken_for_what_this_one_says(
    answers, tmp_path: Path
) -> None:
    answers(NODE)
    (tmp_path / "checks").mkdir()
    left = tmp_path / "checks/n1.pair.json"
    left.write_text('{"summary": "passed"}', encoding="utf-8")
    checks = DeepChecks(SlurmSettings(report_dir=tmp_path), FakeClock(), FakeEvents())

    checks.begin(requested_of("n1", a_pair()), [closed("n1"), closed("n2")])

    assert not left.exists()


def test_between_two_tests_nothing_is_waited_for() -> None:
    assert requested_of("n1", a_pair(partner="", began_at=None)) is None
    assert requested_of("n1", a_record()) is None
