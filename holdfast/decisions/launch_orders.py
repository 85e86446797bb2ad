"""The order to each launcher of a job: pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.inspection_tries import LIMIT
from holdfast.decisions.launch_state import JobRounds, Outcome, Phase
from holdfast.decisions.restart_rungs import RestartBudget, RestartHistory, Rung, beyond_exchange


class OrderKind(StrEnum):
    """What a launcher must do."""

    WAIT = "wait"
    RUN = "run"
    STOP = "stop"
    """End all ranks of rounds up to this number, and confirm it."""

    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Order to one launcher. Repeating it has no further effect."""

    kind: OrderKind
    round: int
    node_rank: int = 0
    first_rank: int = 0
    """Rank of the launcher's first process."""

    nodes: int = 1
    world_size: int = 1
    master_addr: str = ""
    master_port: int = 0
    history: RestartHistory = RestartHistory()
    rotation: int = 0
    signal: int = 0
    """Signal for the ranks instead of the configured one; 0 for none."""

    inspection: int = 0
    """Number of the inspection of the round for which the ranks are to be inspected; 0 for none."""

    inspection_limit: timedelta = LIMIT
    """Maximum time of that inspection."""

    slow_rank: int = -1
    """Straggler of the launcher, whose GPU and CPU are to be examined; -1 for none."""

    outcome: Outcome | None = None
    code: int = 0
    """Exit code of a rank that requests no restart; 0 if there is none."""

    why: str = ""


def order_for(job: JobRounds, launcher: str) -> Order:
    """Return the order for a launcher."""
    return orders_for(job, (launcher,))[launcher]


def orders_for(job: JobRounds, launchers: Collection[str]) -> dict[str, Order]:
    """Return the order for each launcher."""
    last = max(job.round, job.floor)  # launchers report it to the next coordinator
    common = Order(kind=OrderKind.WAIT, round=last, history=job.history, why=job.why)
    if job.phase is Phase.END:
        is_final = job.failure is not None and job.failure.meaning is ExitMeaning.STOP
        code = job.failure.code if job.failure is not None and is_final else 0
        common = replace(
            common, kind=OrderKind.END, outcome=job.outcome, code=code, signal=job.stop_signal
        )
    elif job.phase is Phase.STOP:
        common = replace(common, kind=OrderKind.STOP, signal=job.stop_signal)
    orders = dict.fromkeys(launchers, common)
    if job.phase is Phase.RUN:
        orders |= {name: one for name, one in _run_orders(job, common) if name in orders}
    return orders


def _run_orders(job: JobRounds, common: Order) -> Iterator[tuple[str, Order]]:
    """Yield the orders of the round's launchers."""
    master = next(iter(job.active.values()))
    world_size = sum(member.slots for member in job.active.values())
    inspection = job.inspection if job.is_inspecting else None
    first_rank = 0
    for node_rank, (name, member) in enumerate(job.active.items()):
        yield (
            name,
            replace(
                common,
                kind=OrderKind.RUN,
                round=job.round,
                node_rank=node_rank,
                first_rank=first_rank,
                nodes=len(job.active),
                world_size=world_size,
                master_addr=master.address,
                master_port=master.port,
                rotation=job.rotation,
                inspection=inspection.number if inspection is not None else 0,
                inspection_limit=inspection.limit if inspection is not None else LIMIT,
            ),
        )
        first_rank += member.slots


def order_without_coordinator(round_: int, budget: RestartBudget) -> Order:
    """Return the order of a launcher that has found no coordinator for too long.

    Args:
        round_: last round of its ranks; 0 if it has run none, so that a restart has no use.
        budget: limits of restarts.

    """
    restarts = round_ > 0 and beyond_exchange("", budget).rung is Rung.WHOLE_JOB
    outcome = Outcome.RESTART_JOB if restarts else Outcome.FAILED
    return Order(kind=OrderKind.END, round=0, outcome=outcome)
