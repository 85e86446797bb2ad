"""The restart ladder inside a job, while its nodes stay allocated: pure.

From the cheapest restart to the most expensive: restart the ranks in place, exchange a node for a
hot spare, exchange it for a node that joins later, let the platform restart the whole job, fail.
Each rung has a budget. On Slurm, ``step_restart`` continues when the launchers of a step have
failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.decisions.exit_meanings import ExitMeaning


class Rung(StrEnum):
    """Kind of restart, from the cheapest to the most expensive."""

    IN_PLACE = "in-place"
    SPARE = "spare"
    """With a launcher that has joined and stands by, instead of the failed one."""

    EXCHANGE = "exchange"
    """With a launcher that has yet to join. The other launchers stay."""

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
    """Exchanges of nodes. HyperPod's ``jobMaxRetryCount`` is 10 in its samples."""

    job_restarts: int = 0
    """Restarts of the whole job that are left. HyperPod's ``maxFullJobRestarts``, less those that
    the platform has done."""

    total: int = 50
    """All restarts of a launch, so that every job ends. HyperPod's ``jobMaxRetryCount`` is 50 in
    the developer guide."""

    repeat_offender: int = 2
    """Consecutive restarts in place for failures of the same node, after which a hot spare replaces
    it. HyperPod's ``maxNumRepeatOffendersToAvoid``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """First failure of a round."""

    launcher: str
    rank: int = -1
    """Failed rank; -1 if the whole node failed."""

    code: int = 0
    meaning: ExitMeaning = ExitMeaning.CRASH
    text: str = ""
    is_lost: bool = False
    """Whether the node's launcher is not connected any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A past restart."""

    at: datetime
    rung: Rung
    launcher: str
    """Launcher of the node that failed."""


@dataclass(frozen=True, slots=True)
class RungChoice:
    """Next rung and its reason."""

    rung: Rung
    why: str


def choose_rung(
    failure: Failure,
    restarts: Sequence[Restart],
    spares: int,
    budget: RestartBudget,
    now: datetime,
) -> RungChoice:
    """Return the cheapest rung that helps after a failure and has budget left.

    Args:
        failure: first failure of the round.
        restarts: all past restarts, oldest first.
        spares: number of launchers that stand by.
        budget: maximum numbers of restarts.
        now: current time.

    """
    if failure.meaning is ExitMeaning.STOP:
        return RungChoice(Rung.FAIL, f"exit code {failure.code} requests no restart")
    if len(restarts) >= budget.total:
        return RungChoice(Rung.FAIL, f"restarts exhausted ({budget.total} in total)")
    must_exchange = failure.is_lost
    may_exchange = spares > 0 and (
        failure.meaning is ExitMeaning.ANOTHER_DEVICE or _is_repeated(failure, restarts, budget)
    )
    exchanges = sum(one.rung in (Rung.SPARE, Rung.EXCHANGE) for one in restarts)
    if exchanges < budget.exchanges and (must_exchange or may_exchange):
        return RungChoice(Rung.SPARE if spares else Rung.EXCHANGE, failure.text)
    if must_exchange:
        return _beyond(f"exchanges of nodes exhausted ({budget.exchanges})", budget)
    recent = [one for one in restarts if one.rung is Rung.IN_PLACE and one.at > now - budget.period]
    if len(recent) < budget.in_place:
        return RungChoice(Rung.IN_PLACE, failure.text)
    return _beyond(f"restarts in place exhausted ({len(recent)} of {budget.in_place})", budget)


def _beyond(why: str, budget: RestartBudget) -> RungChoice:
    return RungChoice(Rung.WHOLE_JOB if budget.job_restarts > 0 else Rung.FAIL, why)


def _is_repeated(failure: Failure, restarts: Sequence[Restart], budget: RestartBudget) -> bool:
    last = restarts[-budget.repeat_offender :]
    return len(last) == budget.repeat_offender > 0 and all(
        one.rung is Rung.IN_PLACE and one.launcher == failure.launcher for one in last
    )
