"""AWS's clients of EKS, with endpoint variables alone, against a real Kubernetes API server.

The API server asks Holdfast's API who has signed a token (webhook token authentication).
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from controlled import CRD

from holdfast.api.aws_services import REVIEW_PATH
from holdfast.kit.serial import to_plain
from holdfast.model.names import RECORD
from holdfast.model.nodes import NodeRecord, Phase
from tests.apps.served_api import Served, serving, with_keys
from tests.engines.control_plane import API_SERVER, ControlPlane
from tests.engines.hyp_command import provide_hyp
from tests.engines.ports import free_port

REGION = "us-west-2"  # a client with an old default would sign calls of STS for another region
ARN = f"arn:aws:eks:{REGION}:000000000000:cluster/lab"
PREFIX = "sagemaker.amazonaws.com"
LEFT_BY_HYP = ("/tmp/kubeconfig_lab", "/tmp/hyperpod_current_context.json")
GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "use-hyp.md"
PERMISSIONS = "$ kubectl create clusterrolebinding "
"""Beginning of the guide's commands that an administrator of the cluster runs."""


@dataclass
class Clients:
    plane: ControlPlane
    served: Served
    home: Path
    programs: Path

    def environment(self, key: int) -> dict[str, str]:
        found = self.served.key(key)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "AWS_ACCESS_KEY_ID": found["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": found["secret_access_key"],
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL_SAGEMAKER": self.served.url,
            "AWS_ENDPOINT_URL_STS": self.served.url,
            "AWS_ENDPOINT_URL_EKS": self.served.url,
            "HTTPS_PROXY": "http://127.0.0.1:9",  # no telemetry of hyp
            "NO_PROXY": "127.0.0.1",
        }

    def run(self, *argv: str | Path, key: int = 0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=self.environment(key),
            cwd=self.home,
        )


def _node(plane: ControlPlane, name: str) -> None:
    labels = {
        "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
        f"{PREFIX}/node-health-status": "Schedulable",
        f"{PREFIX}/cluster-name": "lab",
    }
    record = json.dumps(
        to_plain(NodeRecord(phase=Phase.SCHEDULABLE, phase_since=datetime.now(UTC)))
    )
    metadata = {"name": name, "labels": labels, "annotations": {RECORD: record}}
    gpus = {"nvidia.com/gpu": "8"}
    status = {"allocatable": gpus, "capacity": gpus}
    plane.request("POST", "/api/v1/nodes", {"metadata": metadata, "spec": {}, "status": status})


def permit(kubectl: Path, plane: ControlPlane) -> None:
    """Run the commands of the guide that give permissions."""
    lines = [line.strip() for line in GUIDE.read_text(encoding="utf-8").splitlines()]
    commands = [line.split()[2:] for line in lines if line.startswith(PERMISSIONS)]
    assert len(commands) == 2
    for command in commands:
        subprocess.run([kubectl, "--kubeconfig", plane.kubeconfig(), *command], check=True)


@pytest.fixture(scope="module")
def clients(
    binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clients]:
    folder, home = tmp_path_factory.mktemp("eks"), tmp_path_factory.mktemp("home")
    port = free_port()
    review = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "holdfast",
        "clusters": [
            {"name": "api", "cluster": {"server": f"http://127.0.0.1:{port}{REVIEW_PATH}"}}
        ],
        "users": [{"name": "none", "user": {}}],
        "contexts": [{"name": "holdfast", "context": {"cluster": "api", "user": "none"}}],
    }
    (folder / "review.yaml").write_text(json.dumps(review), encoding="utf-8")
    flags = [
        f"--authentication-token-webhook-config-file={folder / 'review.yaml'}",
        "--authentication-token-webhook-version=v1",
    ]
    with ControlPlane(binaries, flags={API_SERVER: flags}) as plane:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        plane.request("POST", crds, yaml.safe_load(CRD.read_text(encoding="utf-8")))
        for name in ("a", "b"):
            _node(plane, name)
        permit(binaries["kubectl"], plane)
        config = with_keys(
            folder / "api.toml",
            f'region = "{REGION}"\nname = "lab"\n[kubernetes]\nendpoint = "{plane.url}"\n'
            f'certificate_authority = "{plane.certificate}"\n',
        )
        where = ["--platform", "kubernetes", "--kubeconfig", str(plane.kubeconfig())]
        with serving(config, "--listen", str(port), *where) as served:
            yield Clients(plane, served, home, binaries["kubectl"].parent)
    for left in LEFT_BY_HYP:
        Path(left).unlink(missing_ok=True)


def test_kubectl_logs_in_with_a_key_of_the_role(clients: Clients) -> None:
    added = clients.run("aws", "eks", "update-kubeconfig", "--name", "lab")
    names = clients.run("kubectl", "get", "nodes", "-o", "name")
    me = json.loads(clients.run("kubectl", "auth", "whoami", "-o", "json").stdout)
    view = clients.run("kubectl", "get", "nodes", key=1)

    assert added.returncode == 0, added.stderr
    assert names.stdout.split() == ["node/a", "node/b"], names.stderr
    assert me["status"]["userInfo"]["username"] == "arn:aws:iam::000000000000:user/operate"
    assert {"holdfast.dev:view", "holdfast.dev:operate", "holdfast.dev:admin"} <= {
        *me["status"]["userInfo"]["groups"]
    }
    assert 'User "arn:aws:iam::000000000000:user/view" cannot list resource' in view.stderr


def test_a_token_for_another_cluster_is_rejected(clients: Clients) -> None:
    tokens = [
        json.loads(clients.run("aws", "eks", "get-token", "--cluster-name", name).stdout)
        for name in ("lab", "other")
    ]
    accepted, refused = (
        clients.run(
            "kubectl",
            "--kubeconfig",
            clients.plane.kubeconfig(f"eks-{number}", one),
            "get",
            "nodes",
        )
        for number, one in enumerate(token["status"]["token"] for token in tokens)
    )

    assert accepted.returncode == 0, accepted.stderr
    assert "You must be logged in to the server (Unauthorized)" in refused.stderr


def test_hyp_connects_to_a_cluster_and_shows_it(clients: Clients) -> None:
    hyp = provide_hyp()
    listed = clients.run(hyp, "list-cluster")
    chosen = clients.run(hyp, "set-cluster-context", "--cluster-name", "lab")
    context = clients.run(hyp, "get-cluster-context")
    shown = clients.run(hyp, "describe", "cluster", "lab")

    [cluster] = json.loads(listed.stdout)
    assert cluster == {
        "Cluster": "lab",
        "Instances": [
            {
                "InstanceType": "ml.p5.48xlarge",
                "TotalNodes": 2,
                "AcceleratorDevicesAvailable": 16,
                "NodeHealthStatus=Schedulable": 2,
                "DeepHealthCheckStatus=Passed": "N/A",
            }
        ],
    }
    assert chosen.returncode == 0, chosen.stderr
    assert ARN in context.stdout
    assert "InService" in shown.stdout
    assert ARN in shown.stdout
