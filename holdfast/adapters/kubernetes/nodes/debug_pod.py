"""Debug pod with a shell on a node, as ``kubectl debug node/NODE`` creates."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, ApiError, NotFound
from holdfast.model.errors import BackendError
from holdfast.model.names import PodPhase

Json = dict[str, Any]

CONTAINER: Final = "shell"
DEFAULT_IMAGE: Final = "busybox:1.36"
"""Image with ``nsenter`` and ``sleep``; used where no agent runs, whose image has them, too."""

LIFETIME: Final = timedelta(hours=8)
"""Lifetime after which a pod that could not be deleted ends by itself."""

_AGENTS: Final = "app.kubernetes.io/component=agent"
_LABELS: Final = {
    "app.kubernetes.io/managed-by": "holdfast",
    "app.kubernetes.io/component": "shell",
}
_ENDED: Final = {
    "labelSelector": ",".join(f"{key}={value}" for key, value in _LABELS.items()),
    "fieldSelector": "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown",
}
"""Selectors of debug pods that have ended."""

_PAUSE_S: Final = 0.1
_UNRECOVERABLE: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerError",
)

_LOGIN: Final = ("sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l")


def manifest(node: str, name: str, image: str) -> Json:
    """Return a pod with the node's processes, network and devices, and without credentials."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {
            "nodeName": node,
            "hostPID": True,
            "hostNetwork": True,
            "hostIPC": True,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(LIFETIME.total_seconds()),
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "command": ["sleep", str(int(LIFETIME.total_seconds()))],
                    # The image of the agent has another user, who may not enter namespaces.
                    "securityContext": {"privileged": True, "runAsUser": 0},
                }
            ],
        },
    }


def on_node(command: Sequence[str]) -> list[str]:
    """Return the command in the pod that runs a command, or a login shell, on the node itself."""
    return ["nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--", *(command or _LOGIN)]


def image_on(api: Api, namespace: str, node: str) -> str:
    """Return the image of the node's agent, which is pulled already, or else the default image."""
    query = {"labelSelector": _AGENTS, "fieldSelector": f"spec.nodeName={node}"}
    try:
        agents = list(api.list(f"/api/v1/namespaces/{namespace}/pods", query))
    except ApiError:  # a user who may create pods may lack the permission to list them
        agents = []
    return str(agents[0]["spec"]["containers"][0]["image"]) if agents else DEFAULT_IMAGE


@contextmanager
def running(
    api: Api, namespace: str, pod: Json, within: timedelta, leaving: Callable[[], None]
) -> Iterator[str]:
    """Create a pod, wait until it runs, and delete it on exit from the context.

    Ended pods that earlier calls left behind are deleted as well.

    Args:
        api: the client.
        namespace: namespace of the pod.
        pod: its manifest.
        within: timeout until it runs.
        leaving: called before it is deleted.

    Yields:
        the API path of the pod.

    Raises:
        BackendError: it could not be created or deleted, or does not run in time.

    """
    folder = f"/api/v1/namespaces/{namespace}/pods"
    _clear(api, folder)
    path = f"{folder}/{pod['metadata']['name']}"
    try:
        with suppress(AlreadyExists):  # created by a call whose response was lost
            api.create(folder, pod, repeatable=True)
    except NotFound as error:
        raise BackendError(
            f"namespace {namespace} not found; set another with --namespace"
        ) from error
    try:
        _wait(api, path, within)
        yield path
    finally:
        leaving()
        _delete(api, path)


def _clear(api: Api, folder: str) -> None:
    """Delete debug pods that interrupted calls left, if permitted."""
    with suppress(ApiError):
        for pod in list(api.list(folder, _ENDED)):
            about = pod["metadata"]
            api.delete(f"{folder}/{about['name']}", uid=about["uid"], grace=0)


def _wait(api: Api, path: str, within: timedelta) -> None:
    deadline = time.monotonic() + within.total_seconds()
    while True:
        pod = api.get(path)
        phase, why = str(pod["status"].get("phase")), _waits_for(pod)
        if phase == PodPhase.RUNNING:
            return
        has_failed = phase in (PodPhase.FAILED, PodPhase.SUCCEEDED) or why in _UNRECOVERABLE
        if has_failed or time.monotonic() > deadline:
            reported = pod["status"].get("message") or why or "its kubelet does not respond"
            node = pod["spec"]["nodeName"]
            raise BackendError(
                f"debug pod on {node} did not start: {phase}: {reported}; try --via ssh"
            )
        time.sleep(_PAUSE_S)


def _waits_for(pod: Json) -> str:
    states = [one.get("state") or {} for one in pod["status"].get("containerStatuses") or ()]
    return next((str(one["waiting"].get("reason")) for one in states if "waiting" in one), "")


def _delete(api: Api, path: str) -> None:
    try:
        api.delete(path, grace=0)
    except NotFound:
        pass
    except BackendError as error:
        _, _, _, _, namespace, _, name = path.split("/")
        raise BackendError(
            f"{error}; delete the pod: kubectl delete pod {name} --namespace {namespace}"
        ) from error
