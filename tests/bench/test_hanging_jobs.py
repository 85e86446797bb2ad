"""Schedules of random hangs, and how their verdicts are rated."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.hang_peers import PEERS
from bench.hang_schedules import EXPECTED, FRAMEWORKS, Outcome, Results, Schedule
from bench.hang_verdicts import Pending, Watch
from bench.hanging_job import HangingJob

KINDS, NAMES = tuple(EXPECTED), tuple(FRAMEWORKS)
SCHEDULES = [Schedule.of(number, KINDS, NAMES) for number in range(200)]
HANG = replace(SCHEDULES[0], kind="asleep", rank=5)
RIGHT = Outcome(
    0, "ddp", "asleep", is_rank=True, is_kind=True, is_false=False,
    verdict_s=1.0, hung_s=9.0, healthy_s=3.0, text="rank 5",
)  # fmt: skip


def test_schedules_cover_all_kinds_frameworks_and_ranks_evenly() -> None:
    pairs = Counter((one.kind, one.framework) for one in SCHEDULES)
    ranks = Counter(one.rank for one in SCHEDULES)

    assert set(pairs.values()) == {10}
    assert set(ranks) == set(range(8))
    assert min(ranks.values()) >= 10
    assert 15 <= sum(one.pause_s > 0 for one in SCHEDULES) <= 45


def test_a_schedule_depends_on_its_number_only() -> None:
    assert [Schedule.of(number, KINDS, NAMES) for number in range(200)] == SCHEDULES


def test_another_seed_has_other_schedules_of_the_same_kinds() -> None:
    other = [Schedule.of(number, KINDS, NAMES, 1) for number in range(200)]

    assert [(one.kind, one.framework) for one in other] == [
        (one.kind, one.framework) for one in SCHEDULES
    ]
    assert sum((one.rank, one.step) != (two.rank, two.step)
               for one, two in zip(other, SCHEDULES, strict=True)) > 150  # fmt: skip


def test_results_are_kept_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "build" / "results.jsonl"
    results = Results(file)
    results.begin(4)
    results.add(RIGHT)
    Results(file).add(replace(RIGHT, number=3))
    results.add(replace(RIGHT, is_rank=False, number=3))
    results.add(replace(RIGHT, number=3))
    assert results.progress.startswith("3 of 4 done, 1 wrong, about 0 min left")

    assert Results(file).known() == {0: RIGHT, 3: replace(RIGHT, number=3)}
    assert Results(tmp_path / "none").known() == {}


@pytest.mark.parametrize("fault", [{"is_rank": False}, {"is_kind": False}, {"is_false": True}])
def test_a_verdict_is_right_only_in_all_respects(fault: dict[str, bool]) -> None:
    assert RIGHT.is_right
    assert not replace(RIGHT, **fault).is_right


def test_a_job_takes_the_hangs_of_one_framework_and_the_last_kind_at_last() -> None:
    pending = Pending(SCHEDULES[1:], kinds=len(KINDS))
    first, _ = pending.take()
    second, _ = pending.take()

    assert [one.number for one in first] == [1, 2, 3, 4]
    assert {one.framework for one in second} == {NAMES[1]}
    assert [one.kind for one in second] == list(KINDS)


def test_a_hang_that_never_comes_about_is_given_up_and_those_after_it_are_not() -> None:
    pending = Pending(SCHEDULES[:5], kinds=len(KINDS))
    batch, tries = pending.take()
    pending.put_back(batch, tries)
    again, tries = pending.take()
    assert (again, tries) == (batch, 2)
    pending.put_back(again, tries)
    rest, tries = pending.take()

    assert ([one.number for one in rest], tries) == ([1, 2, 3, 4], 1)
    pending.put_back(rest[3:], 1)
    assert pending.take() == (rest[3:], 2)
    assert pending.take() == ([], 0)


@pytest.fixture
def job(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (tmp_path / "logs" / "run" / "attempt_0").mkdir(parents=True)
    job = HangingJob(tmp_path, process, None)
    (tmp_path / "began").touch()
    yield job
    job.close()


def evidence(job: HangingJob, *ranks: int, kind: str = "absent", after_s: float = 0.0) -> None:
    """Store a verdict on a hang that is suspected some seconds from now on."""
    at = datetime.fromtimestamp(datetime.now(UTC).timestamp() + after_s, UTC)
    found = {"ranks": list(ranks), "kind": kind, "text": f"ranks {ranks}"}
    file = job.folder / "logs/run/attempt_0/evidence.json"
    file.write_text(json.dumps({"suspected_at": at.isoformat(), "verdict": found}))


def test_the_right_rank_and_cause_are_right(job: HangingJob) -> None:
    (job.folder / "hung-0").touch()
    evidence(job, 5)
    outcome = Watch(job).outcome(HANG, 0)

    assert outcome is not None
    assert outcome.is_right


def test_another_rank_or_cause_or_one_rank_more_is_wrong(job: HangingJob) -> None:
    watch = Watch(job)
    for place, (ranks, kind) in enumerate([((4,), "absent"), ((4, 5), "absent"), ((5,), "data")]):
        (job.folder / f"hung-{place}").touch()
        evidence(job, *ranks, kind=kind)
        outcome = watch.outcome(HANG, place)

        assert outcome is not None
        assert not outcome.is_right
        assert outcome.is_rank == (ranks == (5,))


def test_a_verdict_before_the_hang_is_false_and_spoils_the_right_one(job: HangingJob) -> None:
    evidence(job, 2, after_s=-60.0)
    seen = []

    class Hangs(HangingJob):
        """Hangs, and gets its verdict, once the false one was read."""

        def stop_rank_or_storage(self, one: Schedule, place: int) -> None:
            seen.append(place)
            if len(seen) == 2:
                (self.folder / "hung-0").touch()
                evidence(self, 5)

    outcome = Watch(Hangs(job.folder, job.process, None)).outcome(HANG, 0)

    assert outcome is not None
    assert (outcome.is_rank, outcome.is_kind, outcome.is_false) == (True, True, True)


def test_a_job_that_ends_before_it_hangs_has_no_outcome(job: HangingJob) -> None:
    job.process.kill()
    job.process.wait()

    assert Watch(job).outcome(HANG, 0) is None


def test_a_hang_without_a_verdict_is_wrong(job: HangingJob) -> None:
    (job.folder / "hung-0").touch()
    job.process.kill()
    job.process.wait()
    outcome = Watch(job).outcome(HANG, 0)

    assert outcome is not None
    assert not outcome.is_right
    assert outcome.text == "no verdict"


def test_reports_of_nvrx_name_a_rank() -> None:
    """A line of ft_launcher 0.4.1."""
    line = (
        "[2026-11-26 20:44:05,101] [WARNING] [RankMonServer24521@host:2] "
        "Did not get subsequent heartbeat. Waited 15.00 seconds."
    )
    found = re.search(PEERS[0].reports, line)

    assert found is not None
    assert found[1] == "2"
