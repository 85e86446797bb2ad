"""Bad losses of ranks, with the ranks that have them, from the files that they write."""

import time
from pathlib import Path

import pytest

from holdfast.apps.launch.loss_watch import LossWatch
from holdfast.decisions.loss_faults import LossLimits
from holdfast.model.names import Reason


class Ranks:
    """Progress files of four ranks, and what is watched of them."""

    def __init__(self, folder: Path, *, shared: tuple[int, ...] = ()) -> None:
        self.files = {
            rank: folder / ("shared" if rank in shared else f"rank-{rank}") for rank in range(4)
        }
        self.watch = LossWatch(LossLimits())
        self.watch.begin({rank: str(file) for rank, file in self.files.items()}, {})

    def report(self, step: int, loss: float, *ranks: int) -> None:
        for rank in ranks:
            with self.files[rank].open("a", encoding="utf-8") as file:
                file.write(f"{step} {loss}\n")

    def found(self, *, is_last: bool = False) -> tuple[tuple[int, ...], str, int] | None:
        while not is_last and time.monotonic() < (self.watch.next_call() or 0.0):
            time.sleep(0.02)
        found = self.watch.found(is_last=is_last)
        return None if found is None else (found[0], found[1].reason, found[1].step)


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


NAN, SPIKE = Reason.LOSS_NOT_FINITE, Reason.LOSS_SPIKED


def test_all_ranks_with_the_same_bad_loss_are_returned_together_and_once(ranks: Ranks) -> None:
    ranks.report(1, 2.0, 0, 1, 2, 3)
    assert ranks.found() is None
    ranks.report(2, float("nan"), 0, 1, 3)

    assert ranks.found() == ((0, 1, 3), NAN, 2)
    assert ranks.found() is None
    ranks.report(2, float("nan"), 2)
    assert ranks.found() == ((2,), NAN, 2)


def test_the_rank_of_the_earliest_step_comes_first(ranks: Ranks) -> None:
    ranks.report(3, float("nan"), 0, 1, 2)
    ranks.report(2, float("inf"), 3)

    assert ranks.found() == ((3,), NAN, 2)
    assert ranks.found() == ((0, 1, 2), NAN, 3)


def test_a_nan_after_a_spike_is_returned_too_and_not_the_other_way_round(ranks: Ranks) -> None:
    ranks.report(1, 1.0, 0)
    ranks.report(2, 9.0, 0)
    assert ranks.found() == ((0,), SPIKE, 2)
    ranks.report(3, float("nan"), 0)
    ranks.report(4, 9.0, 0)
    assert ranks.found() == ((0,), NAN, 3)
    assert ranks.found() is None


def test_at_the_end_only_a_loss_that_is_not_finite_counts(ranks: Ranks) -> None:
    ranks.report(1, 1.0, 0, 1)
    ranks.report(2, 9.0, 0)
    assert ranks.found(is_last=True) is None
    ranks.report(2, float("nan"), 1)
    assert ranks.found(is_last=True) == ((1,), NAN, 2)


def test_ranks_that_share_a_file_are_returned_together(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, shared=(0, 1, 2))
    ranks.report(1, float("nan"), 0)

    assert ranks.found() == ((0, 1, 2), NAN, 1)
