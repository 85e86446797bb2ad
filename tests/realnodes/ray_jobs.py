"""Ray clusters and jobs, with real Ray in their pods, that train one model with PyTorch's DDP."""

from pathlib import Path
from typing import Any

from operator_jobs import Object, OperatorJob

from tests.engines.framework_environments import environment_of

TRAINING = Path(__file__).with_name("ray_training.py")

_STORE = "80000000"
"""Bytes of the object store, near the least that Ray allows: nothing is stored."""

_AGENT = (52365, "api/local_raylet_healthz")
_DASHBOARD = (8265, "api/gcs_healthz")
"""Ports and paths of Ray's health checks."""


class RayCluster(OperatorJob):
    """A head that runs the driver, and a worker for each rank."""

    kind = "RayCluster"
    api_version = "ray.io/v1"
    collection = "/apis/ray.io/v1/namespaces/default/rayclusters"
    rank_field = "metadata.name"
    container = "ray"
    program = "python /shared/drive.py"
    guarded_rank = "0"
    module_path = "/start"  # Ray finds its own packages before PyTorch's
    absent: tuple[str, ...] = ()
    """Variables that other kinds of jobs have."""

    def spec(self, template: Object) -> Object:
        """See ``OperatorJob.spec``.

        The head runs Ray, and the driver, whose failure ends its container. A RayCluster never ends
        by itself.
        """
        both = f"$KUBERAY_GEN_RAY_START_CMD &\n{self._command} && exec sleep infinity\n"
        return self._cluster(template, both)

    @property
    def has_succeeded(self) -> bool:
        """See ``TrainingJob.has_succeeded``."""
        return (self.folder / "result").exists()

    def submit(self, **changes: Any) -> None:
        """See ``TrainingJob.submit``."""
        (self.folder / "drive.py").write_text(TRAINING.read_text("utf-8"), encoding="utf-8")
        super().submit(**changes)

    def _cluster(self, worker: Object, command: str = "") -> Object:
        """A spec of a cluster; ``command`` is that of the head, instead of KubeRay's."""
        [container] = worker["spec"]["containers"]
        leads = {**container, **_probes(*_DASHBOARD)}
        head: Object = {"spec": {**worker["spec"], "affinity": {}, "containers": [leads]}}
        known = {"object-store-memory": _STORE, "disable-usage-stats": "true"}
        of_head = {**known, "num-cpus": "0"}  # for actors
        if command:
            leads |= {"command": ["bash", "-c", command], **_probes(*_AGENT)}
            head["metadata"] = {"annotations": {"ray.io/overwrite-container-cmd": "true"}}
            of_head["include-dashboard"] = "false"  # nobody submits anything
        container |= _probes(*_AGENT)
        return {
            "headGroupSpec": {"rayStartParams": of_head, "template": head},
            "workerGroupSpecs": [
                {
                    "groupName": "ranks",
                    "replicas": self.ranks,
                    "minReplicas": self.ranks,
                    "maxReplicas": self.ranks,
                    "rayStartParams": {**known, "num-cpus": "1"},
                    "template": worker,
                }
            ],
        }

    def _pod(self, near: str, memory: str) -> Object:
        pod = super()._pod(near, memory)
        del pod["restartPolicy"]  # KubeRay replaces pods that do not restart
        return pod

    @property
    def _folders(self) -> dict[str, Path]:
        return {**super()._folders, "ray": environment_of("ray_jobs")}

    def _container(self, memory: str) -> Object:
        container = super()._container(memory)
        del container["command"]
        programs = str(self._folders["ray"])
        for mount in container["volumeMounts"]:
            if mount["name"] == "ray":  # its programs know where they are
                mount |= {"mountPath": programs, "readOnly": True}
        path = f"{programs}/bin:/usr/local/bin:/usr/bin:/bin"
        container["env"] = [
            *(one for one in container["env"] if one["name"] not in self.absent),
            *({"name": "PATH", "value": path}, {"name": "HOME", "value": "/tmp"}),
        ]
        # Without a request, the kubelet gives a pod 2 of the 1024 shares of other processes.
        container["resources"]["requests"] = {"cpu": "250m", "memory": "256Mi"}
        return container


def _probes(port: int, path: str) -> Object:
    """Probes of a container of Ray, of the same servers as KubeRay's own, which need wget."""
    probe = {"httpGet": {"port": port, "path": path}, "timeoutSeconds": 5}
    return {
        "readinessProbe": {**probe, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {**probe, "initialDelaySeconds": 30, "failureThreshold": 120},
    }


class RayJob(RayCluster):
    """A job on a cluster of its own, whose head runs the driver once it was submitted."""

    kind = "RayJob"
    collection = "/apis/ray.io/v1/namespaces/default/rayjobs"
    absent = ("ATTEMPT",)

    def spec(self, template: Object) -> Object:
        """See ``OperatorJob.spec``."""
        return {
            "entrypoint": self._command,
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "backoffLimit": 2,
            "rayClusterSpec": self._cluster(template),
        }

    @property
    def has_succeeded(self) -> bool:
        """See ``TrainingJob.has_succeeded``."""
        return bool(self.job.get("status", {}).get("jobStatus") == "SUCCEEDED")
