"""Where the ranks of a job are when it hangs: captured before it is restarted."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists
from holdfast.adapters.kubernetes.client.pod_exec import run_in_pod
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.model.errors import BackendError

LIMIT: Final = timedelta(seconds=10)
"""A restart waits for stacks no longer than this."""

SIZE: Final = 256 * 1024
"""Bytes of all stacks of an attempt; a ConfigMap may have 1 MiB."""

COMMAND: Final = (
    "sh",
    "-c",
    "for p in /proc/[0-9]*; do case $(readlink $p/exe) in "
    "*/python*) py-spy dump --pid ${p#/proc/};; esac; done",
)
"""Every Python process of the container: the first is often but the launcher of the others."""


class StackCapture:
    """Captures the stacks of one attempt in a thread of its own, from ``start`` on."""

    def __init__(self, api: Api, job: JobState, attempt: int, pods: Sequence[PodState]) -> None:
        self._api = api
        self._job = job
        self._attempt = attempt
        self._pods = pods
        self._thread = threading.Thread(target=self._run, name="stacks", daemon=True)
        self.reported = ""
        """Where the stacks are, or why there are none; empty while that is not known."""

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def _run(self) -> None:
        with ThreadPoolExecutor(max_workers=len(self._pods) or 1) as pool:
            found = list(pool.map(self._dumped, self._pods))
        texts = {pod.name: text for pod, (text, _) in zip(self._pods, found, strict=True) if text}
        errors = [error for _, error in found if error]
        try:
            where = self._kept(texts) if texts else ""
        except BackendError as error:
            where, errors = "", [str(error)]
        self.reported = where or f"no stacks: {errors[0] if errors else 'no pod runs'}"

    def _dumped(self, pod: PodState) -> tuple[str, str]:
        """The stacks of a pod, or why there are none."""
        size = SIZE // len(self._pods)
        try:
            output = run_in_pod(
                self._api, pod.path, pod.container, COMMAND, within=LIMIT, limit=size
            )
        except BackendError as error:
            return "", str(error)
        if output.text:
            return f"{output.text}\n{output.error}".rstrip(), ""
        return "", f"{pod.name}: {output.error or 'no Python process runs'}"

    def _kept(self, texts: Mapping[str, str]) -> str:
        job = self._job
        name = f"{job.name}-stacks-attempt-{self._attempt}"
        owner = {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "name": job.name,
            "uid": job.uid,
        }
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "data": dict(texts)}
        folder = f"/api/v1/namespaces/{job.namespace}/configmaps"
        with suppress(AlreadyExists):  # by the controller before us
            self._api.create(folder, body, repeatable=True)
        return f"stacks are in ConfigMap {name}"
