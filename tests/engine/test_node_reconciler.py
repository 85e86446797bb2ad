from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.clock_steps import CONFIRMED_AFTER
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.provider_timeouts import due_at
from holdfast.engine.node_reconciler import (
    AFTER_ERROR,
    RESYNC,
    SLICE,
    NodePorts,
    NodeReconciler,
)
from holdfast.engine.record_dates import AT_ONCE
from holdfast.kit.quota import Quota
from holdfast.model.errors import BackendError, NodeGone, ProviderError, RetryLater, StorageFull
from holdfast.model.events import RepairOverdue, RepairPostponed
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Breaker, CheckResult, Phase
from holdfast.model.requests import Verb
from holdfast.ports.leadership import Alone
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_fault,
    a_node,
    a_past_fault,
    a_remediation,
    a_request,
    healthy_nodes,
)
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeLeadership,
    FakeProvider,
)

POLICY = RemediationPolicy(max_unavailable=Quota(count=2))


class SlowCalls(Calls):
    """Calls that take their time."""

    def __init__(self, clock, each) -> None:
        super().__init__()
        self.clock = clock
        self.each = each

    def note(self, name, detail="") -> None:
        self.clock.time += self.each
        super().note(name, detail)


class World:
    """Fakes around one reconciler, which can be replaced as if its process had died."""

    def __init__(self, *nodes, policy=POLICY, each_call=timedelta(0)) -> None:
        self.clock = FakeClock()
        self.calls = SlowCalls(self.clock, each_call)
        self.cluster = FakeCluster(nodes, self.calls, self.clock)
        self.incidents = FakeIncidents(self.calls)
        self.events = FakeEvents()
        self._policy = policy
        self.restart()

    def restart(self, leadership=None) -> None:
        ports = NodePorts(
            cluster=self.cluster,
            provider=FakeProvider(self.calls),
            incidents=self.incidents,
            events=self.events,
            clock=self.clock,
            leadership=leadership or Alone(),
        )
        self.reconciler = NodeReconciler(ports, self._policy)

    def step(self, rounds=1):
        """What these rounds called; the last answer is in ``wake_at``."""
        self.calls.made.clear()
        for _ in range(rounds):
            self.wake_at = self.reconciler.step()
        return list(self.calls.made)

    @property
    def node(self):
        return self.cluster.nodes["node-1"]

    @property
    def incident(self):
        (incident,) = self.incidents.stored.values()
        return incident


def draining(remedy=Remedy.REBOOT, **changes):
    return a_node(
        Phase.DRAINING,
        faults=(a_fault(remedy),),
        record={"remediation": a_remediation(remedy), **changes},
    )


# one course


def test_a_healthy_cluster_is_left_alone_until_the_next_resync_or_deadline() -> None:
    world = World(*healthy_nodes(3))

    assert world.step() == []
    assert world.wake_at == NOW + timedelta(seconds=39)
    world.clock.time = NOW - timedelta(seconds=50)
    world.step()
    assert world.wake_at == world.clock.time + RESYNC


def test_a_remediation_from_fault_to_order() -> None:
    world = World(a_node(faults=(a_fault(),)))

    made = world.step(rounds=3)

    name = world.incident.id
    assert made == [
        "put node-1 quarantined",
        f"incident {name}",
        f"incident {name}",
        "put node-1 draining",
        f"incident {name}",
        "put node-1 rebooting",  # recorded before it is ordered
        f"reboot node-1 {name}/1",
        "put node-1 rebooting",
    ]
    assert world.events.names() == ["node.quarantined", "node.draining", "repair.ordered"]
    assert world.node.record.remediation.ordered_at == NOW


def test_after_an_act_the_next_round_is_due_at_once() -> None:
    world = World(a_node(faults=(a_fault(),)))

    world.step()

    assert world.wake_at == NOW


def test_a_remediation_from_reboot_to_release() -> None:
    world = World(draining())
    world.step()
    name = world.incident.id
    world.cluster.change("node-1", boot_id="boot-2", faults=())

    made = world.step(rounds=2)

    assert made == [
        f"incident {name}",
        "put node-1 joining",
        f"incident {name}",
        "put node-1 schedulable",
    ]
    assert world.events.names()[-2:] == ["node.rejoined", "node.released"]
    assert (world.incident.repaired_at, world.incident.released_at) == (NOW, NOW)


def test_a_replacement_hands_its_remediation_on_before_the_old_node_is_forgotten() -> None:
    world = World(draining(Remedy.REPLACE))
    world.step()
    name = world.incident.id
    world.cluster.nodes["node-2"] = a_node(
        Phase.JOINING, name="node-2", provider_id="i-2", replaces="node-1"
    )

    made = world.step(rounds=2)

    assert made == [
        f"incident {name}",
        "put node-2 joining",
        "retire node-1",
        f"incident {name}",
        "put node-2 schedulable",
    ]
    assert world.incident.successor == "node-2"
    assert world.incident.released_at == NOW
    assert world.events.names()[-2:] == ["node.replaced", "node.released"]


def test_a_remediation_is_handed_on_once() -> None:
    remediation = a_remediation(Remedy.REPLACE, machine="i-1#boot-1", ordered_at=NOW)
    old = a_node(Phase.REPLACING, record={"remediation": remediation})
    heir = a_node(
        Phase.JOINING,
        name="node-2",
        provider_id="i-2",
        replaces="node-1",
        record={"remediation": remediation},
    )
    world = World(old, heir)

    assert "put node-2 joining" not in world.step()
    assert set(world.cluster.nodes) == {"node-2"}


def test_jobs_are_asked_to_leave_in_every_round() -> None:
    node = replace(draining(), running_jobs=("a",))
    world = World(node)

    assert world.step()[-1:] == ["drain node-1"]
    assert world.step() == ["drain node-1"]
    assert world.wake_at == min(NOW + RESYNC, NOW + timedelta(seconds=39))


def test_a_node_without_jobs_is_asked_nothing() -> None:
    assert "drain node-1" not in World(draining()).step()


def test_a_check_is_begun_in_every_round_until_it_has_ended() -> None:
    node = a_node(Phase.CHECKING)
    check_id = node.record.phase_since.isoformat()
    world = World(node)

    assert world.step(rounds=2) == [f"begin_check node-1 {check_id}"] * 2
    world.cluster.change("node-1", check=CheckResult(passed=True, ended_at=NOW))
    assert world.step() == ["put node-1 schedulable"]


def test_an_offender_is_remembered_when_there_is_no_way_back_and_before_the_order() -> None:
    pasts = tuple(a_past_fault(ago=timedelta(days=1)) for _ in range(2))
    world = World(draining(Remedy.REPLACE, history=pasts))

    made = [line for line in world.step() if not line.startswith("incident")]

    assert made == [
        "put node-1 replacing",
        "remember_offender i-1",
        "replace node-1 incident-1/1",
        "put node-1 replacing",
    ]


def test_a_machine_that_faults_once_is_not_remembered() -> None:
    assert "remember_offender i-1" not in World(draining(Remedy.REPLACE)).step()


# the provider


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (RetryLater("throttled", after=timedelta(minutes=3)), timedelta(minutes=3)),
        (RetryLater("throttled", after=timedelta(0)), AFTER_ERROR),
        (RetryLater("throttled", after=timedelta(hours=-1)), AFTER_ERROR),
        (ProviderError("not permitted"), POLICY.provider_retry),
    ],
)
@pytest.mark.parametrize("remedy", [Remedy.REBOOT, Remedy.REPLACE])
def test_a_refused_order_is_repeated_under_its_name_when_it_is_due(error, pause, remedy) -> None:
    world = World(draining(remedy))
    world.calls.failing[remedy.value] = error

    world.step()

    remediation = world.node.record.remediation
    assert (remediation.retry_at, remediation.ordered_at) == (NOW + pause, None)
    assert world.wake_at == min(NOW + pause, NOW + timedelta(seconds=39))
    assert world.events.reported[-1] == RepairPostponed(
        node="node-1", remedy=remedy, error=str(error), retry_after=pause
    )
    world.calls.failing.clear()
    world.clock.time = NOW + pause
    assert f"{remedy} node-1 incident-1/1" in world.step()


def test_while_a_provider_refuses_the_pauses_double_up_to_ten_minutes() -> None:
    world = World(draining(Remedy.REPLACE))
    world.calls.failing["replace"] = ProviderError("not permitted")
    pauses = []

    for _ in range(8):
        world.step()
        remediation = world.node.record.remediation
        pauses.append((remediation.retry_at - world.clock.time) / timedelta(seconds=30))
        world.clock.time = remediation.retry_at

    assert pauses == [1, 1, 2, 4, 8, 16, 20, 20]


def test_a_replacement_that_never_comes_is_reported_and_ordered_again_ever_later() -> None:
    world = World(draining(Remedy.REPLACE))
    world.step()
    waits = []

    for number in range(2, 8):
        due = due_at(world.node.record, POLICY)
        waits.append((due - world.clock.time) / POLICY.replace_timeout)
        world.clock.time = due - timedelta(microseconds=1)
        assert "replace" not in " ".join(world.step())
        world.clock.time = due
        assert f"replace node-1 incident-1/{number}" in world.step()

    assert waits == [1, 2, 4, 8, 8, 8]
    reported = [event for event in world.events.reported if isinstance(event, RepairOverdue)]
    assert [event.waited / POLICY.replace_timeout for event in reported] == waits
    assert {(event.node, event.remedy) for event in reported} == {("node-1", "replace")}


def test_an_overdue_order_is_reported_once_however_often_the_next_is_refused() -> None:
    world = World(draining(Remedy.REPLACE))
    world.step()
    world.clock.time = due_at(world.node.record, POLICY)
    world.calls.failing["replace"] = ProviderError("not permitted")

    for _ in range(3):
        world.step()
        world.clock.time = world.node.record.remediation.retry_at

    assert world.events.names().count("repair.overdue") == 1


def test_a_reboot_that_is_overdue_is_reported_before_the_machine_is_replaced() -> None:
    world = World(draining())
    world.step()
    world.clock.time += POLICY.reboot_timeout

    world.step()

    reported = [event for event in world.events.reported if isinstance(event, RepairOverdue)]
    assert reported == [RepairOverdue(node="node-1", remedy="reboot", waited=POLICY.reboot_timeout)]
    assert world.events.names()[-2:] == ["repair.overdue", "repair.ordered"]


class SetBackMeanwhile(FakeCluster):
    """Its clock is set back by an hour before each snapshot, as after a jump forward."""

    def snapshot(self, peer_pools=()):
        self._clock.time -= timedelta(hours=1)
        return super().snapshot(peer_pools)


def test_a_clock_that_is_set_back_while_the_cluster_is_read_makes_no_node_silent() -> None:
    world = World()
    nodes = [replace(one, heartbeat_at=NOW - timedelta(hours=1)) for one in healthy_nodes(2)]
    world.cluster = SetBackMeanwhile(nodes, world.calls, world.clock)
    world.restart()

    world.reconciler.step()

    assert world.clock.time == NOW - timedelta(hours=1)
    phases = {node.record.phase for node in world.cluster.nodes.values()}
    assert phases == {Phase.SCHEDULABLE}


class SetBackWhileRead(FakeCluster):
    """Dates its heartbeats while the clock is an hour behind for a moment."""

    def snapshot(self, peer_pools=()):
        return replace(super().snapshot(peer_pools), read_at=self._clock.time - timedelta(hours=1))


def test_a_clock_that_was_behind_while_heartbeats_were_dated_makes_no_node_silent() -> None:
    world = World()
    nodes = [replace(one, heartbeat_at=NOW - timedelta(hours=1)) for one in healthy_nodes(2)]
    world.cluster = SetBackWhileRead(nodes, world.calls, world.clock)
    world.restart()

    world.reconciler.step()

    phases = {node.record.phase for node in world.cluster.nodes.values()}
    assert phases == {Phase.SCHEDULABLE}


def test_a_machine_that_is_gone_is_replaced_at_once() -> None:
    world = World(draining())
    world.calls.failing["reboot"] = NodeGone("no such machine")

    made = world.step(rounds=2)

    assert [line for line in made if line.startswith("replace")] == ["replace node-1 incident-1/2"]
    assert world.incident.remedy == "replace"


def test_a_machine_that_is_gone_needs_no_taking_away() -> None:
    world = World(draining(Remedy.REPLACE))
    world.calls.failing["replace"] = NodeGone("no such machine")

    world.step()

    assert world.node.record.remediation.ordered_at == NOW


def test_an_order_whose_answer_was_lost_keeps_its_name() -> None:
    world = World(draining())
    world.step()
    lost = replace(world.node.record.remediation, ordered_at=None)
    world.cluster.change("node-1", record=replace(world.node.record, remediation=lost))
    world.restart()

    assert "reboot node-1 incident-1/1" in world.step()


# requests


def test_a_request_is_forgotten_once_it_is_taken_up() -> None:
    world = World(a_node(request=a_request(Verb.REBOOT)))

    made = world.step()

    assert made[0] == "put node-1 quarantined"
    assert "clear_request node-1 request-1" in made[1:]


def test_a_request_that_could_not_be_forgotten_is_forgotten_before_anything_else() -> None:
    world = World(a_node(request=a_request(Verb.REBOOT)))
    world.calls.failing["clear_request"] = BackendError("down")
    world.step()
    world.step()
    assert world.node.record.phase is Phase.QUARANTINED  # nothing further while that fails
    world.calls.failing.clear()

    assert world.step()[0] == "clear_request node-1 request-1"
    assert world.node.record.phase is Phase.DRAINING


@pytest.mark.parametrize("phase", [Phase.SCHEDULABLE, Phase.QUARANTINED, Phase.JOINING])
def test_a_release_is_carried_out_and_then_forgotten(phase) -> None:
    world = World(a_node(phase, faults=(a_fault(),), request=a_request(Verb.RELEASE)))

    made = [line for line in world.step() if not line.startswith("incident")]

    assert made == ["put node-1 schedulable", "clear_request node-1 request-1"]
    assert world.node.record.cleared_at == NOW


def test_a_requested_check_is_forgotten_when_it_begins() -> None:
    world = World(a_node(Phase.JOINING, request=a_request(Verb.DEEP_CHECK)))

    assert world.step() == ["put node-1 checking", "clear_request node-1 request-1"]


def test_a_request_that_nobody_took_up_stays() -> None:
    remediation = a_remediation(machine="i-1#boot-1", ordered_at=NOW)
    world = World(
        a_node(
            Phase.REBOOTING, request=a_request(Verb.DEEP_CHECK), record={"remediation": remediation}
        )
    )

    assert "clear_request node-1 request-1" not in world.step()


# many nodes at once


def waiting_for_order(number):
    """A drained node; its order is the next thing to do."""
    remediation = replace(a_remediation(Remedy.REPLACE), incident_id=f"incident-{number}")
    return a_node(
        Phase.DRAINING,
        name=f"node-{number}",
        provider_id=f"i-{number}",
        faults=(a_fault(Remedy.REPLACE),),
        record={"remediation": remediation},
    )


def test_nodes_are_marked_before_anything_else_is_done() -> None:
    faulty = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(2, first=2)]
    world = World(waiting_for_order(1), *faulty)

    made = world.step()

    assert made[:2] == ["put node-2 quarantined", "put node-3 quarantined"]
    assert [line.partition(" ")[0] for line in made[2:4]] == ["incident", "incident"]
    assert "replace node-1 incident-1/1" in made[4:]


def test_however_long_it_takes_all_are_marked_in_one_round() -> None:
    faulty = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(3)]
    world = World(*faulty, each_call=2 * SLICE)

    world.step()

    assert {node.record.phase for node in world.cluster.nodes.values()} == {Phase.QUARANTINED}
    assert len(world.incidents.stored) == 3


def test_a_round_that_takes_long_is_cut_and_the_next_begins_at_once() -> None:
    world = World(*map(waiting_for_order, (1, 2, 3)), each_call=2 * SLICE)

    orders = [[line for line in world.step() if "replace " in line] for _ in range(3)]

    assert orders == [[f"replace node-{n} incident-{n}/1"] for n in (1, 2, 3)]

    checking = [a_node(Phase.CHECKING, name=f"node-{n}") for n in (1, 2)]
    world = World(*checking, each_call=2 * SLICE)
    world.step()
    assert world.wake_at < world.clock.time  # though what was done calls for nothing else soon


def test_a_round_that_is_short_enough_is_not_cut() -> None:
    world = World(*map(waiting_for_order, (1, 2, 3)), each_call=SLICE / 20)

    orders = [line for line in world.step() if line.startswith("replace ")]

    assert len(orders) == 3


def test_a_node_that_takes_all_the_time_in_vain_leaves_the_others_their_turn() -> None:
    world = World(*map(waiting_for_order, (1, 2, 3)), each_call=2 * SLICE)
    world.calls.failing["put node-2"] = BackendError("down")

    made = world.step(rounds=4)

    assert "replace node-1 incident-1/1" in made
    assert "replace node-3 incident-3/1" in made


# incidents


def test_an_incident_that_was_lost_is_made_up_for_with_its_cause() -> None:
    fault = a_fault(since=LONG_AGO)
    world = World(a_node(Phase.QUARANTINED, faults=(fault,)))

    made = world.step()

    assert made[0] == "incident incident-1"
    assert world.incident.message == fault.message
    assert world.incident.detected_at == LONG_AGO


def test_an_incident_is_looked_for_once() -> None:
    deferred = a_fault(urgency=Urgency.DEFERRED)
    world = World(
        a_node(
            Phase.QUARANTINED,
            faults=(deferred,),
            running_jobs=("a",),
            record={"remediation": a_remediation(urgency=Urgency.DEFERRED)},
        )
    )

    assert world.step(rounds=3) == ["incident incident-1"]


def test_another_remedy_is_reported_in_the_incident() -> None:
    world = World(a_node(Phase.QUARANTINED, faults=(a_fault(), a_fault(Remedy.REPLACE))))

    world.step()

    assert (world.incident.reason, world.incident.remedy) == (Reason.XID_REPLACE, Remedy.REPLACE)
    assert world.events.names() == ["node.reassigned"]


def test_a_release_is_reported_in_the_incident_before_the_remediation_is_forgotten() -> None:
    world = World(a_node(Phase.QUARANTINED))
    world.calls.failing["put node-1"] = BackendError("down")

    world.step()

    assert world.incident.released_at == NOW
    assert world.node.record.remediation is not None


# failures of the backend


def test_an_unreadable_cluster_is_read_again_soon() -> None:
    world = World(a_node(faults=(a_fault(),)))
    world.calls.failing["snapshot"] = BackendError("down")

    assert world.step() == []
    assert world.wake_at == NOW + AFTER_ERROR
    assert [str(event.error) for event in world.events.reported] == ["down"]


def test_what_fails_for_one_node_does_not_keep_the_others_waiting() -> None:
    nodes = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(4)]
    world = World(*nodes, policy=replace(POLICY, breaker_share=100.0))
    world.calls.failing["put node-2"] = BackendError("down")

    world.step()

    phases = {name: node.record.phase for name, node in world.cluster.nodes.items()}
    assert phases.pop("node-2") is Phase.SCHEDULABLE
    assert set(phases.values()) == {Phase.QUARANTINED}
    assert world.wake_at == NOW
    assert "engine.call_failed" in world.events.names()


@pytest.mark.parametrize(
    ("call", "node"),
    [
        ("snapshot", a_node()),
        ("put node-1", a_node(faults=(a_fault(),))),
        ("incident", a_node(Phase.QUARANTINED)),
        ("clear_request", a_node(request=a_request(Verb.REBOOT))),
        ("trip_breaker", a_node(faults=(a_fault(),))),
    ],
)
def test_when_nothing_can_be_recorded_nothing_is_done(call, node) -> None:
    policy = replace(POLICY, breaker_min_nodes=1 if call == "trip_breaker" else 5)
    world = World(node, policy=policy)
    world.calls.failing[call] = StorageFull("no space left")

    with pytest.raises(StorageFull):
        world.step()


def test_an_order_that_could_not_be_recorded_is_not_given() -> None:
    world = World(draining())
    world.calls.failing["put node-1"] = BackendError("down")

    assert not any(line.startswith("reboot") for line in world.step())


# the breaker and the budget


def test_the_breaker_is_opened_before_anything_else_and_reported_once() -> None:
    nodes = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(5)]
    world = World(*nodes)

    made = world.step(rounds=3)

    assert made[0] == "trip_breaker"
    assert world.events.names().count("breaker.tripped") == 1
    assert not any("draining" in line for line in made)


def test_a_breaker_closes_by_itself_once_and_says_why() -> None:
    world = World(a_node(), policy=replace(POLICY, breaker_close_after=timedelta(microseconds=1)))
    world.cluster.breaker = Breaker(tripped_at=NOW - timedelta(hours=1), reason="a storm")

    world.calls.failing["close_breaker"] = BackendError("down")
    world.step()
    assert world.cluster.breaker.tripped_at is not None
    del world.calls.failing["close_breaker"]
    world.step(rounds=2)

    assert world.cluster.breaker.tripped_at is None
    assert world.events.names().count("breaker.closed") == 1


def test_a_breaker_that_cannot_be_opened_still_holds() -> None:
    nodes = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(5)]
    world = World(*nodes)
    world.calls.failing["trip_breaker"] = BackendError("down")

    made = world.step(rounds=3)

    assert not any("draining" in line for line in made)
    assert world.wake_at == NOW + AFTER_ERROR


def test_why_a_repair_is_held_back_is_reported_once_and_again_if_it_changes() -> None:
    faulty = a_node(Phase.QUARANTINED, faults=(a_fault(),))
    world = World(faulty, policy=replace(POLICY, max_unavailable=Quota(count=0)))

    world.step(rounds=3)
    assert world.events.names() == ["repair.deferred"]
    world.cluster.breaker = replace(world.cluster.breaker, tripped_at=NOW)
    world.step(rounds=2)
    assert [event.why for event in world.events.reported] == [
        "unavailable-node budget used (0 of 0)",
        "circuit breaker open",
    ]


def test_a_new_reconciler_goes_on_where_the_old_one_died() -> None:
    world = World(a_node(faults=(a_fault(),)))
    for _ in range(3):
        world.step()
        world.restart()

    assert world.node.record.phase is Phase.REBOOTING
    assert len(world.incidents.stored) == 1


def test_a_deep_check_remediation_ends_with_a_check() -> None:
    remediation = a_remediation(Remedy.NONE, condition=Condition.REQUESTED)
    world = World(a_node(Phase.DRAINING, record={"remediation": remediation}))

    assert "put node-1 checking" in world.step()
    assert world.events.names() == ["node.check_begun"]


def test_who_does_not_lead_reads_and_changes_nothing() -> None:
    world = World(*healthy_nodes(3), draining())
    world.restart(FakeLeadership(0))

    assert world.step() == []


def test_a_round_ends_when_the_lead_is_lost() -> None:
    faulty = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(4)]
    world = World(*faulty)
    world.restart(FakeLeadership(2))

    world.step()

    phases = [node.record.phase for node in world.cluster.nodes.values()]
    assert phases == [Phase.QUARANTINED] * 2 + [Phase.SCHEDULABLE] * 2


def test_an_order_recorded_by_who_then_lost_the_lead_is_given_by_the_next_under_its_name() -> None:
    world = World(draining())
    world.restart(FakeLeadership(1))
    assert not any(call.startswith("reboot") for call in world.step())
    token = world.node.record.remediation.token

    world.restart()

    assert f"reboot node-1 {token}" in world.step()


def test_the_incident_of_a_node_that_vanished_by_itself_ends() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    del world.cluster.nodes["node-1"]
    world.clock.time = NOW + timedelta(seconds=9)

    made = world.step(rounds=2)

    assert made == [f"incident {world.incident.id}"]
    assert world.incident.vanished_at == world.clock.time
    assert world.events.names().count("node.vanished") == 1


def test_incidents_that_ended_long_ago_are_deleted_and_open_ones_stay() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    opened = world.incident
    ago = POLICY.incident_retention + timedelta(days=1)
    over = replace(opened, id="old", quarantined_at=NOW - ago, released_at=NOW - ago)
    world.incidents.stored["old"] = over
    world.clock.time = NOW + timedelta(hours=1)

    world.step()

    assert "old" not in world.incidents.stored
    assert opened.id in world.incidents.stored


def test_a_node_that_vanished_while_nobody_looked_is_noticed() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    del world.cluster.nodes["node-1"]
    world.restart()

    world.step()

    assert world.incident.vanished_at == NOW


def test_the_incident_of_a_node_of_the_same_name_is_another() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    world.cluster.nodes["node-1"] = a_node(provider_id="i-9")

    world.step()

    assert world.incident.vanished_at == NOW


def test_an_incident_stays_open_while_its_node_cannot_be_read() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    del world.cluster.nodes["node-1"]
    world.cluster.unreadable = frozenset({"node-1"})

    world.step(rounds=2)
    assert world.incident.ended_at is None

    world.cluster.unreadable = frozenset()
    world.step()
    assert world.incident.vanished_at == NOW


def test_an_incident_goes_on_with_the_node_that_takes_over() -> None:
    world = World(
        a_node(
            Phase.REPLACING, record={"remediation": a_remediation(Remedy.REPLACE, ordered_at=NOW)}
        ),
        a_node(Phase.JOINING, name="node-2", replaces="node-1", provider_id="i-2"),
    )

    world.step(rounds=3)

    assert "node-1" not in world.cluster.nodes
    assert "node.vanished" not in world.events.names()


def test_who_does_not_lead_ends_no_incident() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    del world.cluster.nodes["node-1"]
    world.restart(FakeLeadership(requested=0))

    assert world.step() == []
    assert world.incident.ended_at is None


def test_incidents_that_cannot_be_read_are_looked_at_again() -> None:
    world = World(a_node(faults=(a_fault(),)), *healthy_nodes(4, first=2))
    world.step()
    del world.cluster.nodes["node-1"]
    world.calls.failing["incident"] = BackendError("away")
    world.step()
    assert world.wake_at == NOW + AFTER_ERROR

    world.calls.failing.clear()
    world.step()

    assert world.incident.vanished_at == NOW


def test_jobs_are_not_asked_to_leave_a_node_that_a_person_holds() -> None:
    world = World(draining())
    world.cluster.change("node-1", running_jobs=("job",), pause_reason="I am copying its disk")

    assert world.step() == ["incident incident-1"]
    world.cluster.change("node-1", pause_reason="")
    assert world.step() == ["drain node-1"]


# a clock that was ahead


def test_a_machine_that_joined_while_the_clock_was_ahead_is_replaced_if_it_never_reports() -> None:
    ahead = NOW + timedelta(hours=3)
    world = World(a_node(Phase.JOINING, heartbeat_at=None, record={"phase_since": ahead}))

    assert world.step() == []
    assert world.wake_at == NOW + CONFIRMED_AFTER
    world.clock.time = world.wake_at
    assert world.step() == ["put node-1 joining"]
    world.clock.time += POLICY.join_timeout - timedelta(microseconds=1)
    assert world.step() == []
    world.clock.time += timedelta(microseconds=1)

    assert world.step()[0] == "put node-1 quarantined"


# a clock that was behind


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.REBOOTING, Phase.REPLACING])
def test_a_clock_that_is_set_forward_ends_no_wait_for_a_machine(phase) -> None:
    node = a_node(phase, heartbeat_at=None)
    order = a_remediation(ordered_at=NOW, machine=node.machine)
    repair = None if phase is Phase.JOINING else order
    world = World(replace(node, record=replace(node.record, remediation=repair)))
    world.step()

    for _ in range(2):
        world.clock.set_forward(timedelta(hours=9))
        assert world.step() == [f"put node-1 {phase}"]
        assert world.events.reported[-1].ahead == -timedelta(hours=9)
        assert world.step() == []
    timeouts = (POLICY.join_timeout, POLICY.reboot_timeout, POLICY.replace_timeout)
    world.clock.time += max(timeouts)

    assert world.step()


def test_times_are_moved_when_a_full_disk_has_space_again() -> None:
    world = World(a_node(Phase.JOINING, heartbeat_at=None))
    world.step()
    world.clock.set_forward(timedelta(hours=9))
    world.calls.failing["put node-1"] = StorageFull("no space")
    for _ in range(2):
        with pytest.raises(StorageFull):
            world.step()
    world.calls.failing.clear()

    assert world.step() == ["put node-1 joining"]


def test_a_step_while_another_controller_led_moves_no_time() -> None:
    world = World(a_node(Phase.JOINING, heartbeat_at=None))
    world.step()
    world.clock.time += POLICY.join_timeout / 2
    world.clock.set_forward(timedelta(hours=9))

    assert world.step()[0] == "put node-1 quarantined"


def test_time_that_passes_between_two_rounds_counts() -> None:
    world = World(a_node(Phase.JOINING, heartbeat_at=None))
    world.step()
    world.clock.time += POLICY.join_timeout

    assert world.step()[0] == "put node-1 quarantined"


def test_a_record_that_cannot_be_corrected_holds_up_no_other_node() -> None:
    joining = a_node(Phase.JOINING, name="node-2", heartbeat_at=None)
    world = World(a_node(faults=(a_fault(),)), joining)
    world.cluster.change("node-1", faults=())
    world.step()
    world.cluster.change("node-1", faults=(a_fault(),), heartbeat_at=NOW + timedelta(hours=9))
    world.clock.set_forward(timedelta(hours=9))
    world.calls.failing["put node-2"] = BackendError("down")
    world.step()

    assert "put node-1 quarantined" in world.step()


def test_a_deep_check_that_began_while_the_clock_was_ahead_keeps_its_name() -> None:
    ahead = NOW + timedelta(hours=3)
    world = World(a_node(Phase.CHECKING, record={"phase_since": ahead}))

    for _ in range(3):
        assert not any(call.startswith("put") for call in world.step())
        world.clock.time += CONFIRMED_AFTER


def test_a_request_of_a_person_is_not_overwritten_by_a_correction() -> None:
    ahead = NOW + timedelta(hours=3)
    request = a_request(Verb.DEEP_CHECK)
    node = a_node(Phase.JOINING, request=request, heartbeat_at=None, record={"phase_since": ahead})
    world = World(node)

    for _ in range(3):
        assert "put node-1 joining" not in world.step()
        world.clock.time += CONFIRMED_AFTER


def test_many_corrections_leave_time_for_faults() -> None:
    ahead = NOW + timedelta(hours=3)
    count = AT_ONCE + 1
    nodes = [
        a_node(Phase.JOINING, name=f"node-{n}", heartbeat_at=None, record={"phase_since": ahead})
        for n in range(2, count + 2)
    ]
    world = World(a_node(faults=(a_fault(),), heartbeat_at=NOW + CONFIRMED_AFTER), *nodes)
    world.reconciler.step()
    world.cluster.change("node-1", record=a_node().record)
    world.clock.time += CONFIRMED_AFTER

    made = world.step()

    assert len([call for call in made if call.endswith("joining")]) == AT_ONCE
    assert "put node-1 quarantined" in made
    assert world.wake_at == world.clock.time
    assert len([call for call in world.step() if call.endswith("joining")]) == 1
