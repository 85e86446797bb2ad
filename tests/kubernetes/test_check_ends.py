"""What the end of a pod says about a check, and so about its node."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from controlled import NAMESPACE, Controlled, controlled, installed
from real_cluster import until

from holdfast.adapters.kubernetes.checks.check_ends import check_end
from holdfast.adapters.kubernetes.settings import CheckSettings, KubernetesSettings
from holdfast.adapters.telemetry.check_summary import summary_text
from holdfast.model.node_checks import CheckSummary
from holdfast.model.nodes import Phase
from tests.ports.builders import a_record

__all__ = ["installed"]

CHECK = CheckSettings(image="checker:1")
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:05Z"}}
FAILED = summary_text(CheckSummary(summary="failed: disk: it is slow"))


def ended(code: int, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message}}


def containers(**states: Any) -> list[dict[str, Any]]:
    common = {"image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return [{**common, "name": name.replace("_", "-"), "state": s} for name, s in states.items()]


@pytest.fixture
def one(installed, cluster) -> Iterator[Controlled]:
    with controlled(cluster, KubernetesSettings(check=CHECK)) as one:
        one.join("node-1")
        one.seen("node-1")
        yield one


def end(one: Controlled, **status: Any) -> None:
    """A check begins, and its kubelet then reports a status of its pod."""
    record = a_record(Phase.CHECKING)
    one.cluster.put("node-1", record)
    one.cluster.start_check("node-1", record.phase_since.isoformat(), ())
    until(lambda: [pod for pod in one.api.list(PODS) if pod["status"].get("phase") == "Running"])
    (pod,) = one.api.list(PODS)
    one.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})


@pytest.mark.parametrize(
    ("code", "message", "passed", "detail"),
    [(0, "", True, ""), (1, FAILED, False, "failed: disk: it is slow")],
)
def test_a_check_has_ended_although_a_container_beside_it_runs_on(
    one, code, message, passed, detail
) -> None:
    end(one, containerStatuses=containers(check=ended(code, message), proxy=RUNNING))

    check = one.seen("node-1", lambda view: view.check).check

    assert (check.passed, check.detail) == (passed, detail)
    assert abs((datetime.now(UTC) - check.ended_at).total_seconds()) < 60


def test_the_failure_of_a_container_beside_the_check_is_no_failure_of_the_node(one) -> None:
    end(one, phase="Failed", containerStatuses=containers(a_proxy=ended(1), check=ended(0)))
    until(lambda: any(job["status"].get("failed") for job in one.api.list(JOBS)))

    assert one.seen("node-1", lambda view: view.check).check.passed


def test_a_check_that_was_evicted_is_no_failure_of_the_node(one) -> None:
    why = {"reason": "Evicted", "message": "The node was low on resource: memory."}
    end(one, phase="Failed", **why, containerStatuses=containers(check=ended(1, FAILED)))
    until(lambda: any(job["status"].get("failed") for job in one.api.list(JOBS)))

    view = one.seen("node-1", lambda view: "could not be run" in view.check_pending)

    assert view.check is None
    lost = "its pod was lost: Evicted: The node was low on resource: memory."
    assert view.check_pending == f"it could not be run ({lost})"


# Whose end counts

TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}


def a_pod(owner: str = "j", *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"name": "p", "uid": "p"}
    about["ownerReferences"] = [{"kind": "Job", "uid": owner, "controller": True}]
    if deleted:
        about["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    return {"metadata": about, "status": status}


@pytest.mark.parametrize(
    ("pods", "status"),
    [
        ([], None),
        ([a_pod(containerStatuses=containers(check=ended(1)))], 1),
        ([a_pod(containerStatuses=containers(check=RUNNING))], None),
        ([a_pod(containerStatuses=containers(a_proxy=ended(1), check=RUNNING))], None),
        ([a_pod(containerStatuses=containers(a_proxy=ended(0), check=ended(1)))], 1),
        ([a_pod(containerStatuses=containers(check=ended(1)), deleted=True)], None),
        ([a_pod(containerStatuses=containers(check=ended(0)), deleted=True)], 0),
        ([a_pod(containerStatuses=containers(check=ended(1)), conditions=[TARGET])], None),
        ([a_pod(containerStatuses=containers(check=ended(1)),
                conditions=[{**TARGET, "status": "False"}])], 1),
        ([a_pod(containerStatuses=containers(check=ended(1)), reason="Terminated")], None),
        ([a_pod("before", containerStatuses=containers(check=ended(137))),
          a_pod(containerStatuses=containers(check=ended(0)))], 0),
        ([a_pod("before", containerStatuses=containers(check=ended(1)))], None),
    ],
)  # fmt: skip
def test_only_a_check_that_ended_by_itself_has_an_exit_code(pods, status) -> None:
    assert check_end(pods, "j", NOW, 0.0).status == status
