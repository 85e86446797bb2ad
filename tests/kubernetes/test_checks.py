"""Deep health checks as Jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from controlled import NAMESPACE, controlled, installed
from real_cluster import until

from holdfast.adapters.kubernetes.checks.check_jobs import (
    PairIds,
    check_job,
    job_name,
    job_object,
    pair_objects,
)
from holdfast.adapters.kubernetes.checks.deep_checks import DeepChecks
from holdfast.adapters.kubernetes.settings import CheckSettings, KubernetesSettings
from holdfast.adapters.telemetry.check_summary import summary_text
from holdfast.apps.checks.config import CheckConfig
from holdfast.model.deep_checks import RESULT_VARIABLE
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.node_checks import CheckSummary
from holdfast.model.nodes import Pairing, Phase
from tests.ports.builders import a_record

__all__ = ["installed"]

CHECK = CheckSettings(image="checker:1", command=("check", "--deep"), resources={"x.com/gpu": "8"})
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@pytest.fixture
def one(installed, cluster):
    with controlled(cluster, KubernetesSettings(check=CHECK)) as one:
        one.join("node-1")
        one.seen("node-1")
        yield one


def begin(one, **changes) -> str:
    """A check begins as the engine begins it; the name of its pod."""
    record = a_record(Phase.CHECKING, **changes)
    one.cluster.put("node-1", record)
    one.cluster.start_check("node-1", record.phase_since.isoformat(), ())
    one.cluster.start_check("node-1", record.phase_since.isoformat(), ())
    until(lambda: running(one))
    return running(one)[0]


def running(one) -> list[str]:
    pods = one.api.list(PODS)
    return [p["metadata"]["name"] for p in pods if p["status"].get("phase") == "Running"]


def test_a_check_that_ends_well_was_passed(one) -> None:
    pod = begin(one)
    assert one.view("node-1").check is None
    assert len(list(one.api.list(JOBS))) == 1
    assert one.api.get(f"{PODS}/{pod}")["spec"]["nodeName"] == "node-1"

    one.woken.clear()
    one.real.nodes.finish(pod, namespace=NAMESPACE)
    check = one.seen("node-1", lambda view: view.check).check

    assert check.passed
    assert one.woken.is_set()
    assert abs((datetime.now(UTC) - check.ended_at).total_seconds()) < 60


def test_a_check_that_ends_badly_has_failed_and_says_how(one) -> None:
    pod = begin(one)
    one.real.nodes.finish(pod, namespace=NAMESPACE, exit_code=3)

    check = one.seen("node-1", lambda view: view.check).check

    assert not check.passed
    assert check.detail == "exited with code 3"


def reported(one) -> list[str]:
    return [event.error for event in one.events.reported if isinstance(event, CallFailed)]


@pytest.mark.parametrize("exit_code", [2, 70, 126, 127, 128, 137])
def test_a_check_that_could_not_be_run_or_was_killed_is_no_fault_of_the_node(
    one, exit_code
) -> None:
    pod = begin(one)
    one.real.nodes.finish(pod, namespace=NAMESPACE, exit_code=exit_code, message="no such option")

    until(lambda: one.view("node-1") and reported(one))
    view = one.view("node-1")

    assert view.check is None
    assert reported(one) == [f"exited with {exit_code}: no such option; retrying in a minute"]


@contextmanager
def checks(one, **changes) -> Iterator[DeepChecks]:
    made = DeepChecks(one.api, NAMESPACE, CHECK, lambda: None, one.events, **changes)
    for reflector in made.reflectors:
        reflector.start()
    try:
        yield made
    finally:
        for reflector in made.reflectors:
            reflector.stop()


CHECK_ID = "2025-01-01T00:00:00+00:00"
UNDER_CHECK = a_record(Phase.CHECKING, phase_since=datetime.fromisoformat(CHECK_ID))


def state(made: DeepChecks):
    made.refresh(datetime.now(UTC))
    return made.state("node-1", UNDER_CHECK)


def result(made: DeepChecks):
    return state(made).result


def test_a_check_that_could_not_be_run_is_made_again_after_a_while(one) -> None:
    with checks(one, again=timedelta(seconds=2)) as made:
        made.begin("node-1", CHECK_ID)
        until(lambda: running(one))
        (first,) = one.api.list(JOBS)
        one.real.nodes.finish(running(one)[0], namespace=NAMESPACE, exit_code=2)
        until(lambda: result(made) is None and reported(one))
        assert state(made).pending.startswith("it could not be run (exited with 2")
        made.begin("node-1", CHECK_ID)
        assert [job["metadata"]["uid"] for job in one.api.list(JOBS)] == [first["metadata"]["uid"]]

        def is_made_again() -> bool:
            made.begin("node-1", CHECK_ID)
            uids = {job["metadata"]["uid"] for job in one.api.list(JOBS)}
            return bool(uids - {first["metadata"]["uid"]})

        until(is_made_again)
        until(lambda: running(one))
        one.real.nodes.finish(running(one)[0], namespace=NAMESPACE, exit_code=1)
        until(lambda: result(made))

    assert not result(made).passed


@pytest.mark.parametrize(("exit_code", "passed"), [(0, True), (1, False), (2, None), (137, None)])
def test_a_test_between_nodes_has_failed_if_it_says_so_and_not_if_it_was_killed(
    one, exit_code, passed
) -> None:
    began = datetime.now(UTC)
    pairing = Pairing(since=began, partner="node-2", began_at=began)
    record = a_record(Phase.CHECKING, pairing=pairing)
    ids = PairIds("node-1", "node-2", began.isoformat())
    one.join("node-2")
    with checks(one) as made:
        made.start_pair(ids, "10.0.0.2")
        pods = {"batch.kubernetes.io/job-name": ids.measures}
        until(lambda: running_of(one, pods))
        (pod,) = running_of(one, pods)
        one.real.nodes.finish(pod, namespace=NAMESPACE, exit_code=exit_code, message="the end")
        until(lambda: made.pair_outcome("node-1", record))
        outcome = made.pair_outcome("node-1", record)

    assert (outcome.partner, outcome.passed) == ("node-2", passed)
    assert outcome.detail == ("" if passed else "the end")


def running_of(one, labels: dict[str, str]) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in one.api.list(PODS)
        if pod["status"].get("phase") == "Running"
        and labels.items() <= pod["metadata"]["labels"].items()
    ]


def test_a_check_reports_what_it_measured_whether_it_was_passed_or_not(one) -> None:
    pod = begin(one)
    said = CheckSummary(summary="failed: disk: it is slow", measured={"disk_mb_per_s": 8.5})
    one.real.nodes.finish(pod, namespace=NAMESPACE, exit_code=1, message=summary_text(said))

    check = one.seen("node-1", lambda view: view.check).check

    assert (check.detail, check.measured) == (said.summary, said.measured)


def test_the_result_is_that_of_the_present_phase(one) -> None:
    pod = begin(one)
    one.real.nodes.finish(pod, namespace=NAMESPACE)
    one.seen("node-1", lambda view: view.check)

    later = a_record(Phase.CHECKING)
    one.cluster.put("node-1", replace(later, phase_since=later.phase_since.replace(year=2025)))

    assert one.view("node-1").check is None


def test_a_check_that_nobody_waits_for_is_ended(one) -> None:
    begin(one)
    one.view("node-1")
    assert running(one)
    one.cluster.put("node-1", a_record())

    until(lambda: one.view("node-1") and not list(one.api.list(JOBS)))


def test_without_an_image_there_is_no_check(installed, cluster) -> None:
    with (
        controlled(cluster) as one,
        pytest.raises(BackendError, match=r"set kubernetes\.check\.image"),
    ):
        one.cluster.start_check("node-1", "c", ())


def test_a_check_has_one_try_and_tolerates_our_taint() -> None:
    job = job_object("node-1", "c", replace(CHECK, service_account="checker"))

    assert job["spec"]["backoffLimit"] == 0
    pod = job["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["restartPolicy"] == "Never"
    assert pod["serviceAccountName"] == "checker"
    (container,) = pod["containers"]
    assert container["image"] == "checker:1"
    assert container["command"] == ["check", "--deep"]
    assert container["resources"] == {"limits": {"x.com/gpu": "8"}}
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment == {"NODE_NAME": "node-1", RESULT_VARIABLE: "/dev/termination-log"}
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert "automountServiceAccountToken" not in pod
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_check_without_an_account_of_its_own_has_no_token() -> None:
    pod = job_object("n", "c", CHECK)["spec"]["template"]["spec"]

    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False


OWN = replace(CHECK, command=("holdfast", "check", "node"))


@pytest.mark.parametrize(
    ("settings", "is_restricted"),
    [
        (CHECK, False),
        (OWN, True),
        (replace(CHECK, restricted=True), True),
        (replace(OWN, restricted=False), False),
        (CheckSettings(image="checker:1"), True),
    ],
)
def test_a_check_of_holdfasts_own_has_few_rights(
    settings: CheckSettings, *, is_restricted: bool
) -> None:
    pod = job_object("n", "c", settings)["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert ("securityContext" in container) is is_restricted
    if is_restricted:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        names = {one["name"]: one["emptyDir"] for one in pod["volumes"]}
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        assert set(mounts.values()) == set(names)
        assert container["workingDir"] in mounts
        assert str(CheckConfig().disk) in mounts


def test_a_test_between_nodes_has_few_rights() -> None:
    ids = PairIds("node-1", "node-2", "c")
    for job in pair_objects(ids, "10.0.0.2", "t", CheckSettings(image="checker:1")):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_api_server_takes_a_restricted_check(one) -> None:
    job = job_object("node-1", "c", OWN)

    made = one.api.create(JOBS, job)

    [container] = made["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    one.api.delete(f"{JOBS}/{job['metadata']['name']}", propagation="Background")


def test_each_check_of_each_node_has_a_job_of_its_own() -> None:
    names = {job_name(node, check) for node in ("a", "b") for check in ("1", "2")}

    assert len(names) == 4
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    ("status", "passed"),
    [
        ({}, None),
        ({"active": 1}, None),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, None),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, None),
        ({"failed": 1}, False),
        ({"failed": 1, "conditions": [{"type": "FailureTarget", "status": "True"}]}, False),
    ],
)
def test_a_job_is_over_when_it_says_so(status, passed) -> None:
    assert check_job({"metadata": {"name": "j"}, "status": status}).passed is passed
