"""Inspection of the ranks of a hung job: also an error ends in a verdict."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.evidence_file import read_evidence
from holdfast.adapters.host.hang_inspection import HangInspector, Suspicion
from holdfast.adapters.host.rank_findings import inspect_ranks
from holdfast.adapters.host.rank_stacks import NodeRanks, take_snapshots
from holdfast.decisions.flight_recorder import PIPE_PREFIX, DumpFiles, RankFindings
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot
from holdfast.model.errors import BackendError
from tests.ports.fakes import FakeClock

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DEADLINE_S = 60


def suspicion(folder: Path, dumps: str = "dumps") -> Suspicion:
    return Suspicion(
        job="job",
        attempt=1,
        since=T0,
        evidence="no new step",
        look=lambda limit: inspect_ranks(
            lambda: take_snapshots([NodeRanks(node_rank=0, node="n", root=None)], limit),
            DumpFiles.in_folder(str(folder / dumps)),
        ),
        file=folder / "evidence.json",
        restarts=True,
    )


def inspected(inspector: HangInspector, suspected: Suspicion) -> str:
    end = time.monotonic() + DEADLINE_S
    while (text := inspector.inspect(suspected)) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    return text.text


def test_the_verdict_and_what_was_seen_are_kept(tmp_path: Path) -> None:
    text = inspected(HangInspector(FakeClock(T0).now), suspicion(tmp_path))

    assert text == "rank 0 on n has no process any more"
    kept = read_evidence(tmp_path / "evidence.json")
    assert (kept.job, kept.verdict.text, kept.ranks[0].snapshot.rank) == ("job", text, 0)


def test_an_error_of_an_inspection_is_its_verdict(tmp_path: Path) -> None:
    text = inspected(HangInspector(FakeClock(T0).now), suspicion(tmp_path, "\0"))

    assert text.startswith("the ranks could not be inspected: ")
    assert "embedded null" in text  # Python 3.13 says more


WAITS = (Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),)
READS = (Frame(function="read", file="/home/ada/train.py", line=7),)


def seen(*frames: tuple[Frame, ...]) -> RankFindings:
    """Ranks that wait or read; one without a stack was not read in time."""
    return RankFindings(
        snapshots=tuple(
            RankSnapshot(rank=rank, node="n", pid=10, state="S", frames=one, is_unread=not one)
            for rank, one in enumerate(frames)
        )
    )


@pytest.mark.parametrize(
    ("first", "limits"),
    [
        (seen(WAITS, ()), [10, 20]),
        (seen(WAITS, WAITS), [10]),
        (BackendError("srun: denied"), [10]),
    ],
)
def test_a_hang_that_is_only_reported_is_inspected_until_its_ranks_are_read(
    tmp_path: Path, first: RankFindings | BackendError, limits: list[int]
) -> None:
    """An error at once is no lack of time; a restart does not wait for another inspection."""
    given: list[float] = []

    def look(limit: timedelta) -> RankFindings:
        given.append(limit.total_seconds())
        if len(given) > 1:
            return seen(WAITS, READS)
        if isinstance(first, BackendError):
            raise first
        return first

    suspected = replace(suspicion(tmp_path), look=look, restarts=False)
    text = inspected(HangInspector(FakeClock(T0).now), suspected)

    assert given == limits
    assert text.startswith("rank 1 on n never entered all_reduce") == (len(limits) == 2)
    given.clear()
    inspected(HangInspector(FakeClock(T0).now), replace(suspected, restarts=True))
    assert given == [10]


def test_a_verdict_that_takes_longer_than_10_seconds_is_not_awaited(tmp_path: Path) -> None:
    clock = FakeClock(T0)
    inspector, suspected = HangInspector(clock.now), suspicion(tmp_path)
    (tmp_path / "dumps").mkdir()
    pipe = tmp_path / "dumps" / f"{PIPE_PREFIX}0.pipe"
    os.mkfifo(pipe)
    listening = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # a rank that never dumps

    assert inspector.inspect(suspected) is None
    clock.time = T0 + timedelta(seconds=10) - timedelta(microseconds=1)
    assert inspector.inspect(suspected) is None
    clock.time = T0 + timedelta(seconds=10)
    late = inspector.inspect(suspected)
    reported = inspector.inspect(replace(suspected, restarts=False))
    os.close(listening)

    assert late is not None
    assert late.text == "the ranks could not be inspected within 10 s"
    assert reported is None, "more time, as no restart waits for it"
