"""One scenario on trial: simulated to its end, under all laws."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.sim.scenario import ProviderReply, Scenario, ScenarioEvent
from holdfast.adapters.sim.simulation import START, Simulation
from holdfast.adapters.sim.training import SimJob, SimRank
from holdfast.adapters.sim.world import SimNode
from holdfast.model.events import Event
from holdfast.model.jobs import JobRecord
from holdfast.model.nodes import NodeRecord
from tests.simulation.laws import LawBroken, Laws

SETTLING: Final = timedelta(days=1)
"""Time after the last fault within which every repair and job ends."""

_NONE: Final = timedelta(0)
STEPS: Final = 20_000
"""More moments than any scenario on trial needs: beyond it, the loop must be spinning."""


def judge(scenario: Scenario, laws: Laws | None = None) -> Simulation:
    """Simulate ``scenario`` until nothing happens any more.

    Raises:
        LawBroken: something happened that must not, or something that must did not.

    """
    laws = laws or Laws()
    simulation = Simulation(scenario, laws)
    laws.world = simulation.world
    bound = _bound(scenario)
    timeout = _timeout(scenario)
    changes, changed_at = 0, simulation.world.now
    for _ in range(STEPS):
        if not simulation.step():
            break
        now = simulation.world.now
        if simulation.gate.changes != changes or simulation.world.next_timer() is not None:
            changes, changed_at = simulation.gate.changes, now
        if now > bound and simulation.world.scenario.policy.deep_check_every is not None:
            _end_periodic_checks(simulation)
            bound = now + SETTLING
        if now - changed_at > timeout or now > bound:
            break
    else:
        raise LawBroken(f"{simulation.world.now.isoformat()}: the loop spins")
    laws.judge_end()
    return simulation


def _end_periodic_checks(simulation: Simulation) -> None:
    """Restart the controller without periodic checks, which would never end."""
    scenario = simulation.world.scenario
    policy = replace(
        scenario.policy,
        deep_check_every=None,
        deep_check_groups=scenario.policy.deep_check_groups
        if scenario.policy.deep_check_on_start
        else (),
    )
    simulation.world.scenario = replace(scenario, policy=policy)
    simulation.restart_controller()


def _timeout(scenario: Scenario) -> timedelta:
    """After so long without a change, no deadline is left that could bring one."""
    policy, jobs = scenario.policy, scenario.job_policy
    return timedelta(minutes=5) + max(
        policy.join_timeout,
        policy.reboot_timeout,
        8 * policy.replace_timeout,  # doubles with each replacement that does not appear
        policy.drain_timeout,
        policy.deep_check_timeout,
        jobs.wait_for_nodes,
        jobs.launch_timeout,
    )


def _bound(scenario: Scenario) -> datetime:
    last = max(
        (scenario_event.at + _lasts(scenario_event) for scenario_event in scenario.scenario_events),
        default=_NONE,
    )
    return START + last + SETTLING


def _lasts(scenario_event: ScenarioEvent) -> timedelta:
    return getattr(scenario_event, "lasts", None) or _NONE


class TracedLaws(Laws):
    """Laws that also write a line for each event."""

    def __init__(self, report_line: Callable[[str], None]) -> None:
        super().__init__()
        self._write = report_line

    def event_applied(self, scenario_event: ScenarioEvent) -> None:
        """See ``Observer.event_applied``."""
        self._print(f"* {scenario_event}")

    def reported(self, event: Event) -> None:
        """See ``Observer.reported``."""
        self._print(f"  {event}")
        super().reported(event)

    def controller_died(self) -> None:
        """See ``Observer.controller_died``."""
        self._print("* the controller is killed")

    def node_put(self, node: SimNode, before: NodeRecord) -> None:
        """See ``Observer.node_put``."""
        self._print(
            f"  {node.name}: {before.phase} -> {node.record.phase} {node.record.remediation}"
        )
        super().node_put(node, before)

    def job_put(self, job: SimJob, before: JobRecord) -> None:
        """See ``Observer.job_put``."""
        record = job.record
        self._print(
            f"  {job.training.spec.name} #{record.attempt}: {before.phase} -> {record.phase}"
        )
        super().job_put(job, before)

    def launched(self, job: SimJob, rank: SimRank) -> None:
        """See ``Observer.launched``."""
        self._print(f"  rank {rank.rank} of {job.training.spec.name} starts on {rank.node}")
        super().launched(job, rank)

    def ordered(self, node: SimNode, verb: str, token: str, answer: ProviderReply) -> None:
        """See ``Observer.ordered``."""
        self._print(f"  {verb} {node.name} {token}: {answer}")
        super().ordered(node, verb, token, answer)

    def _print(self, what: str) -> None:
        self._write(f"{self.world.now:%d %H:%M:%S.%f} {what}")
