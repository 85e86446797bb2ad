"""Which rank is suspected, and how often."""

import re
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.apps.launch.progress_watch import HangLimit, ProgressWatch, Stall, other_signs
from holdfast.decisions.save_times import save_limit
from holdfast.model.jobs import CHECKPOINTS_VARIABLE
from tests.engines.bad_storage import fill, tmpfs

SOON = timedelta(milliseconds=50)
MANY_LIMITS_S = 0.5
DEADLINE_S = 60


class Ranks:
    """Two ranks that report steps in files."""

    def __init__(self, folder: Path, limit: HangLimit) -> None:
        self.paths = {rank: str(folder / f"steps.{rank}") for rank in (0, 1)}
        self.watch = ProgressWatch(limit)
        self.begin()

    def begin(self, *, is_whole: bool = True) -> None:
        self.watch.begin(self.paths, {0: (), 1: ()}, is_whole=is_whole)

    def step(self, rank: int) -> None:
        with open(self.paths[rank], "a", encoding="utf-8") as file:
            file.write("1\n")

    def stalls(self, count: int) -> list[Stall]:
        """Return the stalls of half a second, or the first ``count``."""
        found: list[Stall] = []
        end = time.monotonic() + MANY_LIMITS_S
        while time.monotonic() < end and len(found) < count:
            found += [one for one in [self.watch.stalled()] if one is not None]
            time.sleep(0.005)
        return found


def test_a_hang_that_is_only_reported_is_reported_once(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, HangLimit(timeout=SOON))
    ranks.step(1)

    assert [one.local_rank for one in ranks.stalls(9)] == [1]
    assert ranks.watch.is_stalled(1)
    ranks.step(1)
    ranks.watch.read()
    assert not ranks.watch.is_stalled(1)
    assert len(ranks.stalls(9)) == 1


def test_a_hang_that_restarts_the_ranks_is_reported_until_it_does(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, HangLimit(timeout=SOON, restarts=True))
    ranks.step(0)

    assert len(ranks.stalls(2)) == 2


def test_a_full_disk_is_no_reason_to_restart(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="64k") as disk:
        ranks = Ranks(disk, HangLimit(timeout=SOON, restarts=True))
        for rank in (0, 1):
            ranks.step(rank)
        fill(disk)

        [stall] = ranks.stalls(9)
        assert not stall.restarts
        assert stall.text.endswith(f"; no space is left for {ranks.paths[stall.local_rank]}")

        (disk / "rest").unlink()
        assert ranks.stalls(1)[0].restarts


@pytest.mark.parametrize("ended", [0, 1])
def test_a_rank_that_has_ended_hides_no_other(tmp_path: Path, ended: int) -> None:
    ranks = Ranks(tmp_path, HangLimit(timeout=SOON))
    for rank in (0, 1):
        ranks.step(rank)
    assert ranks.watch.stalled() is None
    ranks.watch.forget(ended)

    assert [one.local_rank for one in ranks.stalls(9)] == [1 - ended]
    assert not ranks.watch.is_stalled(ended)


def test_nothing_is_suspected_before_enough_steps_are_known(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, HangLimit(floor=SOON))
    for _ in range(3):
        ranks.step(0)
        ranks.watch.stalled()

    assert ranks.stalls(1) == []


@pytest.mark.parametrize(("steps", "is_learned"), [(20, False), (21, True)])
def test_steps_between_two_checks_count_one_by_one(
    tmp_path: Path, steps: int, is_learned: bool
) -> None:
    ranks = Ranks(tmp_path, HangLimit(floor=SOON))
    ranks.step(0)
    ranks.watch.read()
    time.sleep(0.02)
    for _ in range(steps - 1):
        ranks.step(0)
    ranks.watch.read()

    assert len(ranks.stalls(1)) == is_learned


def test_a_start_beyond_the_set_limit_is_reported_once_and_never_a_reason_to_restart(
    tmp_path: Path,
) -> None:
    ranks = Ranks(tmp_path, HangLimit(floor=SOON, start=SOON, restarts=True))

    (stall,) = ranks.stalls(9)
    assert (stall.local_rank, stall.restarts) == (0, False)
    assert stall.text == "no step within 50ms of the start, or the job reports no steps"
    assert ranks.watch.is_stalled(0)
    ranks.step(1)
    ranks.watch.read()
    assert not ranks.watch.is_stalled(0), "another rank of the round reports"


@pytest.mark.parametrize(
    ("start", "is_whole"), [(timedelta(0), True), (SOON, False), (timedelta(hours=1), True)]
)
def test_an_unknown_start_is_not_suspected_without_a_limit_or_on_a_part_of_the_job(
    tmp_path: Path, start: timedelta, is_whole: bool
) -> None:
    ranks = Ranks(tmp_path, HangLimit(floor=SOON, start=start))
    ranks.begin(is_whole=is_whole)

    assert ranks.stalls(1) == []


def test_a_start_much_longer_than_the_one_before_is_suspected_on_each_node(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, HangLimit(floor=SOON))
    ranks.step(1)
    ranks.watch.read()
    ranks.begin(is_whole=False)

    (stall,) = ranks.stalls(9)
    assert re.fullmatch(
        r"no step within \S+ of the start; the longest start before took \S+", stall.text
    )


ZIP = b"PK\x03\x04"
"""First bytes of a file of ``torch.save``."""


def test_a_job_that_only_saves_checkpoints_is_suspected_without_them_and_never_restarted(
    tmp_path: Path,
) -> None:
    """A launcher of another node, whose ranks are not all of the job, does not look there."""
    limit = HangLimit(floor=timedelta(milliseconds=100), start=timedelta(0), restarts=True)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    watches = {}
    for first_rank in (0, 2):
        ranks = Ranks(tmp_path, limit)
        signs = other_signs({CHECKPOINTS_VARIABLE: str(folder)}, first_rank, dict)
        ranks.watch.begin(ranks.paths, {0: (), 1: ()}, signs=signs)
        watches[first_rank] = ranks.watch
    found: dict[int, list[Stall]] = {0: [], 2: []}
    deadline = time.monotonic() + DEADLINE_S
    saves, next_at = 0, time.monotonic()
    while not found[0] and time.monotonic() < deadline:
        fallback = watches[0]._fallback
        is_known = fallback and save_limit(fallback.signals.saves, limit.floor)
        if not is_known and time.monotonic() > next_at:  # a busy machine sees few of them
            saves, next_at = saves + 1, time.monotonic() + 0.4
            (folder / f"step_{saves}.pt").write_bytes(ZIP + bytes(1000))
        for first_rank, watch in watches.items():
            found[first_rank] += [one for one in [watch.stalled()] if one is not None]
        time.sleep(0.01)
    for watch in watches.values():
        watch.end()

    (stall,) = found[0]
    assert re.fullmatch(
        r"no new checkpoint for \S+; the longest time between two was \S+", stall.text
    )
    assert (stall.local_rank, stall.restarts, found[2]) == (0, False, [])
    assert stall.stalled_s >= limit.floor.total_seconds()
    assert watches[0].pids == []
