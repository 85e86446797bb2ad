"""Karpenter and Cluster API, their controllers played, against the real API server."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chart_roles import is_in_force
from clean_slate import DISCOVERY
from provisioned import clusters
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.adapters.providers.settings import ClusterApiSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.apps.controller.config import ControllerConfig
from holdfast.apps.controller.on_kubernetes import connect
from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView
from holdfast.testing import (
    DurableReplaceContract,
    ReplaceContract,
    ReplacedIdentityContract,
)
from tests.engines.api_connection import Refused
from tests.engines.control_plane import ControlPlane
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

CAPI = "cluster.x-k8s.io"
REMEDIATE = f"{CAPI}/remediate-machine"
SPACE = "/apis/cluster.x-k8s.io/v1beta1/namespaces/capi"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
FINALIZER = "example.org/controller"
"""Holds an object that is deleted until its controller has done its part."""

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def provider_id(number: int) -> str:
    return f"aws:///us-west-2a/i-{number:017x}"


def view(number: int) -> NodeView:
    return a_node(name=f"node-{number}", provider_id=provider_id(number))


class Site:
    """A cluster with nodes, and with objects of kinds whose controllers are played."""

    def __init__(self, cluster: Cluster, opened: ExitStack) -> None:
        self.plane = cluster.plane
        self.cluster = cluster
        self._opened = opened

    def get(self, path: str) -> dict[str, Any] | None:
        try:
            return dict(self.plane.request("GET", path))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def items(self, path: str) -> list[dict[str, Any]]:
        found = self.get(path)
        assert found is not None
        return list(found["items"])

    def put(self, path: str, kind: str, name: str, **fields: Any) -> None:
        parts = path.split("/")
        version = "/".join(parts[2:4]) if parts[1] == "apis" else "v1"
        metadata = {"name": name, **fields.pop("metadata", {})}
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
        self.plane.request("POST", path, body)

    def node(self, number: int, **metadata: Any) -> None:
        spec = {"providerID": provider_id(number)}
        self.put("/api/v1/nodes", "Node", f"node-{number}", metadata=metadata, spec=spec)

    def delete(self, path: str) -> None:
        self.plane.request("PATCH", path, {"metadata": {"finalizers": None}})
        if self.get(path) is not None:
            self.plane.request("DELETE", path)

    def kubeconfig_of(self, rules: list[dict[str, Any]]) -> Path:
        """A kubeconfig of an account that may do just that, as soon as it is in force.

        The API server may still grant what another role of that name had, so each has its own.
        """
        name = f"may-{uuid.uuid4().hex[:12]}"
        self.put("/api/v1/namespaces/default/serviceaccounts", "ServiceAccount", name)
        self.put(f"{ROLES}/clusterroles", "ClusterRole", name, rules=rules)
        self.put(
            f"{ROLES}/clusterrolebindings",
            "ClusterRoleBinding",
            name,
            roleRef={"apiGroup": ROLES.split("/")[2], "kind": "ClusterRole", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        )
        role = {"metadata": {}, "rules": rules}
        with self.plane.connect() as api:
            until(lambda: is_in_force(api, role, f"system:serviceaccount:default:{name}"))
        token = self.plane.service_account_token("default", name)
        return self.plane.kubeconfig(name, token)

    def build(self, name: ProviderName, kubeconfig: Path | None = None, **settings: Any) -> Any:
        own = clusters(kubeconfig or self.plane.kubeconfig())
        config = ProviderConfig(replace=name, **settings)
        return build_provider(config, FakeClock(), self._opened.enter_context(own))


class KarpenterSite(Site):
    """Karpenter launches one machine for each that goes."""

    def __init__(self, cluster: Cluster, opened: ExitStack) -> None:
        super().__init__(cluster, opened)
        self.launched = 0
        self.launch()

    def launch(self) -> None:
        self.launched += 1
        self.node(self.launched, labels={"karpenter.sh/nodepool": "gpu"})
        self.claim(self.launched)

    def claim(self, number: int, **status: str) -> None:
        reported = {"nodeName": f"node-{number}", "providerID": provider_id(number), **status}
        name, held = f"gpu-{number}", {"finalizers": [FINALIZER]}
        self.put(CLAIMS, "NodeClaim", name, metadata=held, status=reported)

    def provider(self, kubeconfig: Path | None = None) -> Any:
        return self.build(ProviderName.KARPENTER, kubeconfig)

    def misled(self) -> NodeView:
        """A node that carries the provider ID of another."""
        self.launch()
        return replace(view(1), provider_id=provider_id(2))

    def is_untouched(self) -> bool:
        return self.leaving() == []

    def leaving(self) -> list[str]:
        """The names of the NodeClaims that were deleted."""
        claims = [one["metadata"] for one in self.items(CLAIMS)]
        return [one["name"] for one in claims if "deletionTimestamp" in one]

    def work(self) -> None:
        """What Karpenter does by itself."""
        for name in self.leaving():
            self.delete(f"{CLAIMS}/{name}")
            self.delete(f"/api/v1/nodes/node-{name.removeprefix('gpu-')}")
            self.launch()


class CapiSite(Site):
    """A MachineHealthCheck replaces each machine that is annotated."""

    def __init__(self, cluster: Cluster, opened: ExitStack, *, has_check: bool = True) -> None:
        super().__init__(cluster, opened)
        self.put("/api/v1/namespaces", "Namespace", "capi")
        if has_check:
            self.put(f"{SPACE}/machinehealthchecks", "MachineHealthCheck", "all")
        self.launched = 0
        self.launch()

    def launch(self, **annotations: str) -> None:
        self.launched += 1
        name = f"m-{self.launched}"
        names = {f"{CAPI}/machine": name, f"{CAPI}/cluster-namespace": "capi"}
        self.node(self.launched, annotations=names)
        metadata = {"annotations": annotations, "finalizers": [FINALIZER]}
        spec = {"providerID": provider_id(self.launched)}
        status = {"nodeRef": {"name": f"node-{self.launched}"}}
        self.put(f"{SPACE}/machines", "Machine", name, metadata=metadata, spec=spec, status=status)

    def misled(self) -> NodeView:
        """A node that carries the annotation and the provider ID of another."""
        self.launch()
        annotations = {f"{CAPI}/machine": "m-2"}
        self.plane.request(
            "PATCH", "/api/v1/nodes/node-1", {"metadata": {"annotations": annotations}}
        )
        return replace(view(1), provider_id=provider_id(2))

    def is_untouched(self) -> bool:
        return self.marked() == []

    def provider(
        self, kubeconfig: Path | None = None, *, version: str = "v1beta1", at: Path | None = None
    ) -> Any:
        capi = ClusterApiSettings(version=version, kubeconfig=at)
        return self.build(ProviderName.CLUSTER_API, kubeconfig, cluster_api=capi)

    def marked(self) -> list[str]:
        """The names of the Machines that are to be remediated."""
        machines = [one["metadata"] for one in self.items(f"{SPACE}/machines")]
        return [one["name"] for one in machines if REMEDIATE in one.get("annotations", {})]

    def work(self) -> None:
        """What Cluster API does by itself."""
        for name in self.marked():
            self.delete(f"{SPACE}/machines/{name}")
            self.delete(f"/api/v1/nodes/node-{name.removeprefix('m-')}")
            self.launch()


def definition(group: str, version: str, kind: str, scope: str) -> dict[str, Any]:
    """One that takes objects of any content."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def is_served(plane: ControlPlane, path: str) -> bool:
    try:
        plane.request("GET", path)
    except Refused:
        return False
    return True


def groups(plane: ControlPlane) -> set[str]:
    with plane.connect() as api:
        found = api.request("GET", "/apis", accept=DISCOVERY)["items"]
    return {group["metadata"]["name"] for group in found}


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds of Karpenter and of Cluster API."""
    definitions = (
        definition("karpenter.sh", "v1", "NodeClaim", "Cluster"),
        definition(CAPI, "v1beta1", "Machine", "Namespaced"),
        definition(CAPI, "v1beta1", "MachineHealthCheck", "Namespaced"),
    )
    for one in definitions:
        control_plane.request("POST", DEFINITIONS, one)
    for path in (CLAIMS, f"{SPACE}/machines", f"{SPACE}/machinehealthchecks"):
        until(partial(is_served, control_plane, path))
    yield
    for one in definitions:
        control_plane.request("DELETE", f"{DEFINITIONS}/{one['metadata']['name']}")
    until(lambda: not {"karpenter.sh", CAPI} & groups(control_plane))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def karpenter(kinds: None, cluster: Cluster, opened: ExitStack) -> KarpenterSite:
    return KarpenterSite(cluster, opened)


@pytest.fixture
def capi(kinds: None, cluster: Cluster, opened: ExitStack) -> CapiSite:
    return CapiSite(cluster, opened)


class Harness:
    """The platform around: every machine beyond the first is the successor of its node."""

    node = "node-1"

    def __init__(self, site: KarpenterSite | CapiSite) -> None:
        self._site = site
        self.provider = site.provider()

    def reopened(self) -> Any:
        return self._site.provider()

    def misled(self) -> NodeView:
        return self._site.misled()

    def is_untouched(self) -> bool:
        return self._site.is_untouched()

    def nodes(self) -> tuple[NodeView, ...]:
        others = (
            a_node(name=f"node-{n}", provider_id=provider_id(n), replaces=self.node)
            for n in range(2, self._site.launched + 1)
        )
        return (view(1), *others)

    def settle(self) -> None:
        self._site.work()


class TestKarpenter(ReplaceContract, ReplacedIdentityContract, DurableReplaceContract):
    provider = ProviderName.KARPENTER

    @pytest.fixture
    def harness(self, karpenter: KarpenterSite) -> Harness:
        return Harness(karpenter)


class TestClusterApi(ReplaceContract, ReplacedIdentityContract, DurableReplaceContract):
    provider = ProviderName.CLUSTER_API

    @pytest.fixture
    def harness(self, capi: CapiSite) -> Harness:
        return Harness(capi)


def test_only_the_claim_of_the_node_is_deleted(karpenter: KarpenterSite) -> None:
    karpenter.launch()

    karpenter.provider().replace(view(2), "t/1")

    assert karpenter.leaving() == ["gpu-2"]


def test_a_claim_is_known_by_the_machine_not_by_the_name_of_its_node(
    karpenter: KarpenterSite,
) -> None:
    karpenter.claim(7, nodeName="node-1")

    karpenter.provider().replace(view(1), "t/1")

    assert karpenter.leaving() == ["gpu-1"]


def test_another_machine_under_the_name_of_the_node_is_left_alone(
    karpenter: KarpenterSite,
) -> None:
    before = a_node(name="node-1", provider_id=provider_id(9))

    karpenter.provider().replace(before, "t/1")

    assert karpenter.leaving() == []


def test_a_claim_on_its_way_out_is_left_alone(karpenter: KarpenterSite) -> None:
    rules = [{"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": ["list"]}]
    karpenter.plane.request("DELETE", f"{CLAIMS}/gpu-1")

    karpenter.provider(karpenter.kubeconfig_of(rules)).replace(view(1), "t/1")

    assert karpenter.leaving() == ["gpu-1"]


def test_a_node_of_unknown_machine_is_found_by_its_name(karpenter: KarpenterSite) -> None:
    karpenter.launch()

    karpenter.provider().replace(a_node(name="node-2", provider_id=""), "t/1")

    assert karpenter.leaving() == ["gpu-2"]


def test_a_node_that_karpenter_did_not_make_is_not_its_to_replace(
    karpenter: KarpenterSite,
) -> None:
    karpenter.node(8)

    with pytest.raises(ProviderError, match="node-8 was not created by Karpenter"):
        karpenter.provider().replace(view(8), "t/1")


def test_karpenter_cannot_reboot_and_says_who_could(karpenter: KarpenterSite) -> None:
    with pytest.raises(ProviderError, match=r'"karpenter" cannot reboot.*provider\.reboot'):
        karpenter.provider().reboot(view(1), "t/1")


@pytest.mark.parametrize(
    ("verbs", "missing"),
    [(["get"], "list nodeclaims"), (["list"], "delete nodeclaims")],
)
def test_a_missing_permission_over_claims_is_named(
    karpenter: KarpenterSite, verbs: list[str], missing: str
) -> None:
    rules = [{"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": verbs}]
    kubeconfig = karpenter.kubeconfig_of(rules)

    with pytest.raises(ProviderError, match=rf"not permitted to {missing}\.karpenter\.sh: grant"):
        karpenter.provider(kubeconfig).replace(view(1), "t/1")


def test_the_permissions_of_the_guide_are_enough_for_karpenter(karpenter: KarpenterSite) -> None:
    rules = [
        {
            "apiGroups": ["karpenter.sh"],
            "resources": ["nodeclaims"],
            "verbs": ["list", "delete"],
        },
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]
    provider = karpenter.provider(karpenter.kubeconfig_of(rules))

    provider.replace(view(1), "t/1")
    provider.replace(view(9), "t/2")

    assert karpenter.leaving() == ["gpu-1"]


def test_only_the_machine_of_the_node_is_annotated(capi: CapiSite) -> None:
    capi.launch()

    capi.provider().replace(view(2), "t/1")

    assert capi.marked() == ["m-2"]


def test_a_node_whose_name_went_to_another_machine_has_been_replaced(capi: CapiSite) -> None:
    capi.provider().replace(a_node(name="node-1", provider_id=provider_id(9)), "t/1")

    assert capi.marked() == []


def test_a_machine_on_its_way_out_is_left_alone(capi: CapiSite) -> None:
    capi.plane.request("DELETE", f"{SPACE}/machines/m-1")

    capi.provider().replace(view(1), "t/1")

    assert capi.marked() == []


def test_a_machine_or_node_that_is_gone_has_been_replaced(capi: CapiSite) -> None:
    capi.launch()
    capi.delete(f"{SPACE}/machines/m-1")
    capi.delete("/api/v1/nodes/node-2")

    capi.provider().replace(view(1), "t/1")
    capi.provider().replace(view(2), "u/1")

    assert capi.marked() == []


@pytest.mark.parametrize("name", ["skip-remediation", "paused"])
def test_what_keeps_a_machine_from_remediation_is_named(capi: CapiSite, name: str) -> None:
    capi.launch(**{f"{CAPI}/{name}": ""})

    with pytest.raises(ProviderError, match=rf"Machine capi/m-2 of node-2 .*{name}: remove it"):
        capi.provider().replace(view(2), "t/1")

    assert capi.marked() == []


def test_without_a_health_check_nobody_would_heed_the_annotation(
    kinds: None, cluster: Cluster, opened: ExitStack
) -> None:
    site = CapiSite(cluster, opened, has_check=False)
    site.put(SPACE.replace("/capi", "/default/machinehealthchecks"), "MachineHealthCheck", "other")

    with pytest.raises(ProviderError, match="there is no MachineHealthCheck in capi"):
        site.provider().replace(view(1), "t/1")

    assert site.marked() == []


@pytest.mark.parametrize("annotation", ["machine", "cluster-namespace"])
def test_a_node_that_cluster_api_did_not_make_is_not_its_to_replace(
    capi: CapiSite, annotation: str
) -> None:
    both = {f"{CAPI}/machine": "m-1", f"{CAPI}/cluster-namespace": "capi"}
    del both[f"{CAPI}/{annotation}"]
    capi.node(8, annotations=both)

    with pytest.raises(ProviderError, match=f"lacks the annotation {CAPI}/{annotation}"):
        capi.provider().replace(view(8), "t/1")


def test_a_version_that_is_not_served_is_reported(capi: CapiSite) -> None:
    with pytest.raises(ProviderError, match=r"see provider\.cluster_api"):
        capi.provider(version="v1beta9").replace(view(1), "t/1")


def test_machines_may_be_in_another_cluster(capi: CapiSite) -> None:
    both = capi.plane.kubeconfig()
    only_nodes = capi.kubeconfig_of([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}])

    with pytest.raises(ProviderError, match=rf"not permitted to get machines\.{CAPI}"):
        capi.provider(only_nodes).replace(view(1), "t/1")
    capi.provider(only_nodes, at=both).replace(view(1), "t/1")

    assert capi.marked() == ["m-1"]


@pytest.mark.parametrize(
    ("verbs", "missing"),
    [
        (["list", "patch"], f"get machines.{CAPI}"),
        (["get", "patch"], f"list machinehealthchecks.{CAPI}"),
        (["get", "list"], f"patch machines.{CAPI}"),
    ],
)
def test_a_missing_permission_over_machines_is_named(
    capi: CapiSite, verbs: list[str], missing: str
) -> None:
    rules = [
        {"apiGroups": [CAPI], "resources": ["machines", "machinehealthchecks"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]

    with pytest.raises(ProviderError, match=f"not permitted to {missing}: grant it"):
        capi.provider(capi.kubeconfig_of(rules)).replace(view(1), "t/1")


def test_the_permissions_of_the_guide_are_enough_for_cluster_api(capi: CapiSite) -> None:
    rules = [
        {"apiGroups": [CAPI], "resources": ["machines"], "verbs": ["get", "patch"]},
        {"apiGroups": [CAPI], "resources": ["machinehealthchecks"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]

    capi.provider(capi.kubeconfig_of(rules)).replace(view(1), "t/1")

    assert capi.marked() == ["m-1"]


def test_a_controller_orders_from_the_cluster_that_it_looks_after(
    karpenter: KarpenterSite, opened: ExitStack
) -> None:
    config = ControllerConfig(
        provider=ProviderConfig(replace=ProviderName.KARPENTER),
        kubernetes=KubernetesSettings(kubeconfig=karpenter.plane.kubeconfig()),
    )
    platform = connect(config, lambda: None, acts=False)
    opened.callback(platform.close)

    platform.provider.replace(view(1), "t/1")

    assert karpenter.leaving() == ["gpu-1"]
