"""The coordinator of a job: applies events and prints what changed."""

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.apps.launch.file_thread import FileThread
from holdfast.apps.launch.rank_sampling import StragglerOptions
from holdfast.decisions.launch_events import Event, Examined, Joined, LogsRead, Sampled
from holdfast.decisions.launch_losses import reporters
from holdfast.decisions.launch_orders import Order, order_for, orders_for
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import (
    JobRounds,
    Outcome,
    Phase,
    RankLosses,
    RoundSettings,
)
from holdfast.decisions.notice_lines import HANG, PRINTED, STRAGGLER, notice_line
from holdfast.decisions.restart_rungs import Rung
from holdfast.kit.units import format_duration

if TYPE_CHECKING:
    from holdfast.apps.launch.checkpoint_rollback import CheckpointRollback
    from holdfast.decisions.hang_evidence import HangEvidence
    from holdfast.decisions.launch_inspection import Inspection
    from holdfast.decisions.launch_log_rules import RoundLogs
    from holdfast.decisions.launch_stragglers import NamedStraggler, RoundSamples
    from holdfast.decisions.log_rules import JobLogRule

_ENDS = {
    Outcome.SUCCEEDED: "JobSucceeded",
    Outcome.INTERRUPTED: "JobStopped",
    Outcome.RESTART_JOB: "JobRestartRequested",
    Outcome.FAILED: "JobFailed",
}

_EVALUATION: Final = timedelta(seconds=0.5)
"""Time between two searches for missing log lines."""

_LAST_WRITE_S: Final = 5.0
"""Maximum time for evidence to be written when the job ends."""

_NOT_SAVED: Final = "evidence of the hang not saved"
_HANGS: Final = "its storage does not respond"
_SHOWN_NODES: Final = 16
"""Nodes that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceOptions:
    """How the evidence of hangs is kept."""

    job: str
    node: str
    """Launcher of this node, of whose ranks arguments and environments are kept, too."""

    file: Callable[[], Path]
    """Returns the file for the current round."""


class Coordinator:
    """State of a job in this process.

    Args:
        settings: settings of the job.
        evidence: how the evidence of hangs is kept; None keeps none.
        straggler_factor: least excess of a rank's own time that is reported.
        checkpoints: directory to which the job saves; empty if it is not known.
        log_rules: log rules of the job.

    """

    def __init__(
        self,
        settings: RoundSettings,
        evidence: EvidenceOptions | None = None,
        straggler_factor: float = StragglerOptions().factor,
        checkpoints: str = "",
        log_rules: "Sequence[JobLogRule]" = (),
    ) -> None:
        self.settings = settings
        self._evidence = evidence
        self._straggler_factor = straggler_factor
        self._checkpoints = checkpoints
        self._rollback: CheckpointRollback | None = None
        self._thread, self._stored = FileThread(), Path()
        self._samples: RoundSamples | None = None
        self._slow: NamedStraggler | None = None
        self._log_rules = tuple(log_rules)
        self._logs: RoundLogs | None = None
        """None without rules."""

        self._unwatched = ""
        self._started, self._clock = datetime.now(UTC), time.monotonic()
        self._evaluate_at = self._started
        if log_rules:
            from holdfast.decisions.launch_log_rules import no_logs  # noqa: PLC0415 - with rules only

            self._logs = no_logs(self._log_rules)
        self.job = JobRounds(since=self._started)

    def handle(self, event: Event | None) -> None:
        """Apply an event, or the time (None)."""
        if self._rollback is not None:  # before its timeout: this process may have been stopped
            self._verify_checkpoints()
        if isinstance(event, Sampled):
            self._search(event)
        elif isinstance(event, LogsRead):
            self._take_logs(event)
        elif isinstance(event, Examined):
            self._slow = self._slow and self._slow.after(event)
        else:
            self._apply(event)
        self._evaluate_logs()
        self._report_slow()
        self._verify_checkpoints()

    def _apply(self, event: Event | None) -> None:
        before, self.job = self.job, advance(self.job, event, self._now(), self.settings)
        if self.job.history.total > before.history.total and not isinstance(event, Joined):
            self._date_loss()
        for line in progress_lines(before, self.job, self.settings):
            sys.stderr.write(f"{PRINTED}{line}\n")
        found = self.job.inspection
        if found is not None and found.seen and found != before.inspection:
            self._keep(found)

    def _date_loss(self) -> None:
        """Correct the time of a bad loss if the clock was set: checkpoints have that of the files.

        By whole seconds, so that a clock that was not set changes nothing.
        """
        history, set_by = self.job.history, datetime.now(UTC) - self._now()
        if history.loss is not None and (seconds := round(set_by.total_seconds())):
            loss = replace(history.loss, at=history.loss.at + timedelta(seconds=seconds))
            self.job = replace(self.job, history=replace(history, loss=loss))

    def _verify_checkpoints(self) -> None:
        """Verify the checkpoints before ranks restart for a bad loss."""
        job, running = self.job, self._rollback
        bad = job.history.loss
        is_awaited = bad is not None and job.awaits_checkpoints(self.settings)
        if running is not None and (not is_awaited or running.restarts != job.history.total):
            self._end_verification()
        elif running is not None and (result := running.result()) is not None:
            self._end_verification()
            self._apply(result)
        elif running is None and bad is not None and is_awaited:
            from holdfast.apps.launch.checkpoint_rollback import CheckpointRollback  # noqa: PLC0415 - after a bad loss only

            self._rollback = CheckpointRollback(self._checkpoints, bad, job.history.total)

    @property
    def pids(self) -> set[int]:
        """Process that verifies checkpoints now."""
        return set() if self._rollback is None else {self._rollback.pid}

    def awaits_launchers(self) -> bool:
        """Return whether the job has succeeded, and a lost launcher may still join again."""
        return self.job.phase is Phase.END and bool(self.job.lost)

    def close(self) -> None:
        """End a running verification, and wait until the evidence of a hang is stored."""
        self._end_verification()
        if not self._thread.wait(_LAST_WRITE_S):
            sys.stderr.write(f"{PRINTED}{_NOT_SAVED}: {self._stored}: {_HANGS}\n")

    def _end_verification(self) -> None:
        if self._rollback is not None:
            self._rollback.close()
            self._rollback = None

    def _keep(self, found: "Inspection") -> None:
        """Store the evidence of a hang."""
        from holdfast.adapters.host.rank_stacks import rank_evidence  # noqa: PLC0415 - after a hang only
        from holdfast.decisions.hang_evidence import HangEvidence  # noqa: PLC0415 - after a hang only

        options, verdict = self._evidence, found.conclusion
        if options is None or verdict is None:
            return
        evidence = HangEvidence(
            job=options.job,
            attempt=self.job.history.total,
            suspected_at=found.suspected_at,
            hung_since=found.stalled_since,
            evidence=found.suspicion.text,
            verdict=verdict,
            ranks=tuple(rank_evidence(one, options.node) for one in found.seen),
            kernel=found.kernel,
        )
        if self._thread.finish():
            self._stored = options.file()
            self._thread.run(partial(_store, self._stored, evidence))
        else:
            sys.stderr.write(f"{PRINTED}{_NOT_SAVED}: {options.file()}: {_HANGS}\n")

    def _search(self, event: Sampled) -> None:
        """Search the rank that the others wait for."""
        from holdfast.decisions.launch_stragglers import (  # noqa: PLC0415 - 40 s after the start
            RoundSamples,
            after_samples,
            newly_named,
        )

        if event.round != self.job.round or event.launcher not in self.job.active:
            return
        before = self._samples or RoundSamples()
        after = after_samples(before, event, self.job.active, self._straggler_factor)
        self._samples = after
        self._slow = newly_named(before, after, self._now()) or self._slow

    def _take_logs(self, event: LogsRead) -> None:
        """Take what the logs of a launcher show."""
        from holdfast.decisions.launch_log_rules import after_report, no_logs  # noqa: PLC0415 - with rules only

        if event.round == self.job.round and event.launcher in self.job.active:
            before = self._logs or no_logs(self._log_rules)
            self._logs = after_report(before, event, self._now())
            if any(one.hang_s is not None for one in event.rules):
                self._evaluate_at = self._now()

    def _evaluate_logs(self) -> None:
        """Search a hang in what the logs of all launchers show; a job may have thousands."""
        now = self._now()
        if self._logs is None or self.job.phase is not Phase.RUN or now < self._evaluate_at:
            return
        from holdfast.decisions.launch_log_rules import suspicion, unwatched  # noqa: PLC0415 - with rules only

        self._evaluate_at = now + _EVALUATION
        problem = unwatched(self._logs, self.job, now)
        if problem and problem != self._unwatched:
            sys.stderr.write(f"{PRINTED}JobUnwatched: {problem}\n")
            self._unwatched = problem
        if (found := suspicion(self._logs, self.job)) is not None:
            self._apply(found)

    def _report_slow(self) -> None:
        """Report a straggler once its GPU and CPU are examined."""
        slow = self._slow
        if slow is None or not slow.is_complete(self.job, self._now()):
            return
        self._slow = None
        sys.stderr.write(f"{PRINTED}{notice_line(STRAGGLER, slow.round, slow.found.text)}\n")
        self._apply(slow.event)

    def order_for(self, launcher: str) -> Order:
        """Return the order for a launcher."""
        order, slow = order_for(self.job, launcher), self._slow
        return order if slow is None else slow.order(launcher, order)

    def orders_for(self, launchers: Collection[str]) -> dict[str, Order]:
        """Return the order for each launcher."""
        orders, slow = orders_for(self.job, launchers), self._slow
        return orders if slow is None else {one: slow.order(one, orders[one]) for one in orders}

    @property
    def basis(self) -> tuple[object, ...]:
        """Objects that orders are made from: the same objects give the same orders."""
        return self.job, self._slow

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``handle`` without an event."""
        deadlines = [next_deadline(self.job, self.settings)]
        if self._slow is not None:
            deadlines.append(self._slow.until)
        if self._logs is not None and self.job.phase is Phase.RUN:
            deadlines.append(self._evaluate_at)
        deadline = min((one for one in deadlines if one is not None), default=None)
        if deadline is None:
            return None
        return time.monotonic() + (deadline - self._now()).total_seconds()

    def _now(self) -> datetime:
        return self._started + timedelta(seconds=time.monotonic() - self._clock)


def _store(file: Path, evidence: "HangEvidence") -> None:
    from holdfast.adapters.host.evidence_file import write_evidence  # noqa: PLC0415 - after a hang only

    try:
        write_evidence(file, evidence)
    except OSError as error:
        sys.stderr.write(f"{PRINTED}{_NOT_SAVED}: {file}: {error.strerror}\n")
        return
    sys.stderr.write(f"{PRINTED}EvidenceSaved: {file}\n")


def _last_failure(job: JobRounds) -> str:
    """Return the failure before the end of a job, unless the reason of the end has it."""
    has_failed = job.outcome in (Outcome.FAILED, Outcome.RESTART_JOB)
    if not has_failed or job.failure is None or job.failure.text in job.why:
        return ""
    return f"; last failure: {job.failure.text}"


def _new_losses(before: JobRounds, after: JobRounds) -> RankLosses | None:
    """Return a bad loss that is complete now, and was not before."""
    known, found = before.losses, after.losses
    if found is None:  # a next round has begun
        return known if known is not None and not known.is_complete else None
    return found if found.is_complete and found != known else None


def _awaited(job: JobRounds, settings: RoundSettings) -> str:
    """Return that lost launchers are awaited, and why."""
    lost, budget = len(job.active.keys() - job.members.keys()), settings.budget
    used = f"exchanges of nodes used: {job.history.exchanges} of {budget.exchanges}"
    then = f"waiting up to {format_duration(settings.join_timeout)} for them to join again"
    return f"LaunchersLost: round {job.round}: {lost} of {len(job.active)}; {used}; {then}"


def progress_lines(before: JobRounds, after: JobRounds, settings: RoundSettings) -> list[str]:
    """Return what changed between two states, for people."""
    lines = []
    failure, known, number = after.failure, before.failure, after.round
    if after.round > before.round:  # one event may end a round and begin the next one
        failure, number = after.ended_by, before.round
    if failure is not None and (
        known is None or (known.rank, known.loss) != (failure.rank, failure.loss)
    ):
        who = f"rank {failure.rank}" if failure.rank >= 0 else "node"
        if not failure.launcher:
            where = who if failure.rank >= 0 else "all ranks"
        else:
            where = f"{who} on {failure.launcher}"
        lines.append(f"RankFailed: round {number}: {where}: {failure.text}")
    hang = after.inspection.verdict if after.inspection is not None else None
    if hang and after.inspection != before.inspection and failure is None:
        why = "--hang-timeout is not set, or no step was reported yet"
        lines.append(notice_line(HANG, after.round, f"{hang}; the ranks continue: {why}"))
    if (losses := _new_losses(before, after)) is not None:
        who = reporters(losses, before.active)
        then = "the ranks continue: see --loss-action"
        lines.append(f"LossFault: round {before.round}: {who}: {losses.fault.evidence}; {then}")
    if after.awaits_lost and not before.awaits_lost:
        lines.append(_awaited(after, settings))
    if after.history.total > before.history.total:
        rung, waited_s = after.history.last, after.waited_s
        limit, used = settings.budget.in_place, len(after.history.in_place)
        count = f" (restarts in place: {used}, limit {limit})" if rung is Rung.IN_PLACE else ""
        waited = f"; waited {waited_s:.1f} s for GPU memory" if waited_s else ""
        lines.append(f"RanksRestarted: {rung}{count}: {after.why}{waited}")
    if after.round > before.round and settings.nodes > 1:
        shown = list(after.active)[:_SHOWN_NODES]
        more = len(after.active) - len(shown)
        nodes = ", ".join(shown) + (f" and {more} more" if more else "")
        spares = len(after.members) - len(after.active)
        lines.append(f"RoundStarted: round {after.round} on {nodes}; hot spares: {spares}")
    if after.phase is Phase.END and before.phase is not Phase.END:
        outcome = after.outcome or Outcome.FAILED
        lines.append(f"{_ENDS[outcome]}: {after.why}{_last_failure(after)}")
    return lines
