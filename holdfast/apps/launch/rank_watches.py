"""Watches the ranks of a node: the steps and losses that they report, and samples of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from holdfast.apps.launch.loss_watch import LossWatch
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.progress_watch import ProgressWatch, other_signs
from holdfast.apps.launch.rank_sampling import RankSampling
from holdfast.decisions.launch_events import LossReported, Reported
from holdfast.decisions.launch_orders import Order
from holdfast.model.jobs import PROGRESS_VARIABLE


class RankWatches:
    """What watches the ranks of one round after the other.

    Args:
        launcher: name of the launcher.
        options: of the launcher.
        environment: of the launcher.
        report: gets what is found.

    """

    def __init__(
        self,
        launcher: str,
        options: LaunchOptions,
        environment: Mapping[str, str],
        report: Callable[[Reported], None],
    ) -> None:
        self._launcher, self._slots, self._environment = launcher, options.slots, environment
        self._report = report
        is_watched = PROGRESS_VARIABLE in environment and not options.hang_limit.restarts
        has_steps = not is_watched and not options.starts_ranks
        self._progress = ProgressWatch(options.hang_limit) if has_steps else None
        self._losses = LossWatch(options.losses) if options.losses is not None else None
        stragglers = options.stragglers
        self._sampling = RankSampling(launcher, stragglers) if stragglers is not None else None
        self._round = self._first_rank = 0
        self._is_over = True
        self._suspected: int | None = None
        self.has_progress = False
        """Whether a rank had reported a step when one ended."""

    @property
    def reads_steps(self) -> bool:
        """Return whether progress files are read."""
        return self._progress is not None or self._losses is not None

    def begin(
        self,
        order: Order,
        steps: Mapping[int, str],
        logs: Mapping[int, Sequence[Path]],
        processes: Callable[[], Mapping[int, int | None]],
    ) -> None:
        """Watch a new round, whose ranks have not started.

        Args:
            order: starts the round.
            steps: progress files by local rank.
            logs: logs by local rank.
            processes: returns the process that was started for each rank; None for one that has
                ended.

        """
        self._round, self._first_rank = order.round, order.first_rank
        self._is_over = self.has_progress = False
        self._suspected = None
        if self._losses is not None:
            self._losses.begin(steps, logs)
        if self._progress is not None:
            self._progress.begin(
                steps,
                logs,
                is_whole=order.world_size == self._slots,
                signs=other_signs(self._environment, order.first_rank, processes),
            )

    def begin_samples(
        self, order: Order, processes: Mapping[int, int | None], sections: Path
    ) -> None:
        """Take samples of ranks that have started: their processes, and their section times."""
        if self._sampling is not None and order.world_size > 1:
            pids = {rank: pid for rank, pid in processes.items() if pid is not None}
            self._sampling.begin(order.round, pids, sections)

    def examine(self, order: Order) -> None:
        """Examine the straggler that an order names; a repeated call has no effect."""
        if self._sampling is not None:
            self._sampling.examine(order.round, order.slow_rank)

    def forget(self, local_ranks: Collection[int]) -> None:
        """Stop watching the steps of ranks that have ended."""
        if local_ranks and self._progress is not None:
            self.has_progress = self._progress.has_begun()
            for local_rank in local_ranks:
                self._progress.forget(local_rank)

    def forget_suspect(self) -> None:
        """Take a suspected rank for one that hangs, whatever it reports later."""
        self._suspected = None

    def next_calls(self) -> list[float]:
        """Return the monotonic times at which ``look`` has something to do."""
        watches = (None if self._is_over else self._progress, self._sampling, self._losses)
        times = [one.next_call() for one in watches if one is not None]
        return [at for at in times if at is not None]

    def look(self) -> None:
        """Report what files and samples of the ranks show."""
        self.check_losses()
        if not self._is_over and self._progress is not None and (stall := self._progress.stalled()):
            self._suspected = stall.local_rank
            self._report(stall.suspicion(self._launcher, self._round, self._first_rank))
        for event in self._sampling.advance() if self._sampling is not None else ():
            self._report(event)

    def check_losses(self, *, is_last: bool = False) -> None:
        """Report a bad loss, before the failures that it causes."""
        if self._losses is None or self._is_over:
            return
        if (found := self._losses.found(is_last=is_last)) is None:
            return
        local_ranks, fault = found
        ranks, name = tuple(self._first_rank + rank for rank in local_ranks), self._launcher
        self._report(LossReported(launcher=name, round=self._round, ranks=ranks, fault=fault))

    def read_steps(self) -> None:
        """Read the steps that were reported since the last call of ``look``."""
        if self._progress is not None:
            self._progress.read()

    def is_stalled(self) -> bool:
        """Return whether the rank that was reported last has no progress in what was read."""
        own, progress = self._suspected, self._progress
        return own is None or progress is None or progress.is_stalled(own)

    def end(self) -> None:
        """Stop watching, and end what takes samples."""
        self._is_over = True
        for one in (self._progress, self._losses, self._sampling):
            if one is not None:
                one.end()

    @property
    def pids(self) -> list[int]:
        """Processes that look at the ranks now."""
        watches = (self._progress, self._sampling)
        return [pid for one in watches if one is not None for pid in one.pids]
