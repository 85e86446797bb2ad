"""Deep health checks as Jobs."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from controlled import NAMESPACE, controlled, installed
from real_cluster import until

from holdfast.adapters.kubernetes.checks import check_job, job_name, job_object
from holdfast.adapters.kubernetes.settings import CheckSettings, KubernetesSettings
from holdfast.adapters.telemetry.check_summary import summary_text
from holdfast.model.deep_checks import RESULT_VARIABLE, CheckSummary
from holdfast.model.errors import BackendError
from holdfast.model.nodes import Phase
from holdfast.testing.builders import a_record

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
    one.cluster.begin_check("node-1", record.phase_since.isoformat(), ())
    one.cluster.begin_check("node-1", record.phase_since.isoformat(), ())
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
    assert check.detail == "it ended with exit code 3"


def test_a_check_tells_what_it_measured_whether_it_was_passed_or_not(one) -> None:
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
        pytest.raises(BackendError, match="set the image of the check"),
    ):
        one.cluster.begin_check("node-1", "c", ())


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
    assert "serviceAccountName" not in job_object("n", "c", CHECK)["spec"]["template"]["spec"]


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
