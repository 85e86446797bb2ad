"""Kueue at work, with the webhooks of its own kinds and of those of its jobs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from real_cluster import until

from tests.engines.control_plane import ControlPlane, Refused
from tests.engines.definitions import define
from tests.engines.webhooks import addressed, certified, create
from tools.control_plane import module_files

QUEUE = "team"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"

_CONFIG = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
_GROUP = "kueue.x-k8s.io"
_DEVICE = "nvidia.com/gpu"


def run_kueue(
    plane: ControlPlane, program: Path, binaries: Mapping[str, Path], kinds: Sequence[str]
) -> None:
    """It looks after jobs of these kinds, as it calls them, and has room for six nodes."""
    files = module_files("kueue", "sigs.k8s.io/kueue") / "config" / "components"
    folder, port = certified(plane, "kueue")
    settings = {
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": plane.host, "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "integrations": {"frameworks": list(kinds)},
    }
    config = folder / "config.yaml"
    config.write_text(_CONFIG + yaml.safe_dump(settings), encoding="utf-8")
    kubectl = [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
    define(plane, files / "crd" / "bases")
    # It will have certificates of its own, though it serves with ours.
    create(kubectl, folder, list(_home()))
    plane.run("kueue", program, "--config", config, "--feature-gates=VisibilityOnDemand=false")
    text = (files / "webhook/manifests.yaml").read_text(encoding="utf-8")
    hooks = [_only(one, kinds) for one in yaml.safe_load_all(text)]
    create(kubectl, folder, [addressed(plane, one, port) for one in hooks])
    until(lambda: _is_ready(plane))
    create(kubectl, folder, list(_queues()))


def _only(hooks: dict[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    """Those of Kueue's own kinds, and of these."""
    names = tuple(f"-{kind.rpartition('/')[2]}" for kind in kinds)
    paths = ((one, one["clientConfig"]["service"]["path"]) for one in hooks["webhooks"])
    kept = [one for one, path in paths if "-kueue-x-k8s-io-" in path or path.endswith(names)]
    name = f"of-{hooks['metadata']['name']}"  # another than Kueue looks for, to certify it itself
    return {**hooks, "metadata": {"name": name}, "webhooks": kept}


def _home() -> Iterator[dict[str, Any]]:
    namespace, secret = "kueue-system", "kueue-webhook-server-cert"
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    about = {"name": secret, "namespace": namespace}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": about}


def _queues() -> Iterator[dict[str, Any]]:
    flavor, queue = {"name": "node"}, {"name": "all"}
    resources = [{"name": _DEVICE, "nominalQuota": 48}]
    group = {"coveredResources": [_DEVICE], "flavors": [{**flavor, "resources": resources}]}
    yield _object("ResourceFlavor", flavor)
    yield _object("ClusterQueue", queue, namespaceSelector={}, resourceGroups=[group])
    yield _object("LocalQueue", {"name": QUEUE, "namespace": "default"}, clusterQueue="all")


def _object(kind: str, metadata: dict[str, str], **spec: Any) -> dict[str, Any]:
    version = f"{_GROUP}/v1beta1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _is_ready(plane: ControlPlane) -> bool:
    """Whether a flavor is let through the webhooks."""
    collection = f"/apis/{_GROUP}/v1beta1/resourceflavors?dryRun=All"
    try:
        plane.request("POST", collection, _object("ResourceFlavor", {"name": "probe"}))
    except Refused:
        return False
    return True
