"""The restart ladder of a job that keeps its nodes, on every platform: pure.

From the cheapest restart to the most expensive: in place; on nodes that stand by; with nodes from
an exchange; the whole job, by its platform; none. Each rung has a budget. ``launch_rounds`` and
``step_restart`` state the cause and the means of a restart, and carry out the chosen rung.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

MAX_IN_PLACE: Final = 1000
"""Largest budget for restarts in place: their times are sent with every order to a launcher."""

_TOTAL: Final = 50

_OFFENDERS_LIMIT: Final = 16
"""Nodes whose failures are remembered: those that failed last."""


class Rung(StrEnum):
    """Kind of restart, from the cheapest to the most expensive."""

    IN_PLACE = "in-place"
    SPARE = "spare"
    """With nodes that stand by, instead of those that cannot be used."""

    EXCHANGE = "exchange"
    """With nodes that the job has yet to get. The other nodes stay."""

    WAIT = "wait"
    """Not yet: nodes of the job are coming back."""

    WHOLE_JOB = "whole-job"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBudget:
    """Maximum number of restarts by rung."""

    in_place: int = 3
    """Restarts in place within ``period``. HyperPod's ``numRestartBeforeFullJobRestart``; 3 in its
    samples."""

    period: timedelta = timedelta(hours=6)
    """HyperPod's ``evalPeriodSeconds``; 21600 in its samples."""

    exchanges: int = 10
    """Nodes that are replaced by others. HyperPod's ``jobMaxRetryCount`` is 10 in its samples."""

    job_restarts: int = 0
    """Restarts of the whole job that are left. HyperPod's ``maxFullJobRestarts``, less those that
    the platform has done."""

    total: int | None = None
    """All restarts while the job keeps its nodes, so that every job ends. None: 50, HyperPod's
    ``jobMaxRetryCount`` in the developer guide, or the sum of the budgets above if it is higher."""

    offender_failures: int = 3
    """Failures of one node with which it becomes a repeat offender: a node that stands by replaces
    it, and it is used again only if there is no other. 0 for no limit. HyperPod's
    ``maxNumRepeatOffendersToAvoid``."""

    @property
    def limit(self) -> int:
        """Maximum number of all restarts."""
        return max(_TOTAL, self.in_place + self.exchanges) if self.total is None else self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class BadStep:
    """Step with a loss that was not finite or spiked."""

    reason: str
    step: int
    at: datetime
    """Time at which it was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartHistory:
    """Past restarts of a job, as far as budgets count them. Its size is bounded by the budgets."""

    total: int = 0
    exchanges: int = 0
    in_place: tuple[datetime, ...] = ()
    """Times of the restarts in place within the period of the budget, oldest first."""

    last: Rung | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    """Number of failures by node, of the nodes that failed last, oldest first."""

    loss: BadStep | None = None
    """Bad loss for which the last restart was; None if it was for another reason."""

    skipped: tuple[int, ...] = ()
    """Steps with a bad loss that the ranks are to skip."""

    cause: str = ""
    """Root cause of the failure before the last restart; empty if it is not known."""

    moved_rank: int = -1
    """Rank whose node was suspected last, and left for another one; -1 if there is none."""

    def since(self, start: datetime) -> "RestartHistory":
        """Return the history without restarts in place up to ``start``."""
        return replace(self, in_place=tuple(at for at in self.in_place if at > start))

    def with_restart(
        self, choice: "RungChoice", node: str, now: datetime, cause: str = "", moved_rank: int = -1
    ) -> "RestartHistory":
        """Return the history after a restart.

        Args:
            choice: the rung.
            node: node that failed; empty for none.
            now: time of the restart.
            cause: root cause of the failure; empty if it is not known.
            moved_rank: rank for which that node was suspected; -1 if it was not.

        """
        is_in_place = choice.rung is Rung.IN_PLACE
        failures = {name: count for name, count in self.failures.items() if name != node}
        if node:
            failures[node] = self.failures.get(node, 0) + 1
        return RestartHistory(
            total=self.total + 1,
            exchanges=self.exchanges + choice.nodes,
            in_place=(*self.in_place, now) if is_in_place else self.in_place,
            last=choice.rung,
            failures=dict(list(failures.items())[-_OFFENDERS_LIMIT:]),
            skipped=self.skipped,
            cause=cause,
            moved_rank=self.moved_rank if moved_rank < 0 else moved_rank,
        )

    def with_loss(self, loss: "BadStep", *, is_skipped: bool) -> "RestartHistory":
        """Return the history whose last restart was for a bad loss."""
        skipped = dict.fromkeys((*self.skipped, *((loss.step,) if is_skipped else ())))
        return replace(self, loss=loss, skipped=tuple(skipped))

    def without_exchanges(self, count: int) -> "RestartHistory":
        """Return the history after ``count`` nodes were not exchanged, because they came back."""
        return replace(self, exchanges=max(0, self.exchanges - count))

    def is_offender(self, node: str, budget: RestartBudget, failures: int = 0) -> bool:
        """Return whether a node is a repeat offender, with ``failures`` more than are known."""
        return self.failures.get(node, 0) + failures >= budget.offender_failures > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why ranks have to restart."""

    text: str
    is_final: bool = False
    """Whether a restart does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """With what ranks can restart."""

    missing: int = 0
    """Nodes of the ranks that cannot be used: they are lost or being repaired."""

    spares: int = 0
    """Nodes that can be used and have no ranks."""

    avoided: int = 0
    """Nodes of the ranks that can be used, and that better ones should replace."""

    better: int = 0
    """Nodes of ``spares`` for which there is no reason to avoid them."""

    can_exchange: bool = True
    """Whether the job can get nodes that it does not have."""

    may_return: bool = False
    """Whether missing nodes may still come back."""

    obstacle: str = ""
    """Why missing nodes neither come back nor can be exchanged; empty if the budget is."""

    only_whole_job: str = ""
    """Why only the whole job can restart; empty if that is not so."""


@dataclass(frozen=True, slots=True)
class RungChoice:
    """Next rung, its reason, and the number of nodes that it replaces."""

    rung: Rung
    why: str
    nodes: int = 0


def choose_rung(
    cause: Cause, means: Means, history: RestartHistory, budget: RestartBudget
) -> RungChoice:
    """Return the cheapest rung that helps and has budget left.

    ``history`` has the restarts within the period of the budget. ``WAIT`` is returned only while
    missing nodes may come back.
    """
    if cause.is_final:
        return RungChoice(Rung.FAIL, cause.text)
    if history.total >= budget.limit:
        why = f"restarts exhausted ({history.total} of {budget.limit})"
        return RungChoice(Rung.FAIL, why)
    if means.only_whole_job:
        return beyond_exchange(means.only_whole_job, budget)
    left = budget.exchanges - history.exchanges
    optional = min(means.avoided, means.better - means.missing, left - means.missing)
    replaced = means.missing + max(0, optional)
    if 0 < replaced <= left:
        if replaced <= means.spares:
            return RungChoice(Rung.SPARE, cause.text, replaced)
        if means.can_exchange:
            return RungChoice(Rung.EXCHANGE, cause.text, replaced)
    if means.missing:
        if means.may_return:
            return RungChoice(Rung.WAIT, cause.text)
        exhausted = f"exchanges of nodes exhausted ({history.exchanges} of {budget.exchanges})"
        return beyond_exchange(means.obstacle or exhausted, budget)
    used = len(history.in_place)
    if used < budget.in_place:
        return RungChoice(Rung.IN_PLACE, cause.text)
    return beyond_exchange(f"restarts in place exhausted ({used} of {budget.in_place})", budget)


def beyond_exchange(why: str, budget: RestartBudget) -> RungChoice:
    """Return the rung after those that keep the nodes, because of ``why``."""
    return RungChoice(Rung.WHOLE_JOB if budget.job_restarts > 0 else Rung.FAIL, why)
