"""The JobSet controller at work, with its webhooks."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.engines.api_connection import Refused
from tests.engines.control_plane import ControlPlane
from tests.engines.definitions import define
from tests.engines.waiting import until
from tests.engines.webhooks import addressed, certified, create
from tools.control_plane import module_files

_CONFIG = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"
_MODULE = "sigs.k8s.io/jobset"


def run_jobset(plane: ControlPlane, controller: Path, binaries: Mapping[str, Path]) -> None:
    """Its webhooks have the API server's certificate, and are called by address."""
    files = module_files("jobset", _MODULE) / "config" / "components"
    folder, port = certified(plane, "jobset")
    settings = {
        "webhook": {"host": plane.host, "port": port, "certDir": str(folder)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
    }
    config = folder / "config.yaml"
    config.write_text(_CONFIG + yaml.safe_dump(settings), encoding="utf-8")
    hooks = yaml.safe_load_all((files / "webhook/manifests.yaml").read_text(encoding="utf-8"))
    kubectl: list[str | Path] = [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
    define(plane, files / "crd/bases/jobset.x-k8s.io_jobsets.yaml")
    start_jobset(plane, controller)
    create(kubectl, folder, [addressed(plane, one, port) for one in hooks])
    until(lambda: _is_ready(plane))


def start_jobset(plane: ControlPlane, controller: Path) -> None:
    """Once more, after ``run_jobset``."""
    plane.run("jobset", controller, "--config", plane.folder / "jobset" / "config.yaml",
              "--metrics-bind-address=0", "--health-probe-bind-address=0")  # fmt: skip


def _is_ready(plane: ControlPlane) -> bool:
    """Whether a set is let through the webhooks."""
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe"},
        "spec": {"replicatedJobs": []},
    }
    collection = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?dryRun=All"
    try:
        plane.request("POST", collection, body)
    except Refused:
        return False
    return True
