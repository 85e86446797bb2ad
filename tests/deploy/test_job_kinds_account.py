"""On a real API server: permissions on the kinds of jobs that the values list, and on no others."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from chart import HELM_CHART, Helm
from installation import Installation, until

from holdfast.adapters.kubernetes.client.errors import Forbidden
from holdfast.adapters.kubernetes.jobs.backend import KubernetesJobs
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.settings import JobKindName, KubernetesSettings
from holdfast.apps.clock import SystemClock
from tests.ports.fakes import FakeEvents

NAMESPACE = "few-kinds"
ACCOUNT = "few-holdfast-controller"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WANTED = {
    (verb, part)
    for part, verbs in {"": ("get", "list", "watch", "patch"), "status": ("patch",)}.items()
    for verb in verbs
}
LISTS = ([], ["Job"], ["JobSet", "TrainJob"], ["PyTorchJob", "MPIJob"], list(JobKindName))


@pytest.fixture(scope="module", params=LISTS, ids=lambda kinds: "+".join(kinds) or "none")
def kinds(
    request: pytest.FixtureRequest, installation: Installation, helm: Helm
) -> Iterator[tuple[JobKindName, ...]]:
    """Kinds for which a release is installed."""
    listed = tuple(JobKindName(kind) for kind in request.param)
    target = ("--kubeconfig", installation.plane.kubeconfig(), "--namespace", NAMESPACE)
    value = ", ".join(f'"{kind}"' for kind in listed)
    given = ("--set-json", f"controller.config.kubernetes.job_kinds=[{value}]")
    only = ("--create-namespace", "--set=agent.enabled=false")
    helm.run("install", "few", HELM_CHART, *target, *only, *given)
    yield listed
    helm.run("uninstall", "few", *target)


def allowed(installation: Installation, group: str, resource: str) -> set[tuple[str, str]]:
    """What the account may do with the jobs of a kind in any namespace."""
    found = set()
    for verb in ("get", "list", "watch", "patch", "create", "update", "delete"):
        for part in ("", "status"):
            asked = {"group": group, "resource": resource, "subresource": part, "verb": verb}
            user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
            spec = {"user": user, "resourceAttributes": {**asked, "namespace": "team"}}
            answer = installation.plane.request("POST", REVIEWS, {"spec": spec})
            if answer["status"]["allowed"]:
                found.add((verb, part))
    return found


def test_jobs_of_the_listed_kinds_alone_may_be_read_and_written(
    installation: Installation, kinds: tuple[JobKindName, ...]
) -> None:
    for kind in KINDS:
        group = kind.api_version.rpartition("/")[0]
        wanted = WANTED if kind.kind in kinds else set()
        if wanted and kind.kind == JobKindName.HYPERPOD_PYTORCH_JOB:
            wanted = {*wanted, ("delete", "")}
        until(lambda g=group, k=kind, w=wanted: allowed(installation, g, k.plural) == w)


def test_a_controller_misses_no_permission_on_the_kinds_that_it_manages(
    installation: Installation, kinds: tuple[JobKindName, ...]
) -> None:
    settings = KubernetesSettings(namespace=NAMESPACE, job_kinds=kinds)
    dependencies = Dependencies(
        clock=SystemClock(),
        events=FakeEvents(),
        changed=lambda: None,
        may_act=lambda: False,
        evicted=lambda node, owner: None,
    )
    with ExitStack() as opened:
        api = installation.client(NAMESPACE, ACCOUNT)
        opened.callback(api.close)
        cluster = KubernetesCluster(api, settings, dependencies)
        jobs = KubernetesJobs(api, settings, dependencies, cluster)
        cluster.start()
        opened.callback(cluster.stop)
        jobs.open()
        opened.callback(jobs.close)
        until(lambda: cluster.synced)

        assert jobs.jobs() == ()
        until(lambda: (*cluster.errors, *jobs.errors) == ())
        if not kinds:
            with pytest.raises(Forbidden):
                api.opened("/api/v1/namespaces/default/pods/a/log", {}, timedelta(seconds=1))
