"""What the pods of played nodes would run: real processes on this machine."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from lightkube import ApiError
from machines import Fleet
from training import PODS

from holdfast.adapters.kubernetes.client.errors import Unreachable
from holdfast.adapters.kubernetes.jobs.indexed_job import INDEX
from holdfast.model.names import PodPhase

Json = dict[str, Any]
_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_GRACE_S = 10
ROOT = Path(__file__).resolve().parents[2]


class RealRanks:
    """Starts the command of each pod that runs, and tells its end; ends it with its pod."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        """By uid of the pod."""

        self._last_error: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ranks", daemon=True)

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for process in self.started.values():
            process.kill()
            process.wait()

    def words(self, number: int) -> str:
        """What the rank that was started as the first, second and so on has printed."""
        return (self.folder / f"rank-{number}").read_text("utf-8")

    def _run(self) -> None:
        while not self._over.wait(0.1):
            with suppress(Unreachable, ApiError, httpx2.TransportError):
                self._look({pod["metadata"]["uid"]: pod for pod in self.fleet.api.list(PODS)})

    def _look(self, pods: Mapping[str, Json]) -> None:
        for uid, process in self.started.items():
            pod = pods.get(uid)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                _end(process)
            elif process.poll() is not None and uid not in self._last_error:
                name = pod["metadata"]["name"]
                self.fleet.cluster.nodes.finish(name, exit_code=process.returncode)
                self._last_error.add(uid)
        for uid, pod in pods.items():
            is_requested = not pod["metadata"].get("deletionTimestamp")
            if uid not in self.started and is_requested and _runs(pod):
                self.started[uid] = self._process(pod)

    def _process(self, pod: Json) -> subprocess.Popen[bytes]:
        container = pod["spec"]["containers"][0]
        given = {one["name"]: _value(one, pod) for one in container["env"]}
        index = (pod["metadata"].get("labels") or {}).get(INDEX)
        given |= {"JOB_COMPLETION_INDEX": index} if index is not None else {}
        here = {"PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1"}  # there is no DNS
        here["KUBERNETES_SERVICE_HOST"] = "127.0.0.1"
        with (self.folder / f"rank-{len(self.started)}").open("wb") as words:
            return subprocess.Popen(
                [_expanded(part, given) for part in container["command"]],
                env={**os.environ, **given, **here},
                stdout=words,
                stderr=subprocess.STDOUT,
            )


def _value(variable: Json, pod: Json) -> str:
    """A variable of a container: a text, or a label or annotation of its pod."""
    path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    if (field := _FIELD.fullmatch(path)) is None:
        return str(variable.get("value", ""))
    return str((pod["metadata"].get(field[1]) or {}).get(field[2], ""))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, a grace period, and SIGKILL, as a kubelet ends a container."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    process.kill()
    process.wait()


def _expanded(part: str, given: Mapping[str, str]) -> str:
    """An argument with the variables that a kubelet expands."""
    for name, value in given.items():
        part = part.replace(f"$({name})", value)
    return part


@contextmanager
def real_ranks(fleet: Fleet, folder: Path) -> Iterator[RealRanks]:
    ranks = RealRanks(fleet, folder)
    ranks.open()
    try:
        yield ranks
    finally:
        ranks.close()


def _runs(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == PodPhase.RUNNING)
