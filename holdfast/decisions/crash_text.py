"""Exception that made a rank fail, found in the end of its log among those that follow from it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.kit.bounded_files import parse_json

SHOWN_CHARS: Final = 200
"""Maximum length of a text taken from a log."""

_PREFIX: Final = re.compile(r"\[(?:rank|default)?(\d{1,6})\]:\s?")
"""Prefix of a line: ``[rank1]: `` by PyTorch's excepthook, ``[default0]:`` by ``torchrun
--tee``."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_EXCEPTION: Final = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: (.{0,2000}))?")
_TERMINATE: Final = re.compile(r"\s{0,8}what\(\):\s{1,8}(.{1,2000})")
"""Line that the C++ runtime prints after ``terminate called after throwing an instance of``."""

_CAUSE_RANK: Final = re.compile(r"\s*rank\s+: (\d{1,6}) \(local_rank: \d{1,6}\)")
_CAUSE_SIGNAL: Final = re.compile(
    r"\s*traceback : (Signal \d{1,3} \(\w{1,16}\)) received by PID \d+"
)
_ROOT_CAUSE: Final = "Root Cause (first observed failure):"

_WRAPPERS: Final = ("ChildFailedError", "SignalException", "CalledProcessError", "SystemExit")
"""Exceptions that launchers raise for failures of their children, last component of the name:
torchrun, ``accelerate launch`` and ``deepspeed``."""

_PEER: Final = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|connection was likely closed|broken pipe"
    r"|remote process exited|ncclRemoteError|ncclSystemError|DistNetworkError|DistStoreError"
    r"|watchdog caught collective|collective operation timeout|timed out waiting"
    r"|remote peer|peer (?:closed|disconnected|failed)|failed to recv|process group.{0,40}abort",
    re.IGNORECASE,
)
"""Errors that gloo, NCCL and c10d's store raise when another rank is gone (PyTorch 2.15, NCCL
2.28)."""


@dataclass(frozen=True, slots=True)
class _Raised:
    rank: int | None
    text: str

    @property
    def is_wrapper(self) -> bool:
        return self.text.partition(":")[0].rpartition(".")[2] in _WRAPPERS


def crash_text(tail: str) -> str:
    """Return the exception that ended a rank; empty if the end of its log has none.

    Exceptions of launchers, and those raised because another rank is gone, count only if there is
    no other. Where torchrun names the rank that failed first, the exception of that rank counts.

    Args:
        tail: end of the rank's log.

    """
    raised = _raised(tail.splitlines())
    first, signal = _root_cause(tail)
    own = [one for one in raised if not one.is_wrapper]
    of_first = [one for one in own if first is not None and one.rank == first]
    for candidates in (of_first, own):
        causes = [one for one in candidates if not is_peer_failure(one.text)] or candidates
        if causes:
            return plain(causes[-1].text)
    return plain(signal or (raised[-1].text if raised else ""))


def error_file_text(content: str) -> str:
    """Return the exception in a file that ``TORCHELASTIC_ERROR_FILE`` names; empty if it has none.

    torchrun copies the file of the local rank that failed first, if the entry point has the
    decorator ``@record``. Its format: ``{"message": {"message": "Type: text", "extraInfo":
    {...}}}``, or ``{"message": "text"}``.
    """
    try:
        message = parse_json(content)["message"]
    except (ValueError, TypeError, KeyError):
        return ""
    if isinstance(message, dict):
        message = message.get("message")
    return plain(message) if isinstance(message, str) else ""


def is_peer_failure(text: str) -> bool:
    """Return whether an exception, as of a collective, only reports that another rank is gone."""
    return _PEER.search(text) is not None


def plain(text: str) -> str:
    """Return a text as one line of bounded length, without control characters."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(line.split())[:SHOWN_CHARS]


def _raised(lines: Sequence[str]) -> list[_Raised]:
    """Return the exceptions whose tracebacks are in a log, in order; ranks may interleave."""
    open_: dict[int | None, bool] = {}
    found = []
    for line in lines:
        prefix = _PREFIX.match(line)
        rank = int(prefix.group(1)) if prefix is not None else None
        text = line[prefix.end() :] if prefix is not None else line
        if what := _TERMINATE.fullmatch(text):
            found.append(_Raised(rank, what.group(1)))
        elif text.lstrip(" |+").startswith(_TRACEBACK):
            open_[rank] = True
        elif open_.get(rank) and text and not text[0].isspace():
            match = _EXCEPTION.fullmatch(text.rstrip())
            if match is not None:
                open_[rank] = False
                found.append(_Raised(rank, text.rstrip().rstrip(":")))
    return found


def _root_cause(tail: str) -> tuple[int | None, str]:
    """Return the rank and the signal that torchrun names as the first failure, else None and ""."""
    _, found, summary = tail.rpartition(_ROOT_CAUSE)
    if not found:
        return None, ""
    lines = summary.splitlines()
    ranks = [match for line in lines if (match := _CAUSE_RANK.match(line))]
    signals = [match for line in lines if (match := _CAUSE_SIGNAL.match(line))]
    rank = int(ranks[0].group(1)) if ranks else None
    return rank, f"rank {rank}: {signals[0].group(1)}" if signals else ""
