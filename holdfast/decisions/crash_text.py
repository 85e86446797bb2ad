"""Exception that made a rank fail, found in the end of its log among those that follow from it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.decisions.failure_lines import BARE_EXCEPTION, LINES
from holdfast.decisions.failure_signatures import PEER_CAUSES, cause_of, is_peer_failure
from holdfast.kit.bounded_files import parse_json
from holdfast.kit.units import one_line
from holdfast.model.names import Cause

SHOWN_CHARS: Final = 200
"""Maximum length of a text taken from a log."""

_OPEN_LIMIT: Final = 64
"""Maximum number of prefixes whose tracebacks are followed at the same time: ranks of one node."""

_CHAIN_LIMIT: Final = 15
"""Maximum number of exceptions that one was raised from: the oldest, which explain it."""

_TEXT_CHARS: Final = 1000
"""Maximum length of an exception that is searched for signatures."""

_START: Final = re.compile(r"(.{0,120}?)(?:Original )?Traceback \(most recent call last\)")
"""Start of a traceback, with the prefix of its lines, such as ``[rank1]: `` by PyTorch's
excepthook, ``[default0]:`` by ``torchrun --tee``, or ``node-2: `` by pdsh."""

_RANK: Final = re.compile(r"\[(?:rank|default)?(\d{1,6})\]:\s?$")
_BOX: Final = " |+╭─"
"""Characters before a traceback of rich, or of an exception group."""

_CHAINED: Final = (
    "During handling of the above",
    "The above exception was the direct",
    "Original ",
)
"""Lines between the tracebacks of an exception and of the one that it raised."""

_EXCEPTION: Final = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: (.{0,2000}))?")
_NAME: Final = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception):")
"""Exception whose text is the traceback of a DataLoader's worker (PyTorch before 1.3)."""

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


@dataclass(frozen=True, slots=True)
class _Raised:
    """One exception, with those from which it was raised, oldest first."""

    rank: int | None
    texts: tuple[str, ...]

    @property
    def is_wrapper(self) -> bool:
        return _is_wrapper(self.texts[-1])

    @property
    def is_peer_failure(self) -> bool:
        return all(is_peer_failure(text) for text in self.texts)

    @property
    def text(self) -> str:
        """Return the first one with a known cause, else the last one.

        urllib3 and requests raise the errors of a download from those of the socket, which are no
        failure of the network between the ranks.
        """
        found = [(text, cause_of(text)) for text in self.texts]
        known = [one for one in found if one[1] not in (None, Cause.EXCEPTION, *PEER_CAUSES)]
        if known and known[0][1] is Cause.NETWORK_FAILED:
            known = [one for one in known if one[1] is Cause.DOWNLOAD_FAILED] or known
        return known[0][0] if known else self.texts[-1]


@dataclass(slots=True)
class _Open:
    """Tracebacks with one prefix."""

    rank: int | None
    is_open: bool = True
    is_chained: bool = False
    at: int | None = None
    """Index of the last exception with this prefix."""


@dataclass(slots=True)
class _Log:
    found: list[_Raised] = field(default_factory=list)
    by_prefix: dict[str, _Open] = field(default_factory=dict)


def crash_text(tail: str) -> str:
    """Return the exception that ended a rank; empty if the end of its log has none.

    Exceptions of launchers, and those raised because another rank is gone, count only if there is
    no other. Where torchrun names the rank that failed first, the exception of that rank counts.
    Where one exception was raised while another one was handled, the first with a known cause
    counts. Without an exception, the first line counts that names a failure by itself, then an
    exception whose traceback is missing.

    Args:
        tail: end of the rank's log.

    """
    lines = tail.splitlines()
    raised = _raised(lines)
    first, signal = _root_cause(tail)
    own = [one for one in raised if not one.is_wrapper]
    of_first = [one for one in own if first is not None and one.rank == first]
    for candidates in (of_first, own):
        causes = [one for one in candidates if not one.is_peer_failure]
        specific = [one for one in causes if cause_of(one.text) is not Cause.DATALOADER_DIED]
        if causes:
            return one_line((specific or causes)[-1].text, SHOWN_CHARS)
    named = [line for line in lines if LINES.match(line)]
    by_itself = [line for line in named if not is_peer_failure(line)]
    texts = (
        by_itself[:1]
        or ([] if own else _without_traceback(lines))
        or [one.text for one in (of_first or own)[-1:]]
        or named[:1]
    )
    return one_line(
        texts[0] if texts else signal or (raised[-1].text if raised else ""), SHOWN_CHARS
    )


def _without_traceback(lines: Sequence[str]) -> list[str]:
    """Return the exception that explains a log without tracebacks, if there is one.

    The first one with a known cause counts, as those after it often follow from it, then the last.
    """
    bare = [found.group(1)[:_TEXT_CHARS] for line in lines if (found := BARE_EXCEPTION.match(line))]
    own = [text for text in bare if not _is_wrapper(text) and not is_peer_failure(text)]
    return [text for text in own if cause_of(text) is not Cause.EXCEPTION][:1] or own[-1:]


def _is_wrapper(text: str) -> bool:
    return text.partition(":")[0].rpartition(".")[2] in _WRAPPERS


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
    return one_line(message, SHOWN_CHARS) if isinstance(message, str) else ""


def _raised(lines: Sequence[str]) -> list[_Raised]:
    """Return the exceptions whose tracebacks are in a log, in order; ranks may interleave."""
    log = _Log()
    for line in lines:
        if what := _TERMINATE.fullmatch(line):
            log.found.append(_Raised(None, (what.group(1),)))
        elif start := _START.match(line):
            prefix = start.group(1).rstrip(_BOX)
            _open(log, "" if _NAME.fullmatch(prefix) else prefix)
        else:
            _follow(log, line)
    return log.found


def _open(log: _Log, prefix: str) -> None:
    """Start a traceback."""
    known = log.by_prefix.pop(prefix, None)
    if known is None:
        rank = _RANK.search(prefix)
        known = _Open(int(rank.group(1)) if rank is not None else None)
    known.is_open = True
    log.by_prefix[prefix] = known
    if len(log.by_prefix) > _OPEN_LIMIT:
        log.by_prefix.pop(next(iter(log.by_prefix)))


def _follow(log: _Log, line: str) -> None:
    """Take a line as part of the traceback with the longest prefix that fits."""
    fitting = [prefix for prefix in log.by_prefix if line.startswith(prefix)]
    if not fitting:
        return
    prefix = max(fitting, key=len)
    one = log.by_prefix[prefix]
    rest = line[len(prefix) :]
    text = rest[1:] if prefix and rest.startswith(" ") else rest
    if text.startswith(_CHAINED):
        one.is_chained = one.at is not None
    elif one.is_open and text and not text[0].isspace() and _EXCEPTION.fullmatch(text.rstrip()):
        _end(log, one, text.rstrip().rstrip(":"))


def _end(log: _Log, one: _Open, text: str) -> None:
    """Record the exception at the end of a traceback."""
    one.is_open = False
    if one.is_chained and one.at is not None:
        before = log.found[one.at]
        log.found[one.at] = _Raised(one.rank, (*before.texts[:_CHAIN_LIMIT], text[:_TEXT_CHARS]))
    else:
        log.found.append(_Raised(one.rank, (text[:_TEXT_CHARS],)))
        one.at = len(log.found) - 1
    one.is_chained = False


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
