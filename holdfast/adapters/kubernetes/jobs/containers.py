"""The containers of a pod: which one trains, and how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.decisions.crash_text import crash_text, plain

_DEFAULT: Final = "kubectl.kubernetes.io/default-container"
"""Annotation of a pod: the container that people mean."""

_SIGNALS: Final = range(129, 193)
"""Exit codes with which a runtime, like a shell, tells of a signal: 128 and its number."""

_GENERIC_FAILURE: Final = 1
_SAYS_NOTHING: Final = ("Error", "Completed", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a container ended."""

    code: int
    """Negative for a signal."""

    at: datetime | None
    reason: str
    """What the kubelet calls it, and what the container itself left as its last words."""


def main_container(pod: Json) -> str:
    """The container that is most likely to train, as kubectl chooses it."""
    named = (pod["metadata"].get("annotations") or {}).get(_DEFAULT)
    containers: Sequence[Json] = (pod.get("spec") or {}).get("containers") or ()
    return str(named or next((one.get("name") for one in containers), ""))


def earliest_exit(status: Json, container: str, *, has_ended: bool) -> Exit | None:
    """The earliest end that is told, as the others may only follow from it.

    Args:
        status: of the pod.
        container: the one that counts; empty if all do.
        has_ended: the pod has failed.

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
    words = [
        "" if reason in _SAYS_NOTHING else str(reason),
        _last_words(reported.get("message") or ""),
    ]
    return Exit(
        code=128 - code if code in _SIGNALS else code,
        at=parse_time(reported.get("finishedAt")),
        reason=": ".join(filter(None, words)),
    )


def _last_words(message: str) -> str:
    """The exception in a termination message, or else its last line."""
    last = next((line for line in reversed(message.splitlines()) if line.strip()), "")
    return crash_text(message) or plain(last)
