"""Capture of the ranks' Python stacks when a job hangs, before it is restarted."""

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
from holdfast.decisions.hang_verdict import verdict
from holdfast.decisions.stack_dumps import COMMAND, masked_dump, snapshots_of
from holdfast.model.errors import BackendError

LIMIT: Final = timedelta(seconds=10)
"""Maximum delay of a restart by the capture of stacks."""

SIZE: Final = 256 * 1024
"""Maximum size in bytes of all stacks of an attempt; a ConfigMap may have 1 MiB."""


class StackCapture:
    """Captures the stacks of one attempt in its own thread."""

    def __init__(self, api: Api, job: JobState, attempt: int, pods: Sequence[PodState]) -> None:
        self._api = api
        self._job = job
        self._attempt = attempt
        self._pods = pods
        self._thread = threading.Thread(target=self._run, name="stacks", daemon=True)
        self.reported = ""
        """Which rank the others wait for, if the stacks show it, and where the stacks are, or why
        there are none; empty until the capture has ended."""

    def start(self) -> None:
        """Start the capture; returns at once."""
        self._thread.start()

    def _run(self) -> None:
        with ThreadPoolExecutor(max_workers=len(self._pods) or 1) as pool:
            found = list(pool.map(self._dumped, self._pods))
        texts = {pod.name: text for pod, (text, _) in zip(self._pods, found, strict=True) if text}
        errors = [error for _, error in found if error]
        try:
            where = self._stored(texts) if texts else ""
        except BackendError as error:
            where, errors = "", [str(error)]
        snapshots = [
            snapshot
            for pod, (text, _) in zip(self._pods, found, strict=True)
            for snapshot in snapshots_of(text, pod.node)
        ]
        where = where or f"no stacks: {errors[0] if errors else 'no pod runs'}"
        self.reported = f"{verdict(snapshots).text}; {where}" if snapshots else where

    def _dumped(self, pod: PodState) -> tuple[str, str]:
        """Return the stacks of a pod and an empty error, or no text and the error."""
        size = SIZE // len(self._pods)
        try:
            output = run_in_pod(
                self._api, pod.path, pod.container, COMMAND, within=LIMIT, limit=size
            )
        except BackendError as error:
            return "", str(error)
        if output.text:
            return masked_dump(f"{output.text}\n{output.error}").rstrip(), ""
        return "", f"{pod.name}: {output.error or 'no Python process runs'}"

    def _stored(self, texts: Mapping[str, str]) -> str:
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
        with suppress(AlreadyExists):  # created by the previous leader
            self._api.create(folder, body, repeatable=True)
        return f"stacks are in ConfigMap {name}"
