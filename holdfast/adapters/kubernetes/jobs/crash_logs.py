"""Reasons of failed containers that left no termination message, from the end of their logs."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.values import EPOCH
from holdfast.adapters.kubernetes.client.watch import ResponseStream
from holdfast.adapters.kubernetes.jobs.containers import exception_or_last_line
from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.model.errors import BackendError

_LINES: Final = 200
_BYTES: Final = 1 << 17
"""Maximum size of the end of a log that is searched."""

_ANSWER: Final = timedelta(seconds=3)
"""Timeout between bytes; the kubelet has just reported the exit, so it responds."""

_READ: Final = 4
"""How many of the first failures are looked up: the others follow from them, and a job may have
thousands of ranks."""

_KEPT: Final = 4096


class CrashLogs:
    """Reads the end of a log once for each exit; a log exists until its pod is deleted."""

    def __init__(self, api: Api, may_act: Callable[[], bool]) -> None:
        """Read logs through ``api`` while ``may_act`` returns that this process is the leader."""
        self._api = api
        self._may_act = may_act
        self._reasons: OrderedDict[tuple[str, datetime], str] = OrderedDict()

    def explained(self, pods: Iterable[PodState]) -> list[PodState]:
        """Return the pods of an attempt, with the reasons of exits that only the logs have."""
        known = list(pods)
        unexplained = sorted(filter(_is_unexplained, known), key=_exit_time)
        reasons = {pod.uid: self._reason(pod) for pod in unexplained[:_READ]}
        return [
            pod
            if pod.exit is None or pod.uid not in reasons
            else replace(pod, exit=pod.exit._replace(reason=reasons[pod.uid]))
            for pod in known
        ]

    def _reason(self, pod: PodState) -> str:
        key = (pod.uid, _exit_time(pod))
        if key not in self._reasons:
            if not self._may_act():
                return ""
            self._reasons[key] = exception_or_last_line(self._end_of(pod))
            if len(self._reasons) > _KEPT:
                self._reasons.popitem(last=False)
        return self._reasons[key]

    def _end_of(self, pod: PodState) -> str:
        """Return the end of a log; empty if it cannot be read."""
        params = {
            "container": pod.container,
            "tailLines": str(_LINES),
            "limitBytes": str(_BYTES),
        }
        restarted = () if pod.has_ended else ({"previous": "true"},)
        for more in (*restarted, {}):  # a container about to restart has no previous run yet
            with suppress(BackendError):
                return self._read(pod, {**params, **more})
        return ""

    def _read(self, pod: PodState, params: dict[str, str]) -> str:
        text = bytearray()
        with ResponseStream(*self._api.opened(f"{pod.path}/log", params, _ANSWER)) as stream:
            while len(text) < _BYTES and (piece := stream.read()):
                text += piece
        return text.decode(errors="replace")


def _is_unexplained(pod: PodState) -> bool:
    is_failed = pod.exit is not None and pod.exit.code != 0 and not pod.exit.reason
    return is_failed and not pod.is_terminating and not pod.evicted


def _exit_time(pod: PodState) -> datetime:
    return EPOCH if pod.exit is None else pod.exit.at or EPOCH
