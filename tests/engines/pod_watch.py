"""The pods that are bound to nodes, as kubelets read them: one list, then a watch.

Listing all pods ten times a second was a tenth of the requests of a test that waits for a job.
"""

from contextlib import suppress
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import Any, Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.watch import Watch
from holdfast.model.errors import BackendError

_PODS: Final = "/api/v1/pods"
_BOUND: Final = {"fieldSelector": "spec.nodeName!="}
_STALL: Final = timedelta(minutes=5)
_AGAIN_S: Final = 0.1

Json = dict[str, Any]


class PodWatch:
    """The pods that are bound to nodes, followed from ``start`` to ``close``."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = Lock()
        self._pods: dict[str, Json] = {}
        self._watch: Watch | None = None
        self._over = Event()
        self._thread = Thread(target=self._follow, name="pods of kubelets", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._over.set()
            if self._watch is not None:
                self._watch.close()
        self._thread.join()

    @property
    def pods(self) -> list[Json]:
        """The last state of each; to be read only."""
        with self._lock:
            return list(self._pods.values())

    def _follow(self) -> None:
        """Begin with a list again after an outage, and when the watch has expired."""
        while not self._over.is_set():
            with suppress(BackendError):
                self._watch_from(self._list())
            self._over.wait(_AGAIN_S)

    def _list(self) -> str:
        """Read all of them; returns the resource version of the list."""
        found: dict[str, Json] = {}
        version = ""
        for page in self._api.pages(_PODS, _BOUND):
            found.update((pod["metadata"]["uid"], pod) for pod in page.items)
            version = page.resource_version
        with self._lock:
            self._pods = found
        return version

    def _watch_from(self, version: str) -> None:
        params = {**_BOUND, "resourceVersion": version}
        with self._api.watch(_PODS, params, stall=_STALL) as watch:
            with self._lock:
                if self._over.is_set():
                    return
                self._watch = watch
            for event in watch:
                self._note(event["type"], event["object"])

    def _note(self, kind: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            if kind == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
