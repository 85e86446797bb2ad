"""The nodes of a real cluster: what is written, what is seen, what is put right."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from controlled import GROUP, Controlled, controlled, installed
from real_cluster import until

from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.apps.clock import SystemClock
from holdfast.decisions.policy import RemediationPolicy
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.kit.quota import Quota
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.health import Remedy
from holdfast.model.names import HOLD, RECORD, REPLACES, Labels
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import a_fault, a_record, a_remediation
from tests.ports.fakes import Calls, FakeProvider

__all__ = ["installed"]

HEALTH = Labels().node_health_status
PENDING_REBOOT = "UnschedulablePendingReboot"
PENDING_REPLACEMENT = "UnschedulablePendingReplacement"
TAINTED = ["Unschedulable:NoSchedule"]
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STATE = "/api/v1/namespaces/holdfast/configmaps/holdfast-state"


@pytest.fixture
def one(installed, cluster):
    with controlled(cluster) as one:
        yield one


def leaving(node_view, *, ago=timedelta(seconds=5), **changes):
    """The record of a node whose replacement was ordered."""
    since = datetime.now(UTC) - ago
    remediation = a_remediation(Remedy.REPLACE, ordered_at=since, machine=node_view.machine)
    return a_record(Phase.REPLACING, phase_since=since, remediation=replace(remediation, **changes))


def account(one, verbs: str) -> str:
    """The token of a service account that may use these verbs on nodes, and all on the rest."""
    run = one.real.kubectl
    run("create", "serviceaccount", "limited")
    run("create", "clusterrole", "limited", f"--verb={verbs}", "--resource=nodes")
    run("create", "clusterrole", "rest", "--verb=*", "--resource=configmaps,jobs.batch,pods,leases")
    for role in ("limited", "rest"):
        who = f"--clusterrole={role}", "--serviceaccount=default:limited"
        run("create", "clusterrolebinding", role, *who)
    return one.real.plane.service_account_token("default", "limited")


# who is looked after


def test_only_nodes_with_an_agent_are_looked_after(one) -> None:
    one.real.nodes.join("without")
    one.join("with")

    assert one.seen("with").record.phase is Phase.JOINING
    assert one.view("without") is None


def test_only_nodes_that_the_selector_lets_through_are_looked_after(installed, cluster) -> None:
    with controlled(cluster, KubernetesSettings(selector=f"{GROUP}=p5")) as one:
        one.join("ours", group="p5")
        one.join("theirs", group="c5")

        one.seen("ours")
        assert one.view("theirs") is None


def test_a_joining_node_is_heard_once_its_agent_speaks_in_its_present_boot(one) -> None:
    one.real.nodes.join("node-1")
    one.report("node-1", boot_id="an earlier one")
    assert one.seen("node-1").heartbeat_at is None

    one.report("node-1")

    assert one.seen("node-1", lambda view: view.heartbeat_at) is not None


def test_faults_come_and_go_with_the_report(one) -> None:
    one.join("node-1")
    fault = a_fault()

    one.report("node-1", fault)
    assert one.seen("node-1", lambda view: view.faults).faults == (fault,)

    one.report("node-1")
    one.seen("node-1", lambda view: not view.faults)


# marks


def test_marks_follow_the_record_in_one_write(one) -> None:
    one.join("node-1")
    one.seen("node-1")

    one.cluster.put("node-1", a_record(Phase.QUARANTINED))
    assert one.marks("node-1") == (PENDING_REBOOT, TAINTED, False)
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    assert one.marks("node-1") == (PENDING_REBOOT, TAINTED, True)
    one.cluster.put("node-1", a_record())
    assert one.marks("node-1") == ("Schedulable", [], False)


def test_a_write_that_lost_a_race_is_made_again_on_what_is_there_now(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.stop()  # from here on the copy is old
    one.real.kubectl("taint", "node", "node-1", "theirs=x:NoSchedule")

    one.cluster.put("node-1", a_record(Phase.QUARANTINED))

    keys = {taint["key"] for taint in one.node("node-1")["spec"]["taints"]}
    assert keys == {"theirs", HEALTH}


@pytest.mark.parametrize("is_watching", [True, False])
@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.REPLACING])
def test_a_record_that_another_controller_has_changed_is_not_overwritten(
    one, phase, is_watching
) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record(Phase.QUARANTINED))
    late = leaving(one.seen("node-1")) if phase is Phase.REPLACING else a_record(phase)
    if not is_watching:
        one.cluster.stop()
    with controlled(one.real) as other:
        other.seen("node-1")
        other.cluster.put("node-1", a_record(Phase.SCHEDULABLE))
    if is_watching:
        until(lambda: "schedulable" in one.cluster._nodes.state("node-1").record)

    with pytest.raises(BackendError, match="its record has changed since it was read"):
        one.cluster.put("node-1", late)

    assert one.marks("node-1") == ("Schedulable", [], False)
    if is_watching:
        one.cluster.snapshot()
        one.cluster.put("node-1", late)
        assert one.marks("node-1") != ("Schedulable", [], False)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.REPLACING])
def test_who_leads_no_more_writes_no_record(one, phase) -> None:
    one.join("node-1")
    record = leaving(one.seen("node-1")) if phase is Phase.REPLACING else a_record(phase)
    one.acts = False

    with pytest.raises(BackendError, match="another replica has become the leader"):
        one.cluster.put("node-1", record)

    assert RECORD not in one.node("node-1")["metadata"]["annotations"]
    assert "leaving.node-1" not in str([*one.api.list(STATE.rpartition("/")[0])])


def test_a_new_leader_sees_what_its_watch_has_not_delivered(one) -> None:
    """Its watch ended, and what the last leader wrote since is not in its caches."""
    one.join("node-1")
    one.seen("node-1")
    reflector = one.cluster._nodes.reflector
    late = reflector._copy
    late.apply = lambda *_: False
    with controlled(one.real) as other:
        other.seen("node-1")
        other.cluster.put("node-1", a_record(Phase.DRAINING))
    time.sleep(1)
    assert one.view("node-1").record.phase is not Phase.DRAINING

    one.elected += 1

    assert one.view("node-1").record.phase is Phase.DRAINING


def test_a_second_write_is_not_made_when_nothing_changes(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record())
    version = one.node("node-1")["metadata"]["resourceVersion"]

    one.cluster.put("node-1", a_record())

    assert one.node("node-1")["metadata"]["resourceVersion"] == version


def test_a_record_is_not_written_on_another_machine_of_the_same_name(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.real.nodes.leave("node-1")
    one.join("node-1")
    until(lambda: one.cluster._nodes.state("node-1") is not None)

    with pytest.raises(BackendError):
        one.cluster.put("node-1", a_record(Phase.QUARANTINED))

    assert RECORD not in one.node("node-1")["metadata"]["annotations"]


def test_nothing_is_written_about_a_node_that_is_gone(one) -> None:
    with pytest.raises(BackendError, match="no-such-node no longer exists"):
        one.cluster.put("no-such-node", a_record())
    with pytest.raises(BackendError, match="no-such-node not replaced"):
        one.cluster.put("no-such-node", a_record(Phase.REPLACING))


def test_what_others_change_about_our_marks_is_put_right(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    one.real.kubectl("taint", "node", "node-1", f"{HEALTH}-")

    until(lambda: one.view("node-1") is not None and one.marks("node-1")[1] == TAINTED)


def test_who_may_not_act_puts_nothing_right(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    one.acts = False
    one.real.kubectl("taint", "node", "node-1", f"{HEALTH}-")
    until(lambda: HEALTH not in str(one.cluster._nodes.state("node-1").taints))

    one.view("node-1")

    assert one.marks("node-1")[1] == []


def test_an_unknown_label_is_reported_once_and_put_right(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record())
    one.label("node-1", "Broken", HEALTH)

    until(lambda: one.view("node-1") and one.marks("node-1")[0] == "Schedulable")

    (reported,) = [event for event in one.events.reported if event.name == "node.input_rejected"]
    assert (reported.node, reported.key, reported.value) == ("node-1", HEALTH, "Broken")


# requests


def test_a_label_asks_and_is_distinguished_from_our_status(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record())

    one.real.kubectl("label", "node", "node-1", f"{HEALTH}={PENDING_REPLACEMENT}", "--overwrite")

    request = one.seen("node-1", lambda view: view.request).request
    assert request.verb is Verb.REPLACE
    one.cluster.put(
        "node-1", a_record(Phase.QUARANTINED, remediation=a_remediation(Remedy.REPLACE))
    )
    assert one.view("node-1").request is None


def test_a_request_of_a_label_that_is_not_taken_up_is_cleared_by_our_status(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record())
    one.label("node-1", PENDING_REBOOT, HEALTH)
    request = one.seen("node-1", lambda view: view.request).request

    one.cluster.clear_request("node-1", request.id)

    assert one.view("node-1").request is None
    assert one.marks("node-1")[0] == "Schedulable"


def test_a_hold_is_seen(one) -> None:
    one.join("node-1")
    one.annotate("node-1", **{HOLD: "wait for me"})

    one.seen("node-1", lambda view: view.pause_reason == "wait for me")


# nodes that leave


def test_a_node_that_leaves_is_remembered_when_its_object_is_gone(one) -> None:
    one.join("node-1", provider_id="aws:///z/i-1")
    record = leaving(one.seen("node-1"))
    one.cluster.put("node-1", record)
    one.real.nodes.leave("node-1")

    view = one.seen("node-1", lambda view: view.heartbeat_at is None)

    assert (view.record, view.provider_id) == (record, "aws:///z/i-1")
    again = replace(record, remediation=replace(record.remediation, repairs=7))
    one.cluster.put("node-1", again)
    assert one.view("node-1").record == again


def test_what_leaves_is_remembered_before_the_node_says_so(one) -> None:
    one.join("node-1")
    record = leaving(one.seen("node-1"))
    limited = Controlled(one.real, token=account(one, "get,list,watch"))
    limited.start()

    with pytest.raises(BackendError, match=r"may not patch nodes in the whole cluster; give it"):
        limited.cluster.put("node-1", record)
    limited.stop()

    assert RECORD not in one.node("node-1")["metadata"]["annotations"]
    assert "leaving.node-1" in one.api.get(STATE)["data"]


def test_a_new_node_of_the_group_takes_over_once_and_for_good(one) -> None:
    one.join("node-1")
    one.join("other", group="c5")
    one.cluster.put("node-1", leaving(one.seen("node-1")))
    one.real.nodes.leave("node-1")
    one.real.nodes.join("new-c5", labels={GROUP: "c5"})
    one.real.nodes.join("new-p5", labels={GROUP: "p5"})

    assert one.seen("new-p5").replaces == "node-1"
    assert one.view("new-c5") is None
    assert one.node("new-p5")["metadata"]["annotations"][REPLACES] == "node-1"

    one.real.nodes.join("another-p5", labels={GROUP: "p5"})
    until(lambda: one.cluster._nodes.state("another-p5") is not None)
    assert one.view("another-p5") is None


def test_a_replacement_is_given_to_nobody_before_that_is_recorded(one) -> None:
    one.join("node-1")
    one.cluster.put("node-1", leaving(one.seen("node-1")))
    one.real.nodes.leave("node-1")
    one.acts = False
    limited = Controlled(one.real, token=account(one, "get,list,watch"))
    limited.start()
    one.join("new")

    until(lambda: limited.cluster._nodes.state("new") is not None)
    assert limited.view("new") is None
    assert any(isinstance(event, CallFailed) for event in limited.events.reported)
    limited.stop()
    one.acts = True
    assert one.seen("new").replaces == "node-1"


def test_nobody_takes_over_while_another_leads(one) -> None:
    one.join("node-1")
    one.cluster.put("node-1", leaving(one.seen("node-1")))
    one.acts = False
    one.real.nodes.join("new", labels={GROUP: "p5"})
    until(lambda: one.cluster._nodes.state("new") is not None)

    assert one.view("new") is None
    assert REPLACES not in one.node("new")["metadata"].get("annotations", {})


def test_a_machine_that_comes_back_by_the_same_name_goes_on_with_the_record(one) -> None:
    one.join("node-1", provider_id="aws:///z/i-1")
    record = leaving(one.seen("node-1"))
    one.cluster.put("node-1", record)
    one.real.nodes.leave("node-1")
    one.join("node-1", provider_id="aws:///z/i-2")

    view = one.seen("node-1", lambda view: view.provider_id == "aws:///z/i-2")
    assert view.record == record

    one.cluster.put("node-1", a_record(Phase.JOINING, remediation=record.remediation))
    assert one.view("node-1").record.phase is Phase.JOINING
    until(lambda: one.view("node-1") and not one.cluster._memory.read().leaving)


def test_a_retired_node_loses_its_object_and_does_not_come_back(one) -> None:
    one.join("node-1")
    one.cluster.put("node-1", leaving(one.seen("node-1")))
    one.api.patch(f"{NODES}/node-1", {"metadata": {"finalizers": ["example.com/slow"]}})

    one.cluster.retire("node-1")
    assert one.view("node-1") is None
    with controlled(one.real) as other:
        assert other.view("node-1") is None
    assert one.node("node-1")["metadata"]["deletionTimestamp"]

    one.api.patch(f"{NODES}/node-1", {"metadata": {"finalizers": None}})
    until(lambda: one.cluster._nodes.state("node-1") is None)
    until(lambda: one.view("node-1") is None and not one.cluster._memory.read().data)


def test_retiring_spares_another_machine_of_the_same_name(one) -> None:
    one.join("node-1", provider_id="aws:///z/i-1")
    one.cluster.put("node-1", leaving(one.seen("node-1")))
    one.real.nodes.leave("node-1")
    one.join("node-1", provider_id="aws:///z/i-2")
    one.seen("node-1", lambda view: view.provider_id == "aws:///z/i-2")

    one.cluster.retire("node-1")

    assert one.seen("node-1").record.phase is Phase.JOINING
    assert "deletionTimestamp" not in one.node("node-1")["metadata"]


# bad input


def test_a_node_with_a_damaged_record_is_left_alone_and_reported(one) -> None:
    one.join("node-1")
    one.annotate("node-1", **{RECORD: '{"phase": "limbo"}'})

    until(lambda: "node-1" in one.cluster.snapshot().unreadable)

    assert one.view("node-1") is None
    assert [event.key for event in one.events.reported] == [RECORD]
    one.annotate("node-1", **{RECORD: None})
    one.seen("node-1")


def test_entries_of_the_state_that_cannot_be_read_are_reported(one) -> None:
    one.cluster.remember_offender("i-1")
    one.api.patch(STATE, {"data": {"breaker": "{", "leaving.x": "[]"}})

    until(lambda: one.cluster.snapshot() and len(one.events.reported) == 2)

    view = one.cluster.snapshot()
    assert (view.nodes, view.breaker.tripped_at, view.offenders) == ((), None, {"i-1"})


def test_a_cluster_that_was_not_read_yet_says_so(installed, cluster) -> None:
    fresh = Controlled(cluster)
    with pytest.raises(BackendError, match="not synced yet"):
        fresh.cluster.snapshot()
    fresh.api.close()


def test_a_missing_permission_is_named(one) -> None:
    stranger = Controlled(one.real, token=account(one, "get"))
    stranger.cluster.start()

    until(lambda: stranger.cluster.errors)

    with pytest.raises(BackendError, match=r"may not list nodes in the whole cluster; give it"):
        stranger.cluster.snapshot()
    stranger.stop()


# silence


def test_a_node_that_the_node_controller_has_given_up_was_heard_at_its_last_lease(one) -> None:
    one.join("node-1")
    one.seen("node-1")
    one.cluster.put("node-1", a_record())
    until(lambda: any(lease["metadata"]["name"] == "node-1" for lease in one.api.list(LEASES)))
    one.real.nodes.hang("node-1")
    renewed = datetime(2026, 1, 2, tzinfo=UTC)
    lease = {"spec": {"renewTime": renewed.isoformat(timespec="microseconds")}}
    one.api.patch(f"{LEASES}/node-1", lease)
    unknown = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-03T00:00:00Z"}]
    one.real.plane.request("PATCH", f"{NODES}/node-1/status", {"status": {"conditions": unknown}})

    view = one.seen("node-1", lambda view: view.answered_at == renewed)
    assert view.heartbeat_at is not None
    assert not view.is_ready


# the whole course


def test_the_engine_carries_a_node_from_fault_to_release(one) -> None:
    calls = Calls()
    ports = NodePorts(
        cluster=one.cluster,
        provider=FakeProvider(calls),
        incidents=one.incidents,
        events=one.events,
        clock=SystemClock(),
    )
    policy = RemediationPolicy(max_unavailable=Quota(count=1))
    engine = NodeReconciler(ports, policy)
    one.join("node-1")

    def reaches(phase) -> None:
        def is_there() -> bool:
            engine.step()
            view = one.view("node-1")
            return view is not None and view.record.phase is phase

        until(is_there)

    reaches(Phase.SCHEDULABLE)
    one.report("node-1", a_fault(since=datetime.now(UTC)))
    reaches(Phase.REBOOTING)
    assert [call.split()[0] for call in calls.made] == ["reboot"]
    one.real.nodes.reboot("node-1")
    one.report("node-1")
    reaches(Phase.SCHEDULABLE)

    assert one.marks("node-1") == ("Schedulable", [], False)
    (incident,) = one.incidents.list_incidents()
    assert incident.remedy == "reboot"
    assert incident.released_at is not None
