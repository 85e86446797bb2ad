"""What must hold in every world, at every moment: judged on a simulation while it runs."""

from dataclasses import replace
from typing import Final

from holdfast.adapters.sim.cluster import cluster_view, node_view
from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.scenario import ProviderReply
from holdfast.adapters.sim.training import SimJob, SimRank
from holdfast.adapters.sim.world import SimNode
from holdfast.decisions.policy import RecoveryMode
from holdfast.decisions.remediation import decide
from holdfast.model.events import Event
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import FailureKind, JobPhase, JobRecord, Placing
from holdfast.model.names import Condition
from holdfast.model.nodes import NodeRecord, NodeView, Phase, Remediation
from holdfast.model.requests import Verb
from tests.ports.event_laws import EventLaw
from tests.simulation.breaker_laws import BreakerLaws
from tests.simulation.checkpoint_laws import judge_moved_checkpoints
from tests.simulation.pair_laws import judge_company, judge_pair
from tests.simulation.replacement_laws import ReplacementLaws
from tests.simulation.truth import (
    AWAY,
    ORDERED,
    bad_faults,
    ends_jobs,
    free_nodes,
    hides_silence,
    is_bad,
    is_lost,
    is_out,
    times_of,
    waiting_successors,
)

NODE_STEPS: Final = {
    Phase.JOINING: {Phase.JOINING, Phase.CHECKING, Phase.SCHEDULABLE, Phase.QUARANTINED},
    Phase.CHECKING: {Phase.CHECKING, Phase.SCHEDULABLE, Phase.QUARANTINED},
    Phase.SCHEDULABLE: {Phase.SCHEDULABLE, Phase.QUARANTINED},
    Phase.QUARANTINED: {Phase.QUARANTINED, Phase.DRAINING, Phase.SCHEDULABLE},
    Phase.DRAINING: {Phase.DRAINING, Phase.CHECKING, Phase.SCHEDULABLE, *AWAY},
    Phase.REBOOTING: {Phase.REBOOTING, Phase.REPLACING, Phase.JOINING},
    Phase.REPLACING: {Phase.REPLACING, Phase.JOINING},
}
JOB_STEPS: Final = {
    JobPhase.WAITING: {JobPhase.STARTING, JobPhase.FAILED, JobPhase.CANCELLED},
    JobPhase.STARTING: {JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.SUCCEEDED},
    JobPhase.RUNNING: {JobPhase.STOPPING, JobPhase.SUCCEEDED},
    JobPhase.STOPPING: {
        JobPhase.STOPPING,
        JobPhase.WAITING,
        JobPhase.FAILED,
        JobPhase.CANCELLED,
    },
}


class LawBroken(AssertionError):
    """Something happened that must not."""


class Laws(BreakerLaws):
    """Watches one simulation. Raises ``LawBroken`` as soon as something happens that must not."""

    def __init__(self) -> None:
        self._requests_taken: dict[str, str] = {}
        """The remediation that took up each request."""

        self._released_by_person: set[str] = set()
        self._requested_retries: dict[str, int] = {}
        self._ran: set[tuple[str, int]] = set()
        """Attempts whose ranks were all launched."""

        self._orders: dict[str, tuple[str, str]] = {}
        """Machine and verb of each token."""

        self._replacements = ReplacementLaws(self._check)
        self._reboots: dict[tuple[str, SimMachine], set[str]] = {}
        """Tokens of the reboots of one machine in one remediation."""

        self._events = EventLaw(self._check)

    def reported(self, event: Event) -> None:
        """See ``Observer.reported``."""
        self._events.reported(event)

    # nodes

    def node_put(self, node: SimNode, before: NodeRecord) -> None:
        """See ``Observer.node_put``."""
        record = node.record
        view = node_view(self.world, node.name)
        self._judge_phase(view, before)
        self._judge_request(node, before)
        judge_company(self.world, node, before, self._check)
        if record.phase is not before.phase:
            if record.phase is Phase.SCHEDULABLE:
                self._judge_release(node, view)
            if record.phase in ORDERED:
                self._judge_permission(view)
            if record.phase in AWAY:
                self._judge_cause(view, before)
        self._judge_budget()

    def _judge_phase(self, node: NodeView, before: NodeRecord) -> None:
        record = node.record
        self._check(
            record.phase in NODE_STEPS[before.phase],
            f"{node.name} went from {before.phase} to {record.phase}",
        )
        old, new = before.remediation, record.remediation
        is_needed = record.phase in (Phase.QUARANTINED, *ORDERED)
        is_forbidden = record.phase is Phase.SCHEDULABLE
        self._check(
            not (is_needed if new is None else is_forbidden),
            f"{node.name} is {record.phase} with{'out' if new is None else ''} a remediation",
        )
        if old is not None and new is not None:
            is_same = old.incident_id == new.incident_id
            self._check(is_same, f"{node.name} changed its incident in one remediation")

    def _judge_request(self, node: SimNode, before: NodeRecord) -> None:
        repair = node.record.remediation
        old = before.remediation.request_id if before.remediation is not None else ""
        taken = repair.request_id if repair is not None else ""
        is_inherited = (
            before.remediation is None and before.phase is Phase.JOINING and node.replaces
        )
        if taken and taken != old and not is_inherited:
            self._check(taken not in self._requests_taken, f"{taken} was carried out twice")
            self._requests_taken[taken] = _repair(node.record).incident_id

    def _judge_release(self, node: SimNode, view: NodeView) -> None:
        is_requested = node.request is not None and node.request.verb is Verb.RELEASE
        if is_requested:
            self._released_by_person.add(view.provider_id)
            return
        policy, now = self.world.scenario.policy, self.world.now
        is_fit = view.heartbeat_at is not None and not is_bad(view, policy, now)
        self._check(is_fit, f"{node.name} was released with a fault, or unheard")
        self._check(
            view.provider_id not in self.world.offenders
            or view.provider_id in self._released_by_person,
            f"the offender {view.provider_id} was taken back",
        )

    def _judge_permission(self, node: NodeView) -> None:
        self._check(
            self.world.breaker.tripped_at is None,
            f"{node.name} became {node.record.phase} while the breaker is open",
        )
        repair = _repair(node.record)
        is_marked_only = self.world.scenario.policy.node_recovery is RecoveryMode.NONE
        is_request = repair.condition == Condition.REQUESTED or (
            node.request is not None and node.request.verb is Verb.REPLACE
        )
        self._check(
            not is_marked_only or is_request,
            f"{node.name} became {node.record.phase} although nodes are only marked",
        )
        self._check(
            node.record.phase is not Phase.DRAINING
            or repair.urgency is Urgency.IMMEDIATE
            or not node.running_jobs,
            f"{node.name} is drained while {node.running_jobs} may still run there",
        )

    def _judge_cause(self, node: NodeView, before: NodeRecord) -> None:
        """No repair without a cause, and none that is stronger than its cause."""
        repair = _repair(node.record)
        if before.phase in AWAY:
            self._judge_escalation(node, before)
            return
        policy, now = self.world.scenario.policy, self.world.now
        requested = repair.condition in (Condition.REQUESTED, Condition.DEEP_CHECK)
        is_offender = node.provider_id in self.world.offenders
        seen = replace(node, record=before)
        faults, lost = bad_faults(seen), is_lost(seen, policy, now)
        self._check(
            bool(faults) or lost or requested or is_offender,
            f"{node.name} is {node.record.phase} without a cause",
        )
        needs_replacement = requested or is_offender or lost
        if node.record.phase is Phase.REPLACING and not needs_replacement:
            self._check(
                any(fault.remedy is Remedy.REPLACE for fault in faults)
                or len(before.history) + 1 >= min(policy.offender_faults, 2)
                or _machine(_repair(before)) == node.provider_id,
                f"{node.name} is replaced for a fault that a reboot was never tried for",
            )

    def _judge_escalation(self, node: NodeView, before: NodeRecord) -> None:
        """A reboot becomes a replacement if it did not help, or was refused, for long enough."""
        if node.request is not None and node.request.verb is Verb.REPLACE:
            return
        self._check(
            self.world.scenario.policy.node_recovery is RecoveryMode.AUTOMATIC,
            f"{node.name} is replaced after its reboot although nodes are only marked",
        )
        if self.world.nodes[node.name].machine.power is Power.REMOVED:
            return
        repair = _repair(before)
        # A machine that has booted was ordered to do so, even if the answer was lost.
        was_ordered = repair.ordered_at or repair.retry_at or node.machine != repair.machine
        waited = self.world.now - (repair.ordered_at or before.phase_since)
        self._check(
            bool(was_ordered) and waited >= self.world.scenario.policy.reboot_timeout,
            f"{node.name} is replaced {waited} after its reboot was ordered",
        )

    def _judge_budget(self) -> None:
        view = cluster_view(self.world)
        waiting = waiting_successors(view)
        members = [node for node in view.nodes if node.name not in waiting]
        allowed = self.world.scenario.policy.max_unavailable.of(len(members))
        out = [node.name for node in members if is_out(node.record)]
        self._check(len(out) <= allowed, f"{out} are out of service, {allowed} may be")

    def pair_started(self, node: SimNode, partner: SimNode) -> None:
        """See ``Observer.pair_started``."""
        judge_pair(self.world, node, partner, self._check)

    # orders

    def ordered(self, node: SimNode, verb: str, token: str, answer: ProviderReply) -> None:
        """See ``Observer.ordered``."""
        repair, machine = _repair(node.record), node.machine
        self._check(self.world.breaker.tripped_at is None, f"{verb} while the breaker is open")
        self._check(repair.token == token, f"{verb} of {node.name} before it was recorded")
        known = self._orders.setdefault(token, (machine.provider_id, verb))
        self._check(known == (machine.provider_id, verb), f"{token} names {known} and {verb}")
        if verb == "reboot":
            tokens = self._reboots.setdefault((repair.incident_id, machine), set())
            tokens.add(token)
            requested = list(self._requests_taken.values()).count(repair.incident_id)
            self._check(
                len(tokens) <= 1 + requested, f"{node.name} was rebooted again in one repair"
            )
            return
        self._replacements.ordered(self.world, machine, repair, answer)

    # jobs

    def launched(self, job: SimJob, rank: SimRank) -> None:
        """See ``Observer.launched``."""
        node = node_view(self.world, rank.node)
        name = job.training.spec.name
        what = f"rank {rank.rank} of {name} was launched"
        phases = [JobPhase.STARTING]
        if job.training.spec.placing is Placing.SCHEDULER:
            phases.append(JobPhase.STOPPING)  # until the operator has heard of the stop
        else:
            self._judge_choice(node, what)
        self._check(job.record.phase in phases, f"{what} while {job.record.phase}")
        for other, alive in self.world.living_ranks():
            self._check(
                other is not job or alive.attempt == rank.attempt,
                f"{what} while attempt {alive.attempt} still runs",
            )
            self._check(
                other is job or alive.node != rank.node,
                f"{what} on {rank.node}, where {other.training.spec.name} runs",
            )

    def _judge_choice(self, node: NodeView, what: str) -> None:
        """Only where it is ours: a scheduler knows a node by its marks alone."""
        policy, now = self.world.scenario.policy, self.world.now
        phase = node.record.phase
        self._check(phase is Phase.SCHEDULABLE, f"{what} on a node that is {phase}")
        self._check(not is_bad(node, policy, now), f"{what} on a faulty node")

    def job_put(self, job: SimJob, before: JobRecord) -> None:
        """See ``Observer.job_put``."""
        record, spec = job.record, job.training.spec
        name = spec.name
        self._check(
            record.phase in JOB_STEPS.get(before.phase, set()),
            f"{name} went from {before.phase} to {record.phase}",
        )
        begins = record.phase is JobPhase.STARTING
        self._check(
            record.attempt == before.attempt + begins,
            f"{name} went from attempt {before.attempt} to {record.attempt}",
        )
        self._check(record.hardware_retries <= spec.max_retries, f"{name}: hardware budget")
        self._check(record.app_retries <= spec.max_app_retries, f"{name}: application budget")
        if record.phase is JobPhase.WAITING:
            assert record.failure is not None
            count = self._requested_retries.get(name, 0)
            count += record.failure.kind is FailureKind.REQUESTED
            self._requested_retries[name] = count
            spent = record.hardware_retries + record.app_retries + count
            self._check(record.attempt == spent, f"{name}: a retry that nobody paid for")
        if record.phase is JobPhase.RUNNING:
            self._ran.add((name, record.attempt))
        if record.phase is JobPhase.WAITING or record.phase.is_final:
            self._check(not job.living(), f"{name} is {record.phase} while ranks run")
        self._check(
            bool(record.reason) or not record.phase.is_final, f"{name} ended without reason"
        )

    def round_ended(self, what: str, *, is_clean: bool) -> None:
        """See ``Observer.round_ended``."""
        if not is_clean:
            return
        view, now = cluster_view(self.world), self.world.now
        policy, nodes = self.world.scenario.policy, {node.name: node for node in view.nodes}
        if what == "nodes":
            for node in view.nodes:
                self._check(
                    node.record.phase is not Phase.SCHEDULABLE
                    or node.record.phase_since == now
                    or not (is_bad(node, policy, now) or hides_silence(node, policy, now)),
                    f"{node.name} stays schedulable with a fault or as healthy while silent",
                )
                repair = node.record.remediation
                self._check(
                    repair is None or repair.incident_id in self.world.incidents,
                    f"the repair of {node.name} has no incident",
                )
            return
        for name, job in self.world.jobs.items():
            if job.record.phase not in (JobPhase.STARTING, JobPhase.RUNNING):
                continue
            for place in (*job.record.placement, *job.places()):
                self._check(
                    place in nodes and not ends_jobs(nodes[place], policy, now),
                    f"{name} is kept running on {place}",
                )

    # the end

    def judge_end(self) -> None:
        """To be called when nothing happens any more: everything must have come to an end."""
        view = cluster_view(self.world)
        plan = decide(view, self.world.scenario.policy, self.world.now)
        deferred = {item.node: item.why for item in plan.deferred}
        for node in view.nodes:
            self._check(
                node.record.phase is Phase.SCHEDULABLE or node.name in deferred,
                f"{node.name} stays {node.record.phase} for no stated reason",
            )
            self._check(
                node.request is None or node.name in deferred,
                f"the request for {node.name} was forgotten",
            )
        for name, job in self.world.jobs.items():
            self._check(
                job.record.phase.is_final
                or not deferred.keys().isdisjoint(job.places())
                or (job.record.phase is JobPhase.STARTING and not free_nodes(self.world)),
                f"{name} stays {job.record.phase}: {job.record.reason}",
            )
        judge_moved_checkpoints(self.world, self._check)
        self._judge_incidents(
            {
                node.record.remediation.incident_id
                for node in view.nodes
                if node.record.remediation is not None
            }
        )

    def _judge_incidents(self, still_open: set[str]) -> None:
        for incident in self.world.incidents.values():
            state = "open" if incident.ended_at is None else "over"
            is_right = (state == "open") == (incident.id in still_open)
            self._check(is_right, f"the incident {incident.id} is {state}, its repair is not")
            times = times_of(incident)
            self._check(times == sorted(times), f"the times of {incident.id} are out of order")
            for touch in incident.jobs:
                self._check(
                    touch.resumed_at is not None or (touch.job, touch.attempt + 1) not in self._ran,
                    f"{incident.id} does not know that {touch.job} runs again",
                )

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise LawBroken(f"{self.world.now.isoformat()}: {what}")


def _repair(record: NodeRecord) -> Remediation:
    assert record.remediation is not None
    return record.remediation


def _machine(repair: Remediation) -> str:
    return repair.machine.partition("#")[0]
