"""The JobSet controller at work, with its webhooks."""

import base64
import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from real_cluster import until

from holdfast.testing.control_plane import ControlPlane, Refused
from tools.control_plane import module_files

_CONFIG = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"
_MODULE = "sigs.k8s.io/jobset"


def run_jobset(plane: ControlPlane, controller: Path, binaries: Mapping[str, Path]) -> None:
    """Its webhooks have the API server's certificate, and are called by address."""
    files = module_files("jobset", _MODULE) / "config" / "components"
    folder = plane.folder / "jobset"
    folder.mkdir()
    shutil.copy(plane.certificate, folder / "tls.crt")
    shutil.copy(plane.certificate.with_suffix(".key"), folder / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
    }
    config = folder / "config.yaml"
    config.write_text(_CONFIG + yaml.safe_dump(settings), encoding="utf-8")
    manifests = folder / "manifests.json"
    hooks = yaml.safe_load_all((files / "webhook/manifests.yaml").read_text(encoding="utf-8"))
    crd = yaml.safe_load((files / "crd/bases/jobset.x-k8s.io_jobsets.yaml").read_text("utf-8"))
    kubectl = [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
    _create(kubectl, manifests, [crd])
    plane.run("jobset", controller, "--config", config,
              "--metrics-bind-address=0", "--health-probe-bind-address=0")  # fmt: skip
    _create(kubectl, manifests, [_addressed(one, port, plane.certificate) for one in hooks])
    until(lambda: _is_ready(plane))


def _create(kubectl: list[str | Path], file: Path, items: list[Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    file.write_text(json.dumps(listed), encoding="utf-8")
    subprocess.run([*kubectl, "create", "--filename", file], check=True)


def _addressed(hooks: dict[str, Any], port: int, certificate: Path) -> dict[str, Any]:
    bundle = base64.b64encode(certificate.read_bytes()).decode()
    for hook in hooks["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return hooks


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
