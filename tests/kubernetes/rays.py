"""The KubeRay operator at work, and jobs for it."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gangs import Gang, pods
from training import PODS

from tests.engines.control_plane import ControlPlane
from tests.engines.job_operators import RAY_OPERATOR, run_ray_operator


class Dashboard(ThreadingHTTPServer):
    """Plays the dashboards of all Ray clusters: the operator's way to them leads through here."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.submitted: set[str] = set()
        self.ended: dict[str, str] = {}
        """Submission to ``SUCCEEDED`` or ``FAILED``; the others run."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        """What has become of a job."""
        submission = self.path.rpartition("/")[2]
        if submission in self.server.submitted:
            status = self.server.ended.get(submission, "RUNNING")
            self._answer(200, {"status": status, "submission_id": submission})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        """A job is submitted, or stopped."""
        requested = json.loads(
            self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}"
        )
        if (submission := requested.get("submission_id")) is not None:
            self.server.submitted.add(submission)
        self._answer(200, requested)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def handle(self) -> None:
        with suppress(OSError):  # the operator does not wait for ever
            super().handle()

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def run_ray(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[Dashboard]:
    """Run the operator, which finds the dashboards by a proxy: there are none in these pods."""
    with Dashboard() as dashboard:
        threading.Thread(target=dashboard.serve_forever, daemon=True).start()
        run_ray_operator(plane, binaries, {"HTTP_PROXY": dashboard.url})
        try:
            yield dashboard
        finally:
            plane.stop(RAY_OPERATOR)
            dashboard.shutdown()


class RayCluster(Gang):
    """A head without a device and two workers."""

    collection = "/apis/ray.io/v1/namespaces/default/rayclusters"
    api_version = "ray.io/v1"
    kind = "RayCluster"
    pod_label = "ray.io/cluster"
    restarts_in_place = True

    def body(self) -> dict[str, Any]:
        head = pods(containers=[{"name": "ray-head", "image": "none"}])
        worker = {"groupName": "gpu", "replicas": 2, "minReplicas": 0, "maxReplicas": 4}
        for one in (head, template := pods("ray-worker")):
            del one["spec"]["restartPolicy"]
        return {
            "headGroupSpec": {"rayStartParams": {}, "template": head},
            "workerGroupSpecs": [{**worker, "rayStartParams": {}, "template": template}],
        }

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return {
            pod["metadata"]["name"]: pod
            for pod in self.api.list(PODS)
            if pod["metadata"]["labels"].get("ray.io/cluster", "").startswith(self.name)
        }

    @property
    def nodes(self) -> list[str]:
        """Of the workers."""
        return [
            pod["spec"]["nodeName"]
            for name, pod in sorted(self.pods.items())
            if "-worker-" in name and pod["status"]["phase"] == "Running"
        ]


class RayJob(RayCluster):
    """A job on a cluster of its own."""

    collection = "/apis/ray.io/v1/namespaces/default/rayjobs"
    kind = "RayJob"

    def body(self) -> dict[str, Any]:
        return {
            "entrypoint": "python train.py",
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": super().body(),
        }

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Its operator gives each of its clusters a name of five more letters."""
        name, _, _ = labels.get(self.pod_label, "").rpartition("-")
        return name == self.name

    @property
    def state(self) -> str:
        return self.job["status"].get("jobDeploymentStatus", "")

    @property
    def submission(self) -> str:
        """What its operator calls its present attempt; empty before the first."""
        return self.job.get("status", {}).get("jobId", "")
