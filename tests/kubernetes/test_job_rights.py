"""What the chart lets the controller do with jobs, of all kinds."""

from contextlib import ExitStack

import pytest
from controlled import is_served
from gangs import Indexed
from machines import Fleet
from real_cluster import until
from test_rights import Right, control, fleet, plane, without  # noqa: F401 - fixtures, too

from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.settings import DEFAULT_JOB_KINDS
from tests.engines.control_plane import ControlPlane
from tests.engines.job_definitions import DEFINITIONS, definition

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ACCOUNT = "system:serviceaccount:holdfast:holdfast-controller"
GROUPS = [
    (kind.api_version.rpartition("/")[0], kind.plural)
    for kind in KINDS
    if kind.kind in DEFAULT_JOB_KINDS
]


@pytest.fixture
def defined(fleet: Fleet) -> Fleet:  # noqa: F811
    """All kinds are there, though nothing runs them."""
    ours = [kind for kind in KINDS if kind.kind != "Job"]
    for kind in ours:
        fleet.api.create(DEFINITIONS, definition(kind))
    for kind in ours:
        until(lambda kind=kind: is_served(fleet.api, f"/apis/{kind.api_version}/{kind.plural}"))
    return fleet


@pytest.mark.parametrize(("group", "resource"), GROUPS, ids=str)
def test_jobs_of_a_kind_may_be_read_stopped_and_failed(
    plane: ControlPlane,  # noqa: F811
    group: str,
    resource: str,
) -> None:
    wanted = [(verb, "") for verb in ("get", "list", "watch", "patch")] + [("patch", "status")]

    refused = []
    for verb, part in wanted:
        requested = {"group": group, "resource": resource, "verb": verb, "namespace": "team"}
        spec = {"user": ACCOUNT, "resourceAttributes": {**requested, "subresource": part}}
        answer = plane.request("POST", REVIEWS, {"spec": spec})
        if not answer["status"]["allowed"]:
            refused.append((verb, part))

    assert refused == []


def test_a_kind_that_may_not_be_read_is_named_with_the_rule_that_is_missing(
    defined: Fleet,
) -> None:
    rights = [Right("list", resource, group) for group, resource in GROUPS]
    with ExitStack() as stack:
        for right in rights:
            stack.enter_context(without(defined.cluster.plane, right))
        defined.start("a")
        controller = control(defined)
        for right in rights:
            until(lambda rule=right.rule: rule in controller.errors + controller.log)
    defined.until_schedulable("a")


@pytest.mark.parametrize("resource", ["jobs", "jobs/status"])
def test_a_job_that_may_not_be_written_goes_on_once_it_may(
    fleet: Fleet,  # noqa: F811
    resource: str,
) -> None:
    right = Right("patch", resource, "batch")
    fleet.start("a", "b")
    job = Indexed(fleet.cluster, fleet.api)
    job.annotations["holdfast.dev/app-max-retry-count"] = "0"
    job.submit()
    with without(fleet.cluster.plane, right):
        controller = control(fleet)
        fleet.until_schedulable("a", "b")
        if resource == "jobs/status":
            job.until_running(1)
            fleet.cluster.nodes.finish(min(job.pods), exit_code=3)
        until(lambda: right.rule in controller.errors + controller.log)

    if resource == "jobs/status":
        until(lambda: job.phase == "failed" and "Failed" in job.conditions)
    else:
        job.until_running(1)
