"""Containers of a pod: the main container, its host name, and how it ended."""

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.kit.units import one_line

_DEFAULT: Final = "kubectl.kubernetes.io/default-container"
"""Annotation of a pod with the name of the container that kubectl selects by default."""

_DISRUPTED: Final = "DisruptionTarget"
"""Pod condition: the pod is about to be terminated; the reason names the component."""

_TOO_MUCH: Final = "TerminationByKubelet"
"""Reason of that condition if the node runs out of a resource or shuts down."""

_ENDED: Final = (-signal.SIGTERM, -signal.SIGKILL)
"""Exit codes of the containers of a deleted pod."""

_HOSTNAME_LIMIT: Final = 63
"""Maximum length of a host name; the kubelet shortens that of a pod with a longer name."""

_SIGNALS: Final = range(129, 193)
"""Exit codes by which a container runtime reports a signal, as shells do: 128 + its number."""

_GENERIC_FAILURE: Final = 1
_NO_DETAIL: Final = ("Error", "Completed", None)


class Exit(NamedTuple):
    """How a container ended."""

    code: int
    """Exit code; negative for a signal."""

    at: datetime | None
    reason: str
    """Reason given by the kubelet, with the last line of the container's termination message."""


def main_container(pod: Json) -> str:
    """Name of the container that most likely trains, chosen as kubectl does."""
    named = (pod["metadata"].get("annotations") or {}).get(_DEFAULT)
    containers: Sequence[Json] = (pod.get("spec") or {}).get("containers") or ()
    return str(named or next((one.get("name") for one in containers), ""))


def hostname_of(pod: Json) -> str:
    """Return the host name of a pod's processes; empty if it uses that of its node."""
    spec = pod.get("spec") or {}
    if spec.get("hostNetwork"):
        return ""
    return str(spec.get("hostname") or pod["metadata"]["name"])[:_HOSTNAME_LIMIT].rstrip("-.")


def earliest_exit(status: Json, container: str, *, has_ended: bool) -> Exit | None:
    """Return the earliest reported exit, since the later ones may only be its consequence.

    Args:
        status: status of the pod.
        container: name of the only container that counts; empty for all.
        has_ended: whether the pod has failed.

    """
    found = []
    for one in status.get("containerStatuses") or ():
        if container and one.get("name") != container:
            continue
        now = (one.get("state") or {}).get("terminated")
        before = (one.get("lastState") or {}).get("terminated")
        reported = now if has_ended or (now and now.get("exitCode")) else before
        if reported:
            found.append(_exit(reported))
    if not found and has_ended:
        found.append(Exit(code=_GENERIC_FAILURE, at=None, reason=status.get("reason") or ""))
    return min(found, key=lambda one: one.at or EPOCH, default=None)


def _exit(reported: Json) -> Exit:
    code = reported.get("exitCode") or 0
    reason = reported.get("reason")
    parts = [
        "" if reason in _NO_DETAIL else str(reason),
        exception_or_last_line(reported.get("message") or ""),
    ]
    return Exit(
        code=128 - code if code in _SIGNALS else code,
        at=parse_time(reported.get("finishedAt")),
        reason=": ".join(filter(None, parts)),
    )


def exception_or_last_line(message: str) -> str:
    """Return the exception in a termination message or the end of a log, else its last line."""
    from holdfast.decisions.crash_text import SHOWN_CHARS, crash_text  # noqa: PLC0415 - after a crash only

    last = next((line for line in reversed(message.splitlines()) if line.strip()), "")
    return crash_text(message) or one_line(last, SHOWN_CHARS)


def evicted_by(metadata: Json, status: Json, exit_: Exit | None) -> str:
    """Return the component that evicts a pod; empty if it does not leave, or has failed before."""
    for one in status.get("conditions") or ():
        if one.get("type") == _DISRUPTED and one.get("status") == "True":
            reason = str(one.get("reason", ""))
            return "" if reason == _TOO_MUCH else reason
    deleted_at = parse_time(metadata.get("deletionTimestamp"))
    if deleted_at is None or (exit_ is not None and _is_older(exit_, deleted_at, metadata)):
        return ""
    return "Deleted"


def _is_older(exit_: Exit, deleted_at: datetime, metadata: Json) -> bool:
    """Whether a container ended before, and not because of, the deletion of its pod.

    Times have a resolution of one second; within one second the signals of a deletion decide.
    """
    requested_at = deleted_at - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    if exit_.at is None or exit_.at < requested_at:
        return True
    return exit_.at == requested_at and exit_.code not in _ENDED
