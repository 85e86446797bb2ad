"""Parts of the log of a pod, through the API server."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.client.watch import ResponseStream
from holdfast.adapters.kubernetes.jobs.log_lines import PodLogLine, Position, Splitter
from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.apps.views.rank_logs import BEGINNING, LogPart, LogRequest
from holdfast.decisions.step_lines import LogProgress, after_line
from holdfast.decisions.step_rate import KnownSteps, with_step
from holdfast.model.errors import BackendError

_TAIL_LINES: Final = 1000
_LINE_BYTES: Final = 1 << 16
_ANSWER: Final = timedelta(seconds=10)
"""Timeout between bytes."""


def read_pod_log(api: Api, pod: PodState, request: LogRequest, attempt: int) -> LogPart:
    """Return a part of the log of a pod.

    Raises:
        BackendError: it cannot be read, for example because its node does not respond.

    """
    position = Position(request.after)
    position.opened()
    lines: list[str] = []
    size, has_more = 0, False
    for line in _lines(api, pod, position, is_tail=not request.after):
        if size >= request.limit:
            has_more = True
            break
        position.read([line])
        lines.append(line.text)
        size += len(line.text.encode()) + 1
    return LogPart(
        text="".join(f"{line}\n" for line in lines),
        cursor=position.cursor or BEGINNING,
        attempt=attempt,
        is_cut=not request.after and len(lines) >= _TAIL_LINES,
        has_more=has_more,
    )


def read_pod_steps(api: Api, pod: PodState) -> KnownSteps:
    """Return the steps in the last lines of the log of a pod, with the times of their lines.

    Raises:
        BackendError: it cannot be read.

    """
    steps: KnownSteps = ()
    progress = LogProgress()
    position = Position("")
    position.opened()
    for line in _lines(api, pod, position, is_tail=True):
        progress, report = after_line(progress, line.text)
        if report is not None:
            steps = with_step(steps, line.stamp.second, report.step)
    return steps


def _lines(api: Api, pod: PodState, position: Position, *, is_tail: bool) -> Iterator[PodLogLine]:
    params = {"timestamps": "true", "container": pod.container}
    if is_tail:
        params["tailLines"] = str(_TAIL_LINES)
    if position.since is not None:
        params["sinceTime"] = format_time(position.since)
    splitter = Splitter(_LINE_BYTES)
    with ResponseStream(*api.opened(f"{pod.path}/log", params, _ANSWER)) as stream:
        while piece := stream.read():
            yield from position.fresh(list(splitter.lines(piece)))
    if splitter.has_foreign and not splitter.has_lines:
        raise BackendError(f"{pod.path}/log: the kubelet cannot read it now; retry later")
