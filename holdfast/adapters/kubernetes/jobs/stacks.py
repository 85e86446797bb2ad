"""Capture of the ranks' Python stacks when a job hangs, before it is restarted."""

import base64
import gzip
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.host.dump_command import dump_command
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists
from holdfast.adapters.kubernetes.client.pod_exec import run_in_pod
from holdfast.adapters.kubernetes.jobs.attempt_findings import Findings
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.decisions.evidence_precedence import recent, verdict_of
from holdfast.decisions.flight_recorder import RankFindings
from holdfast.decisions.hang_evidence import HangEvidence, RankEvidence, bounded_text
from holdfast.decisions.hang_verdict import Verdict
from holdfast.decisions.inspection_tries import deadline_of, is_repeated, limit_of
from holdfast.decisions.recorder_dumps import (
    TRACES_LIMIT,
    distinct,
    printed_traces,
    split_traces,
)
from holdfast.decisions.stack_dumps import COMMAND, findings_of, masked_dump
from holdfast.kit.serial import parse_value
from holdfast.model.errors import BackendError

SIZE: Final = 256 * 1024
"""Maximum size in bytes of all stacks of an attempt; a ConfigMap may have 1 MiB."""


_EXEC: Final = timedelta(seconds=3)
"""Time that is left to start a command in a pod, and to read what it prints."""

_EVIDENCE: Final = "evidence.json.gz"
_EVIDENCE_SIZES: Final = (1 << 22, 1 << 20, 1 << 18)
"""Maximum sizes in bytes of the evidence before compression, in order of preference."""

_COMPRESSED: Final = 3 << 17
"""Maximum size in bytes of the compressed evidence: with the stacks, less than 1 MiB."""


def config_map_of(job: str, attempt: int) -> str:
    """Return the name of the ConfigMap with the stacks of an attempt."""
    return f"{job}-stacks-attempt-{attempt}"


def packed_evidence(evidence: HangEvidence) -> dict[str, str]:
    """Return the ``binaryData`` of a ConfigMap with the evidence of a hang."""
    texts = (bounded_text(evidence, size) for size in _EVIDENCE_SIZES)
    packed = (gzip.compress(text.encode("utf-8")) for text in texts)
    data = next(one for one in packed if len(one) <= _COMPRESSED)
    return {_EVIDENCE: base64.b64encode(data).decode("ascii")}


def unpacked_evidence(config_map: Mapping[str, object]) -> HangEvidence:
    """Return the evidence in a ConfigMap.

    Raises:
        ValueError: it has none, or it is damaged.

    """
    binary = config_map.get("binaryData")
    data = binary.get(_EVIDENCE) if isinstance(binary, Mapping) else None
    if not isinstance(data, str):
        raise ValueError(f"no key {_EVIDENCE}")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(base64.b64decode(data), _EVIDENCE_SIZES[0] + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(text) > _EVIDENCE_SIZES[0]:
        raise ValueError(f"larger than {_EVIDENCE_SIZES[0]} bytes")
    return parse_value(HangEvidence, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dump:
    """Stacks of a pod, or the reason why there are none."""

    text: str = ""
    error: str = ""
    is_late: bool = False
    """Whether the time was over before all of them were read."""

    traces: str = ""
    """What is printed of the flight recorders of its ranks; read one by one, to save memory."""


class StackCapture:
    """Captures the stacks of one attempt in its own thread.

    Args:
        api: of the cluster.
        job: the job.
        attempt: number of the attempt.
        pods: pods of the ranks.
        why: why the job seems to hang.
        since: time of its last sign of progress; None if unknown.
        restarts: whether a restart waits for the stacks. If none does, pods that did not respond in
            time are asked again.

    """

    def __init__(
        self,
        api: Api,
        job: JobState,
        attempt: int,
        pods: Sequence[PodState],
        why: str = "",
        since: datetime | None = None,
        *,
        restarts: bool = False,
    ) -> None:
        self._why, self._since, self._restarts = why, since, restarts
        self._at = datetime.now(UTC)
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
        tries = 1
        while self._is_repeated(tries):
            tries += 1

    def _is_repeated(self, tries: int) -> bool:
        """Capture the stacks. Returns whether there was too little time; they are lost then."""
        limit = limit_of(tries)
        with ThreadPoolExecutor(max_workers=2 * len(self._pods) or 1) as pool:
            traces = pool.map(lambda pod: self._traces(pod, limit), self._pods)
            dumps = pool.map(lambda pod: self._dumped(pod, limit), self._pods)
            found = [replace(dump, traces=one) for dump, one in zip(dumps, traces, strict=True)]
        seen = self._findings(found)
        decided = verdict_of(seen)
        if is_repeated(
            names_rank=bool(decided.ranks),
            is_incomplete=any(dump.is_late for dump in found),
            tries=tries,
            restarts=self._restarts,
        ):
            return True
        texts = {
            pod.name: dump.text for pod, dump in zip(self._pods, found, strict=True) if dump.text
        }
        errors = [dump.error for dump in found if dump.error]
        try:
            where = self._stored(texts, seen, decided) if texts else ""
        except BackendError as error:
            where, errors = "", [str(error)]
        where = where or f"no stacks: {errors[0] if errors else 'no pod runs'}"
        is_seen = seen.snapshots or seen.traces
        self.reported = f"{decided.text}; {where}" if is_seen else where
        return False

    def _findings(self, dumps: Sequence[_Dump]) -> RankFindings:
        now = datetime.now(UTC)
        found = [
            findings_of(dump.text, pod.node, now)
            for pod, dump in zip(self._pods, dumps, strict=True)
        ]
        seen = RankFindings(
            snapshots=tuple(snapshot for one in found for snapshot in one.snapshots),
            traces=distinct([one for dump in dumps for one in printed_traces(dump.traces)]),
            kernel=tuple(log for one in found for log in one.kernel),
        )
        return recent(seen, self._since)

    def _traces(self, pod: PodState, limit: timedelta) -> str:
        """Return what is printed of the flight recorders of a pod; empty without any."""
        command = dump_command(limit - _EXEC)
        with suppress(BackendError):
            output = run_in_pod(
                self._api, pod.path, pod.container, command, within=limit, limit=TRACES_LIMIT
            )
            return split_traces(output.text)[1]
        return ""

    def _dumped(self, pod: PodState, limit: timedelta) -> _Dump:
        size, began = SIZE // len(self._pods), time.monotonic()
        try:
            output = run_in_pod(
                self._api, pod.path, pod.container, COMMAND, within=limit, limit=size
            )
        except BackendError as error:
            return _Dump(error=str(error), is_late=_is_over(began, limit))
        is_late = _is_over(began, limit)
        if output.text:
            text = masked_dump(f"{output.text}\n{output.error}").rstrip()
            return _Dump(text=text, is_late=is_late)
        why = f"{pod.name}: {output.error or 'no Python process runs'}"
        return _Dump(error=why, is_late=is_late)

    def _stored(self, texts: Mapping[str, str], seen: RankFindings, decided: Verdict) -> str:
        job = self._job
        name = config_map_of(job.name, self._attempt)
        owner = {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "name": job.name,
            "uid": job.uid,
        }
        body = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "data": dict(texts),
            "binaryData": packed_evidence(self._evidence(seen, decided)) if seen.snapshots else {},
        }
        folder = f"/api/v1/namespaces/{job.namespace}/configmaps"
        with suppress(AlreadyExists):  # created by the previous leader
            self._api.create(folder, body, repeatable=True)
        return f"stacks are in ConfigMap {name}"

    def _evidence(self, seen: RankFindings, decided: Verdict) -> HangEvidence:
        return HangEvidence(
            job=self._job.key,
            attempt=self._attempt,
            suspected_at=self._at,
            hung_since=self._since,
            evidence=self._why,
            verdict=decided,
            ranks=tuple(RankEvidence(snapshot=one) for one in seen.snapshots),
            kernel=seen.kernel,
        )


class AttemptStacks:
    """Stacks of the suspected hangs of one attempt.

    Args:
        api: of the cluster.
        job: the job.
        attempt: number of the attempt.

    """

    def __init__(self, api: Api, job: JobState, attempt: int) -> None:
        self._api, self._job, self._attempt = api, job, attempt
        self._capture: StackCapture | None = None
        self._until: datetime | None = None
        self._stops = False

    def added_to(self, found: Findings, pods: Sequence[PodState], now: datetime) -> Findings:
        """Return findings with what the ranks of a hang do; it is left out until that is known.

        That takes at most 10 s before a restart, else at most 70 s. Each hang has its own stacks,
        but the ConfigMap has the first ones.
        """
        hang, suspected = found.hang, found.suspected
        if hang is None and suspected is None and not found.notices.hang:
            self._capture = None
            return found
        if self._capture is not None and self._stops != (hang is not None):
            self._capture = None  # the job continued after the hang that was captured
        self._stops = hang is not None
        shown = self._captured(found, pods, now)
        if hang is not None:
            text = f"{hang.evidence}; {shown}"
            return replace(found, hang=replace(hang, evidence=text) if shown else None)
        if suspected is not None:
            text = f"{suspected.evidence}; {shown}"
            return replace(found, suspected=replace(suspected, evidence=text) if shown else None)
        return found

    def _captured(self, found: Findings, pods: Sequence[PodState], now: datetime) -> str:
        """Return what the stacks show; empty until that is known."""
        deadline = deadline_of(restarts=self._stops)
        if self._capture is None or self._until is None:
            hang = found.hang or found.suspected
            self._capture = StackCapture(
                self._api,
                self._job,
                self._attempt,
                pods,
                why=hang.evidence if hang is not None else found.notices.hang,
                since=hang.since if hang is not None else None,
                restarts=self._stops,
            )
            self._until = now + deadline
            self._capture.start()
        if self._capture.reported or now < self._until:
            return self._capture.reported
        return f"no stacks within {deadline.total_seconds():g} s"


def _is_over(began: float, limit: timedelta) -> bool:
    return time.monotonic() - began >= limit.total_seconds()
