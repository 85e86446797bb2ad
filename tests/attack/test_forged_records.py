"""Nobody but the controller writes the records with which it decides about nodes."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from attacked_agent import eventually

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
)
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.model.names import JOB_RECORD, JOB_STATUS, RECORD, RECORD_OF, REQUEST, Labels
from tests.engines.control_plane import PROGRAMS, Built, ControlPlane
from tests.engines.job_definitions import DEFINITIONS, definition

DEPLOY = Path(__file__).parents[2] / "deploy"
TEAM = "team"
SWITCH = Labels().enable_job_auto_resume
FORGED = '{"phase": "stopping", "failure": {"kind": "hardware", "node": "victim"}}'
KUBELETS = "system:nodes"
HEALTH = Labels().node_health_status
NODE = {
    "metadata": {
        "name": "own",
        "labels": {HEALTH: "Schedulable"},
        "annotations": {RECORD: "{}", "example.com/any": "1"},
    }
}
REFUSAL = "only the controller of Holdfast writes"

of_every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.kind)


class Cluster:
    """A control plane with the plain manifests, and clients of its accounts."""

    def __init__(self, plane: ControlPlane, kubectl: Path) -> None:
        self.plane = plane
        self._kubectl = kubectl

    def install(self) -> None:
        for part in ("helm/holdfast/crds", "kubernetes/holdfast.yaml"):
            self.kubectl("apply", "--server-side", "--filename", str(DEPLOY / part))
        for kind in KINDS:
            if not kind.api_version.startswith("batch/"):
                self.plane.request("POST", DEFINITIONS, definition(kind))
        self.plane.request("POST", "/api/v1/nodes", NODE)
        reading = ("--verb=get", "--resource=nodes/status")  # which kubectl does before a patch
        self.kubectl("create", "clusterrole", "status", *reading)
        for role in ("system:node", "status"):
            binding = (f"--clusterrole={role}", f"--group={KUBELETS}")
            self.kubectl("create", "clusterrolebinding", f"kubelets-{role}", *binding)
        self.kubectl("create", "namespace", TEAM)
        self.kubectl("create", "serviceaccount", "mallory", "--namespace", TEAM)
        # More than any role for users grants: also the status of jobs.
        resources = [f"{kind.plural}.{kind.api_version.partition('/')[0]}" for kind in KINDS]
        jobs = ",".join(f"{one},{one}/status" for one in resources)
        role = ("create", "role", "jobs", "--namespace", TEAM, "--verb=*")
        self.kubectl(*role, f"--resource={jobs}")
        binding = ("create", "rolebinding", "jobs", "--namespace", TEAM, "--role=jobs")
        # The plain manifests grant the controller nothing on kinds that are off by default.
        controller = "--serviceaccount=holdfast:holdfast-controller"
        self.kubectl(*binding, f"--serviceaccount={TEAM}:mallory", controller)

    def kubectl(self, *arguments: str) -> None:
        command = [self._kubectl, "--kubeconfig", self.plane.kubeconfig(), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def as_kubelet(self, node: str, *arguments: str) -> str:
        """Run kubectl as root on the node can; returns the refusal, empty if there was none."""
        identity = (f"--as=system:node:{node}", f"--as-group={KUBELETS}")
        command = [self._kubectl, "--kubeconfig", self.plane.kubeconfig(), *identity, *arguments]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        return done.stderr if done.returncode else ""

    def client(self, namespace: str, account: str) -> Api:
        token = self.plane.service_account_token(namespace, account)
        server = Server(url=self.plane.url, ca_file=self.plane.certificate, token=lambda: token)
        return Api(server, user_agent="tests", field_manager="tests")


@pytest.fixture(scope="module")
def cluster(built: Built) -> Iterator[Cluster]:
    programs = built(*PROGRAMS, "kubectl")
    with ControlPlane(programs) as plane:
        cluster = Cluster(plane, programs["kubectl"])
        cluster.install()
        with closing(cluster.client(TEAM, "mallory")) as mallory:
            for kind in KINDS:
                eventually(lambda kind=kind: is_protected(mallory, kind))
        probe = ("annotate", "node", "own", "--dry-run=server", f"{REQUEST}=reboot")
        eventually(lambda: "a kubelet may" in cluster.as_kubelet("own", *probe))
        yield cluster


def is_protected(mallory: Api, kind: JobKind) -> bool:
    """Whether jobs of the kind exist and the policy is in force: a moment after both are stored."""
    path = f"{collection(kind)}/probe"
    try:
        mallory.create(collection(kind), job(kind, "probe"))
    except NotFound:
        return False
    except AlreadyExists:
        pass
    try:
        mallory.patch(path, annotations({JOB_STATUS: "probe"}))
    except ApiError as error:
        return REFUSAL in str(error)
    mallory.patch(path, annotations({JOB_STATUS: None}))
    return False


@pytest.fixture
def mallory(cluster: Cluster) -> Iterator[Api]:
    """Somebody who may do everything with the jobs of one namespace."""
    mallory = cluster.client(TEAM, "mallory")
    yield mallory
    mallory.close()


@pytest.fixture
def controller(cluster: Cluster) -> Iterator[Api]:
    controller = cluster.client("holdfast", "holdfast-controller")
    yield controller
    controller.close()


def annotations(values: dict[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": values}}


def replace_with(api: Api, path: str, forged: dict[str, str | None], part: str = "") -> Any:
    """Replace an object, or a part of it, by one with more annotations."""
    while True:
        whole = api.get(path)
        whole["metadata"]["annotations"] |= forged
        with suppress(Conflict):  # the controller of Jobs has written meanwhile
            return api.replace(f"{path}{part}", whole)


def collection(kind: JobKind) -> str:
    return f"/apis/{kind.api_version}/namespaces/{TEAM}/{kind.plural}"


def job(kind: JobKind, name: str, **about: Any) -> dict[str, Any]:
    container = {"name": "train", "image": "train"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **about},
        "spec": {"suspend": True, **({"template": template} if kind.kind == "Job" else {})},
    }


def record_of(one: dict[str, Any], kind: JobKind) -> str | None:
    """The record that the controller finds on a job."""
    return kind.trimmed(one, Labels()).record


@of_every_kind
def test_users_cannot_write_the_record_of_their_job(
    mallory: Api, controller: Api, kind: JobKind
) -> None:
    path = f"{collection(kind)}/mine"
    uid = mallory.create(collection(kind), job(kind, "mine"))["metadata"]["uid"]
    genuine: dict[str, str | None] = {JOB_RECORD: "{}", RECORD_OF: uid, JOB_STATUS: "attempt 1"}
    forged: dict[str, str | None] = {JOB_RECORD: FORGED, RECORD_OF: uid, JOB_STATUS: "attempt 9"}

    for key, value in forged.items():
        with pytest.raises(ApiError, match=f"{REFUSAL} {key}"):
            mallory.patch(path, annotations({key: value}))
    controller.patch(path, annotations(genuine))
    for key in (JOB_RECORD, JOB_STATUS):
        with pytest.raises(ApiError, match=f"{REFUSAL} {key}"):
            mallory.patch(path, annotations({key: forged[key]}))
    with pytest.raises(ApiError, match=REFUSAL):
        replace_with(mallory, path, forged)

    assert record_of(mallory.get(path), kind) == "{}"


@of_every_kind
def test_users_cannot_write_the_record_of_their_job_with_its_status(
    mallory: Api, controller: Api, kind: JobKind
) -> None:
    """The API server stores annotations with the status of a Job, and ignores those of others."""
    path = f"{collection(kind)}/reported"
    uid = mallory.create(collection(kind), job(kind, "reported"))["metadata"]["uid"]
    genuine: dict[str, str | None] = {JOB_RECORD: "{}", RECORD_OF: uid, JOB_STATUS: "attempt 1"}
    forged: dict[str, str | None] = {JOB_RECORD: FORGED, RECORD_OF: uid, JOB_STATUS: "attempt 9"}
    controller.patch(path, annotations(genuine))

    for attack in (
        lambda: mallory.patch(f"{path}/status", annotations(forged)),
        lambda: replace_with(mallory, path, forged, part="/status"),
    ):
        try:
            answer = str(attack()["metadata"]["annotations"])
        except ApiError as error:
            answer = str(error)
        assert REFUSAL in answer or answer == str(genuine)

    assert mallory.get(path)["metadata"]["annotations"] == genuine


@of_every_kind
@pytest.mark.parametrize("owner", [None, "chosen"])
def test_a_record_that_a_job_is_created_with_does_not_count(
    mallory: Api, kind: JobKind, owner: str | None
) -> None:
    name = f"born-{owner or 'bare'}"
    values = {JOB_RECORD: FORGED} | ({RECORD_OF: owner} if owner else {})

    made = mallory.create(
        collection(kind), job(kind, name, uid=owner or "chosen", annotations=values)
    )

    assert made["metadata"]["annotations"] == values
    assert record_of(made, kind) is None
    claim = annotations({RECORD_OF: made["metadata"]["uid"]})
    with pytest.raises(ApiError, match=REFUSAL):
        mallory.patch(f"{collection(kind)}/{name}", claim)


@of_every_kind
def test_users_may_change_the_requests_of_their_job_and_remove_its_record(
    mallory: Api, controller: Api, kind: JobKind
) -> None:
    path = f"{collection(kind)}/plain"
    uid = mallory.create(collection(kind), job(kind, "plain"))["metadata"]["uid"]
    own: dict[str, str | None] = {JOB_RECORD: "{}", RECORD_OF: uid, JOB_STATUS: "attempt 1"}
    controller.patch(path, annotations(own))

    mallory.patch(path, annotations({SWITCH: "false", "holdfast.dev/app-max-retry-count": "1"}))
    mallory.replace(path, mallory.get(path) | {"status": {}})
    assert record_of(mallory.get(path), kind) == "{}"
    mallory.patch(path, annotations(dict.fromkeys(own)))
    mallory.delete(path)


def test_users_cannot_change_the_policy_or_the_records_of_nodes(mallory: Api) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    for path in (f"{policies}/holdfast-controller-job-records", "/api/v1/nodes/victim"):
        with pytest.raises(Forbidden):
            mallory.patch(path, annotations({"holdfast.dev/record": FORGED}))


@pytest.mark.parametrize("part", [(), ("--subresource=status",)], ids=["node", "status"])
@pytest.mark.parametrize(
    ("verb", "change"),
    [
        ("annotate", f"{RECORD}={FORGED}"),
        ("annotate", f"{RECORD}-"),
        ("annotate", f"{REQUEST}=replace"),
        ("label", f"{HEALTH}=UnschedulablePendingReplacement"),
        ("label", f"{HEALTH}-"),
        ("label", f"{Labels().deep_health_check_status}=InProgress"),
    ],
)
def test_a_kubelet_cannot_write_the_record_of_its_node_or_a_request(
    cluster: Cluster, verb: str, change: str, part: tuple[str, ...]
) -> None:
    """Its replacements count in the limit for all nodes, and a request as that of a person."""
    before = cluster.plane.request("GET", "/api/v1/nodes/own")["metadata"]

    if part:
        key, _, value = change.rstrip("-").partition("=")
        field = "annotations" if verb == "annotate" else "labels"
        body = json.dumps({"metadata": {field: {key: value or None}}})
        told = cluster.as_kubelet(
            "own", "patch", "node", "own", "--type=merge", *part, "--patch", body
        )
    else:
        told = cluster.as_kubelet("own", verb, "node", "own", "--overwrite", change)

    assert "a kubelet may" in told
    after = cluster.plane.request("GET", "/api/v1/nodes/own")["metadata"]
    assert (after["annotations"], after["labels"]) == (before["annotations"], before["labels"])


def test_a_kubelet_may_write_everything_else_of_its_node(cluster: Cluster) -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    body = json.dumps(ready)

    assert (
        cluster.as_kubelet("own", "annotate", "node", "own", "--overwrite", "example.com/any=2")
        == ""
    )
    assert cluster.as_kubelet("own", "label", "node", "own", "example.com/zone=a") == ""
    assert (
        cluster.as_kubelet("own", "patch", "node", "own", "--subresource=status", "-p", body) == ""
    )


@pytest.mark.parametrize(
    ("name", "annotations", "is_refused"),
    [
        ("plain", {}, False),
        ("forged", {RECORD: FORGED}, True),
        ("asking", {REQUEST: "replace"}, True),
    ],
)
def test_a_kubelet_registers_its_node_without_a_record(
    cluster: Cluster, tmp_path: Path, name: str, annotations: dict[str, str], *, is_refused: bool
) -> None:
    about = {"name": name, "labels": {HEALTH: "Schedulable"}, "annotations": annotations}
    file = tmp_path / "node.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": about}))

    told = cluster.as_kubelet(name, "create", "--filename", str(file))

    assert ("a kubelet may not change the annotations" in told) == is_refused
    assert bool(told) == is_refused
