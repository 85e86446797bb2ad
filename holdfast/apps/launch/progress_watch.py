"""Detects ranks that report no more progress: in ``$HOLDFAST_PROGRESS_FILE`` or in their logs."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.decisions.launch_events import Suspected
from holdfast.decisions.step_times import (
    WINDOW,
    StallLimits,
    StepTimes,
    after_step,
    stall_limit,
    start_limit,
)
from holdfast.kit.appended_lines import file_size, has_space
from holdfast.kit.units import format_duration
from holdfast.model.jobs import CHECKPOINTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.host.fallback_watch import FallbackWatch
    from holdfast.adapters.host.step_log import StepLog
    from holdfast.decisions.step_progress import SuspectedHang

_CHECKS_PER_TIMEOUT: Final = 10
_LONGEST_INTERVAL_S: Final = 1.0
"""Time between two checks: shorter pauses than this are of no interest for a hang."""

_LOG_BYTES: Final = 1 << 16
"""Maximum bytes of a file that a check reads, so that it takes a few milliseconds."""

_SUSPENDED_S: Final = 5.0
"""Delay of a check beyond which this process was stopped: what the ranks did is unknown then."""

_FIRST_LOOK_S: Final = 30.0
"""Time without steps from which their absence matters: most jobs report one by then."""

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Time of which the monotonic clock counts the seconds here: only differences are used."""

_STARTS_LIMIT: Final = 32
"""Number of starts that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangLimit:
    """When a rank without new steps hangs, and what follows."""

    timeout: timedelta | None = None
    """None: learned from the pauses between its steps."""

    floor: timedelta = StallLimits().floor
    """Minimum of a learned timeout."""

    start: timedelta = StallLimits().start
    """Time to the first step that is reported while nothing was learned of it; 0 for no limit."""

    silence: timedelta = StallLimits().silence
    """Time without activity of the ranks that is reported while no steps are known; 0 for no
    limit."""

    restarts: bool = False
    """Whether the ranks are restarted; otherwise the hang is only reported."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A rank without progress."""

    local_rank: int
    text: str
    restarts: bool = False
    """Whether the ranks are restarted if they hang; never without steps that show it."""

    stalled_s: float = 0.0
    """Seconds since its last step, or since the start of the round."""

    def suspicion(self, launcher: str, number: int, first_rank: int) -> Suspected:
        """Return the event for the coordinator.

        Args:
            launcher: name of the launcher.
            number: number of the round.
            first_rank: first rank of the node.

        """
        return Suspected(
            launcher=launcher,
            round=number,
            rank=first_rank + self.local_rank,
            text=self.text,
            restart=self.restarts,
            stalled_s=self.stalled_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSigns:
    """Where progress of a round shows that reports no steps."""

    processes: "Callable[[], Mapping[int, int | None]]" = dict
    """Returns the process that was started for each rank; None for one that has ended."""

    checkpoints: str = ""
    """Directory of the checkpoints; empty if unknown, or if another launcher looks there."""

    devices: str = ""
    """Value of CUDA_VISIBLE_DEVICES; empty for all GPUs."""


@dataclass(slots=True)
class _Report:
    path: str
    log: "StepLog | None"
    size: int
    changed_at: float
    files: tuple[str, ...]
    """All files in which its steps may be."""

    has_begun: bool = False
    suspected_at: float | None = None
    """None unless its current silence has been returned by ``stalled``."""


class ProgressWatch:
    """Progress of the ranks of one round.

    A rank appends a line to its file after each step, or logs the step as a known framework does.
    One that never does is not watched. A round in which no rank of this node has reported a step
    is suspected once if its start takes much longer than those before. While none is known, the
    set limit applies if all ranks of the job are here: others may be those that report.
    """

    def __init__(self, limit: HangLimit) -> None:
        self._limit = limit
        longest = limit.floor if limit.timeout is None else limit.timeout
        self._interval_s = min(_LONGEST_INTERVAL_S, longest.total_seconds() / _CHECKS_PER_TIMEOUT)
        self._reports: dict[int, _Report] = {}
        self._times: dict[int, StepTimes] = {}
        """Pauses between steps by local rank, also of earlier rounds."""

        self._check_at = self._began_at = 0.0
        self._starts: tuple[float, ...] = ()
        """Seconds from the starts of rounds to their first steps."""

        self._is_starting = self._is_start_suspected = self._is_whole = False
        self._signs = OtherSigns()
        self._fallback: FallbackWatch | None = None
        """None until a round has reported no steps for a while."""

        self._silence: SuspectedHang | None = None
        self._reported: SuspectedHang | None = None

    def begin(
        self,
        paths: Mapping[int, str],
        logs: Mapping[int, Sequence[Path]],
        *,
        is_whole: bool = False,
        signs: OtherSigns | None = None,
    ) -> None:
        """Watch a new round, whose ranks have not started.

        Args:
            paths: progress files by local rank.
            logs: logs by local rank.
            is_whole: whether these are all ranks of the job.
            signs: where progress shows without steps; None if nowhere.

        """
        self._signs = signs or OtherSigns()
        self._silence = self._reported = None
        if self._fallback is not None:
            self._fallback.begin(self._signs.checkpoints)
        now = self._began_at = time.monotonic()
        self._is_starting, self._is_start_suspected, self._is_whole = True, False, is_whole
        self._reports = {
            rank: _Report(
                path, _step_log(logs[rank]), file_size(path), now, (path, *map(str, logs[rank]))
            )
            for rank, path in paths.items()
        }
        self._check_at = now

    def forget(self, local_rank: int) -> None:
        """Stop watching a rank that has ended."""
        self._reports.pop(local_rank, None)

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``stalled``; None if none is watched."""
        return self._check_at if self._reports else None

    def stalled(self) -> Stall | None:
        """Return the rank that has been without progress for the longest time, beyond the limit.

        None if there is none, or if its silence was returned before. With ``restarts``, it is
        returned again after the limit has passed once more. Without space for steps, it is never a
        reason to restart.
        """
        now = time.monotonic()
        if now < self._check_at:
            return None
        delay_s = now - self._check_at
        self._check_at = now + self._interval_s
        self._read(now, delay_s)
        late = [
            (report.changed_at, rank)
            for rank, report in self._reports.items()
            if report.has_begun and now - report.changed_at >= self._limit_s(rank)
        ]
        if not late:
            return self._silent(now) or self._late_start(now)
        rank = min(late)[1]
        known = [
            at for _, one in late for at in [self._reports[one].suspected_at] if at is not None
        ]
        report, text = self._reports[rank], self._text(rank)
        full = next((one for one in report.files if not has_space(one)), "")
        restarts = self._limit.restarts and not full  # it may report steps that are not written
        if known and not (restarts and now - max(known) >= self._limit_s(rank)):
            return None
        report.suspected_at = now
        text += f"; no space is left for {full}" if full else ""
        return Stall(rank, text, restarts=restarts, stalled_s=now - report.changed_at)

    def _late_start(self, now: float) -> Stall | None:
        """Return the first rank of a round that has reported no step for too long, once."""
        if not self._is_starting or self._is_start_suspected or not self._reports:
            return None
        start = self._limit.start if self._is_whole else timedelta(0)
        limit = start_limit(self._starts, StallLimits(floor=self._limit.floor, start=start))
        if limit is None or now - self._began_at < limit.total_seconds():
            return None
        self._is_start_suspected = True
        rank = min(self._reports)
        self._reports[rank].suspected_at = now
        known = ", or the job reports no steps"
        if self._starts:
            longest = format_duration(timedelta(seconds=max(self._starts)))
            known = f"; the longest start before took {longest}"
        text = f"no step within {format_duration(limit)} of the start{known}"
        return Stall(rank, text, stalled_s=now - self._began_at)

    def _silent(self, now: float) -> Stall | None:
        """Return the first rank of a round without steps that seems to hang, once."""
        is_known = any(
            one.has_begun and math.isfinite(self._limit_s(rank))
            for rank, one in self._reports.items()
        )
        if is_known or not self._reports:
            self.end()
            return None
        quick_s = min(self._limit.silence / _CHECKS_PER_TIMEOUT, self._limit.floor).total_seconds()
        if self._fallback is None and now - self._began_at < min(_FIRST_LOOK_S, quick_s):
            return None
        fallback = self._fallback = self._fallback or self._begun()
        ranks = partial(_python_processes, self._signs) if self._is_whole else None
        found = fallback.look(_ZERO + timedelta(seconds=now), ranks)
        steps = [one.changed_at for one in self._reports.values() if one.has_begun]
        if found is not None and any(_ZERO + timedelta(seconds=at) > found.since for at in steps):
            found = None  # a step since is progress
        self._silence = found
        if found is None or found == self._reported:
            return None
        self._reported = found
        stalled_s = now - (found.since - _ZERO).total_seconds()
        return Stall(min(self._reports), found.evidence, stalled_s=stalled_s)

    def _begun(self) -> "FallbackWatch":
        from holdfast.adapters.host.fallback_watch import FallbackWatch  # noqa: PLC0415 - without steps only

        limits = StallLimits(floor=self._limit.floor, silence=self._limit.silence)
        watch = FallbackWatch(limits, self._signs.devices)
        watch.begin(self._signs.checkpoints)
        return watch

    @property
    def pids(self) -> list[int]:
        """Processes that look at the round now."""
        return [] if self._fallback is None else self._fallback.pids

    def end(self) -> None:
        """End what looks at the round."""
        self._silence = None
        if self._fallback is not None:
            self._fallback.end()

    def is_stalled(self, local_rank: int) -> bool:
        """Return whether a rank that ``stalled`` returned has no progress in what was read."""
        report = self._reports.get(local_rank)
        return report is not None and (report.suspected_at is not None or self._silence is not None)

    def read(self) -> None:
        """Read the steps that were reported since."""
        self._read(time.monotonic(), 0.0)

    def has_begun(self) -> bool:
        """Return whether a rank has reported a step in this round."""
        self.read()
        return not self._is_starting

    def _read(self, now: float, delay_s: float) -> None:
        if delay_s > _SUSPENDED_S:
            self._began_at += delay_s
        for rank, report in self._reports.items():
            if delay_s > _SUSPENDED_S:
                report.changed_at = min(now, report.changed_at + delay_s)
            size = file_size(report.path)
            logged = len(list(report.log.read())) if report.log is not None else 0
            if size == report.size and not logged:
                continue
            if report.has_begun:
                steps = max(1, logged or _lines(report.path, report.size))
                pause = timedelta(seconds=now - report.changed_at) / steps
                times = self._times.get(rank, StepTimes())
                for _ in range(min(steps, WINDOW)):
                    times = after_step(times, pause)
                self._times[rank] = times
            if self._is_starting:
                self._end_start(now)
            report.size, report.changed_at, report.has_begun = size, now, True
            report.suspected_at = None

    def _end_start(self, now: float) -> None:
        """Learn how long the start took; no rank hangs in it any more."""
        self._is_starting = False
        self._starts = (*self._starts, max(0.0, now - self._began_at))[-_STARTS_LIMIT:]
        for report in self._reports.values():
            report.suspected_at = None

    def _limit_s(self, rank: int) -> float:
        limit = self._limit.timeout
        if limit is None:
            limits = StallLimits(floor=self._limit.floor)
            limit = stall_limit(self._times.get(rank, StepTimes()), limits)
        return limit.total_seconds() if limit is not None else float("inf")

    def _text(self, rank: int) -> str:
        text = f"no progress for {format_duration(timedelta(seconds=self._limit_s(rank)))}"
        if self._limit.timeout is not None:
            return text
        return f"{text}; the longest pause between two steps was " + format_duration(
            self._times[rank].longest
        )


def other_signs(
    environment: Mapping[str, str],
    first_rank: int,
    processes: "Callable[[], Mapping[int, int | None]]",
) -> OtherSigns:
    """Return where progress of a node shows without steps.

    Args:
        environment: of the job.
        first_rank: first rank of the node. That with rank 0 looks at the checkpoints.
        processes: see ``OtherSigns``.

    """
    return OtherSigns(
        processes=processes,
        checkpoints=environment.get(CHECKPOINTS_VARIABLE, "") if first_rank == 0 else "",
        devices=environment.get("CUDA_VISIBLE_DEVICES", ""),
    )


def _python_processes(signs: OtherSigns) -> list[int]:
    """Return the processes that train: a rank may be started by a shell script."""
    from holdfast.adapters.host.rank_stacks import python_process  # noqa: PLC0415 - without steps only

    started = signs.processes().items()
    return [python_process(rank, pid) for rank, pid in started if pid is not None]


def _step_log(paths: Sequence[Path]) -> "StepLog | None":
    """Return the reader of a rank's logs; None if it has none."""
    if not paths:
        return None
    from holdfast.adapters.host.step_log import StepLog  # noqa: PLC0415 - with --log-dir only

    return StepLog(*paths, chunk=_LOG_BYTES)


def _lines(path: str, offset: int) -> int:
    """Return the number of lines that were appended to a file since it had ``offset`` bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(_LOG_BYTES).count(b"\n")
    except OSError:
        return 0
