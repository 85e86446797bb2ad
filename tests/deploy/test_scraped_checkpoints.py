"""A real Prometheus scrapes the watch of a job's saves, as the guide configures it."""

import base64
import gzip
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import HELM_CHART, Helm

from tests.engines.control_plane import PROGRAMS, Built, ControlPlane, Refused
from tests.engines.definitions import until_defined
from tests.engines.ports import free_port
from tests.engines.prometheus_server import PrometheusServer, prometheus_server
from tests.engines.waiting import until
from tools.control_plane import module_files

GUIDE = Path(__file__).parents[2] / "docs/howto/verify-checkpoints.md"
OPERATOR = "prometheus-operator"
PORT = "20260"
FOLDER = "/fsx/llama/ckpt"
NAMESPACE = "training"
NEWEST = "holdfast_checkpoint_newest_verified_timestamp_seconds"
OVERDUE = "HoldfastCheckpointOverdue"
_BY_RELOADER = {"$(SHARD)": "0", "$(POD_NAME)": "prometheus-all-0"}
"""Variables that the operator's sidecar replaces in the pod of Prometheus."""
AT_ONCE = {"scrape_interval": "1s", "evaluation_interval": "1s"}
TRAIN = (sys.executable, "-m", "holdfast.apps.demo.train_numpy", "--hidden", "8", "--batch", "8")


def guide() -> list[str]:
    """The YAML of the section about metrics."""
    text = GUIDE.read_text(encoding="utf-8").partition("### Metrics and the alert")[2]
    return re.findall(r"```yaml\n(.*?)```", text.partition("\n### ")[0], re.DOTALL)


def save(folder: Path, steps: int) -> None:
    """Train up to a step, with a checkpoint every 20."""
    more = ("--steps", str(steps), "--checkpoint-every", "20", "--checkpoint-dir", str(folder))
    subprocess.run([*TRAIN, *more], check=True, capture_output=True, timeout=120)
    (folder / "final.json").unlink()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A directory with three checkpoints, saved a minute apart, an hour ago."""
    folder = tmp_path / "ckpt"
    save(folder, 60)
    for number, path in enumerate(sorted(folder.iterdir())):
        at = time.time() - 3600 + 60 * number
        os.utime(path, (at, at))
    return folder


@contextmanager
def running(argv: Sequence[str], **environment: str) -> Iterator[None]:
    with subprocess.Popen(argv, env={**os.environ, **environment}) as process:
        try:
            yield
        finally:
            process.kill()


def holdfast(*argv: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *argv]


def scraped(server: PrometheusServer) -> Mapping[str, str]:
    """The labels of the time of the newest good checkpoint, once it is known."""
    until(lambda: server.query(NEWEST))
    [labels] = server.query(NEWEST)
    return dict(labels)


def expect_alert_until_saved(server: PrometheusServer, folder: Path) -> None:
    """The alert fires for saves of an hour ago, and ends with the next save."""
    until(lambda: OVERDUE in server.firing())
    summary = server.firing()[OVERDUE]["summary"]
    assert re.fullmatch(rf"No good checkpoint in {folder} for 5[0-9]m .*s", summary)
    save(folder, 80)
    until(lambda: OVERDUE not in server.firing())
    bad = "holdfast_checkpoint_verifications_total{result='bad'}"
    until(lambda: list(server.query(bad).values()) == [0.0])  # none while a scrape takes too long
    until(lambda: [(one["health"], one["lastError"]) for one in server.targets()] == [("up", "")])


def test_the_scrape_configuration_of_the_guide_works(
    built: Built, saved: Path, tmp_path: Path
) -> None:
    port = str(free_port())
    text = guide()[0].replace(f'"node1:{PORT}", "node2:{PORT}"', f'"127.0.0.1:{port}"')
    config = yaml.safe_load(text)
    assert config["rule_files"] == ["alerts.yaml"]
    alerts = HELM_CHART / "prometheus" / "alerts.yaml"
    (tmp_path / "alerts.yaml").write_bytes(alerts.read_bytes())

    with (
        running(holdfast("checkpoint", "watch", str(saved), "--listen", f":{port}")),
        prometheus_server(
            built("prometheus")["prometheus"], {**config, "global": AT_ONCE}, tmp_path
        ) as server,
    ):
        labels = scraped(server)
        assert labels == {
            "directory": str(saved), "job": "holdfast-checkpoints", "instance": f"127.0.0.1:{port}"
        }  # fmt: skip
        expect_alert_until_saved(server, saved)


class OperatedCluster:
    """A control plane with the Prometheus operator; no kubelet runs its pods."""

    def __init__(self, plane: ControlPlane, programs: Mapping[str, Path]) -> None:
        self.plane = plane
        self._kubectl = [programs["kubectl"], "--kubeconfig", plane.kubeconfig()]
        files = module_files(OPERATOR, "github.com/prometheus-operator/prometheus-operator")
        crds = files / "example" / "prometheus-operator-crd"
        self.kubectl("create", "--filename", str(crds))  # PyYAML cannot read their enumeration "="
        until_defined(plane, {".".join(one.stem.split("_")[::-1]) for one in crds.glob("*.yaml")})
        for name in ("holdfast", NAMESPACE):
            self.kubectl("create", "namespace", name)
        plane.run(OPERATOR, programs[OPERATOR], "--web.listen-address=127.0.0.1:0")

    def kubectl(self, *argv: str, stdin: str | None = None) -> None:
        done = subprocess.run(
            [*self._kubectl, *argv], check=False, capture_output=True, encoding="utf-8", input=stdin
        )
        assert done.returncode == 0, done.stderr

    def apply(self, *objects: Mapping[str, Any]) -> None:
        text = yaml.safe_dump_all(objects)
        self.kubectl("apply", "--validate=strict", "--filename=-", stdin=text)

    def run_pod(self, template: str) -> None:
        """Create a pod of the container of the guide, and let it run on this machine."""
        container = {"name": "rank", "image": "trainer", **yaml.safe_load(template)}
        meta = {"name": "llama-0", "namespace": NAMESPACE, "labels": {"metrics": "checkpoints"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"

        def is_created() -> bool:
            try:
                self.plane.request("POST", pods, {**pod, "spec": {"containers": [container]}})
            except Refused:  # its service account is created in the background
                return False
            return True

        until(is_created)
        status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        self.plane.request("PATCH", f"{pods}/llama-0/status", {"status": status})

    def prometheus(self, folder: Path) -> dict[str, Any]:
        """The configuration that the operator writes for a Prometheus that selects everything."""
        everything = {
            key: {}
            for kind in ("podMonitor", "rule")
            for key in (f"{kind}Selector", f"{kind}NamespaceSelector")
        }
        intervals = {"scrapeInterval": "1s", "evaluationInterval": "1s"}
        self.apply(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "Prometheus",
                "metadata": {"name": "all", "namespace": NAMESPACE},
                "spec": {**everything, **intervals},
            }
        )
        until(lambda: len(self._config().get("scrape_configs", ())) == 3 and self._rules())
        config = self._config()
        for one in config["scrape_configs"]:
            for found in one["kubernetes_sd_configs"]:
                found["kubeconfig_file"] = str(self.plane.kubeconfig())
        for name, text in self._rules().items():
            (folder / name).write_text(text, encoding="utf-8")
        return {**config, "rule_files": sorted(self._rules())}

    def _config(self) -> dict[str, Any]:
        secret = self._object("secrets/prometheus-all")
        packed = secret.get("data", {}).get("prometheus.yaml.gz", "")
        text = gzip.decompress(base64.b64decode(packed)).decode() if packed else "{}"
        for name, value in _BY_RELOADER.items():
            text = text.replace(name, value)
        config: dict[str, Any] = yaml.safe_load(text)
        return config

    def _rules(self) -> dict[str, str]:
        rules: dict[str, str] = self._object("configmaps/prometheus-all-rulefiles-0").get(
            "data", {}
        )
        return rules

    def _object(self, path: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.plane.request(
                "GET", f"/api/v1/namespaces/{NAMESPACE}/{path}"
            )
        except Refused:
            return {}
        return found


@pytest.fixture
def cluster(built: Built) -> Iterator[OperatedCluster]:
    programs = built(*PROGRAMS, "kubectl", OPERATOR)
    with ControlPlane(programs) as plane:
        yield OperatedCluster(plane, programs)


def test_the_pod_monitors_of_the_guide_and_of_the_chart_work(
    cluster: OperatedCluster, built: Built, helm: Helm, saved: Path, tmp_path: Path
) -> None:
    port = str(free_port())
    _, monitor, template = (one.replace(PORT, port) for one in guide())
    chart = helm.objects(given=["podMonitor.enabled=true", "prometheusRule.enabled=true"])
    kinds = ("PodMonitor", "PrometheusRule")
    cluster.apply(
        yaml.safe_load(monitor.replace("NAMESPACE", NAMESPACE)),
        *(one for one in chart if one["kind"] in kinds),
    )
    cluster.run_pod(template)
    container = yaml.safe_load(template)
    argv = [str(saved) if one == FOLDER else one for one in container["command"]]
    assert argv[0] == "holdfast"
    assert argv[-2:] == ["torchrun", "train.py"]
    environment = {one["name"]: one["value"] for one in container["env"]}

    with (
        running(holdfast(*argv[1:-2], "sleep", "600"), RANK="0", **environment),
        prometheus_server(
            built("prometheus")["prometheus"], cluster.prometheus(tmp_path), tmp_path
        ) as server,
    ):
        labels = scraped(server)
        assert labels["directory"] == str(saved)
        assert (labels["namespace"], labels["pod"]) == (NAMESPACE, "llama-0")
        expect_alert_until_saved(server, saved)
