"""Looks at the ranks of jobs that seem to hang, or whose collectives have timed out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.flight_dumps import dumped_ranks
from holdfast.adapters.host.hang_inspection import HangInspector, Inspected, Suspicion
from holdfast.adapters.host.rank_findings import inspect_ranks
from holdfast.adapters.host.rank_stacks import NodeRanks, take_snapshots
from holdfast.decisions.failure_signatures import cause_of
from holdfast.decisions.flight_recorder import DumpFiles, RankFindings, after_timeouts
from holdfast.decisions.hangs import Hang
from holdfast.decisions.step_progress import UNKNOWN_STEPS, SuspectedHang
from holdfast.model.job_views import Abort, RankView
from holdfast.model.names import Cause, Reason

_RESTARTED: Final = "it is restarted only after --hang-timeout"


_SETTLE_S: Final = 1.0
"""Time for the other ranks that wait in the same collective to end, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRanks:
    """Ranks of one attempt of a job."""

    job: str
    attempt: int
    since: datetime
    """Start of the attempt."""

    nodes: Sequence[NodeRanks]
    files: DumpFiles
    environment: Mapping[str, str]
    evidence: Path
    """File for the evidence of a hang."""

    def look(self, limit: timedelta) -> RankFindings:
        """Return what the ranks do, within a time of at least 10 seconds."""
        return inspect_ranks(
            lambda: take_snapshots(self.nodes, limit),
            self.files,
            since=self.since.timestamp(),
            environment=self.environment,
            logs={one.node: one.kernel_logs for one in self.nodes},
        )

    def findings_after_timeout(self, limit: timedelta) -> RankFindings:
        """Return what the ranks do after the timeout of a collective has ended some of them."""
        time.sleep(_SETTLE_S)
        found = self.look(limit)
        return after_timeouts(found, [one.rank for one in found.snapshots if one.pid is None])

    def ranks_of(self, node_rank: int) -> range:
        """Return the ranks of a node."""
        slots = next(one.local_world_size for one in self.nodes if one.node_rank == node_rank)
        return range(node_rank * slots, (node_rank + 1) * slots)


class JobInspections:
    """Inspections of the jobs of a run or cluster.

    Args:
        now: current time.

    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._inspector = HangInspector(now)
        self._stalls: dict[str, tuple[datetime, str]] = {}

    def stalled(self, attempt: AttemptRanks, found: SuspectedHang | None) -> str:
        """Return why a job seems to hang by what was learned of its steps; empty if it does not."""
        if found is None:
            return ""
        reported = self._stalls.get(attempt.job)
        if reported is None or reported[0] != found.since:
            hang = Hang(
                reason=Reason.JOB_HUNG, since=found.since, at=found.since, evidence=found.evidence
            )
            inspected = self._with_state(attempt, hang, restarts=False)
            if inspected is None:
                return ""
            follows = _RESTARTED if found.step is not None else UNKNOWN_STEPS
            text = f"the job seems to hang: {inspected.evidence}; {follows}"
            self._stalls[attempt.job] = reported = (found.since, text)
        return reported[1]

    def inspected(self, attempt: AttemptRanks, hang: Hang) -> Hang | None:
        """Return a hang that restarts the job, with the state of its ranks.

        None while ranks are inspected.
        """
        return self._with_state(attempt, hang, restarts=True)

    def _with_state(self, attempt: AttemptRanks, hang: Hang, *, restarts: bool) -> Hang | None:
        found = self._look(attempt, hang.since, hang.evidence, attempt.look, restarts=restarts)
        if found is None:
            return None
        return replace(hang, evidence=f"{hang.evidence}; {found.text}") if found.text else hang

    def after_timeouts(
        self, attempt: AttemptRanks, ranks: tuple[RankView, ...]
    ) -> tuple[tuple[RankView, ...], Abort | None]:
        """Return node ranks of an attempt that runs, and why collectives of it timed out.

        While the other ranks are inspected, at most 10 s, those that a timeout has ended count as
        running: a restart would end the rank that they waited for.
        """
        failed = [one for one in ranks if one.exit_code not in (None, 0)]
        if not failed or not self._has_timed_out(attempt, failed):
            return ranks, None
        since = min([one.ended_at for one in failed if one.ended_at is not None] or [attempt.since])
        why, look = "a collective timed out", attempt.findings_after_timeout
        found = self._look(attempt, since, why, look, restarts=True)
        if found is None:
            hidden = [
                replace(one, exit_code=None, ended_at=None, reason="") if one in failed else one
                for one in ranks
            ]
            return tuple(hidden), None
        return ranks, Abort(text=found.text, node=found.node) if found.text else None

    def _has_timed_out(self, attempt: AttemptRanks, failed: Sequence[RankView]) -> bool:
        if any(cause_of(one.reason) is Cause.COLLECTIVE_TIMEOUT for one in failed):
            return True
        ranks = [rank for one in failed for rank in attempt.ranks_of(one.rank)]
        return bool(dumped_ranks(attempt.files, ranks, attempt.since.timestamp()))

    def _look(
        self,
        attempt: AttemptRanks,
        since: datetime,
        why: str,
        look: Callable[[timedelta], RankFindings],
        *,
        restarts: bool,
    ) -> Inspected | None:
        return self._inspector.inspect(
            Suspicion(
                job=attempt.job,
                attempt=attempt.attempt,
                since=since,
                evidence=why,
                look=look,
                file=attempt.evidence,
                restarts=restarts,
            )
        )
