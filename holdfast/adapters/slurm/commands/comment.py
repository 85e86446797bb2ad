"""Reads and writes requests in the Comment of a job: ``auto-resume=1 max-retry=3 mode=step``. Pure.

Text of other programs is kept. NVIDIA Mission Control's form is supported, too:
``{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from holdfast.adapters.slurm.commands.comment_reports import (
    ReportedHang,
    ReportedLoss,
    ReportedProgress,
    ReportedStraggler,
    parse_hang,
    parse_loss,
    parse_progress,
    parse_straggler,
)
from holdfast.decisions.step_restart import RestartMode
from holdfast.kit.bounded_files import is_nested_deeply
from holdfast.kit.units import one_line

MAX_RETRY_LIMIT: Final = 1000
"""Largest valid ``max-retry``; more is assumed to be a typing error."""

COMMENT_LIMIT: Final = 16 * 1024
"""Maximum length of a Comment, in characters; a longer one is not parsed."""

REJECTED_LIMIT: Final = 20
"""Maximum number of rejected keys and values of one Comment that are reported."""

_EXCERPT: Final = 100
_SECTION: Final = "holdfast"
"""Member of a JSON Comment that holds our keys."""

_NVIDIAS: Final = "APS"
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_BLANK: Final = re.compile(r"\s")
_REQUEUE_REQUEST: Final = re.compile(r"requeue(?::([0-9]{1,9}):([0-9]{1,11}))?")
_RESTART_REASON: Final = re.compile(r"[0-9]{1,9}:\w{1,100}:[^\s:=\[\]]{0,100}")
_NO_WORD: Final = re.compile(r"\W")
_NO_NODE: Final = re.compile(r"[\s:=\[\]]")
_NOTE: Final = re.compile(r"(?<!\s)\s*\[holdfast: [^\[\]]*\]")
"""Note of the controller for the owner, in a plain Comment."""

_NOTE_KEY: Final = "note"
"""Key of that note in a JSON Comment."""


_PLAIN: Final = str.maketrans({"[": "(", "]": ")", "=": ":", '"': "'"})
"""Characters that would end a note, or begin a key of another program."""


class Key(StrEnum):
    """Keys in the Comment of a job."""

    AUTO_RESUME = "auto-resume"
    """1 to resume the job after a fault of a node, 0 not to."""

    MAX_RETRY = "max-retry"
    """Maximum number of restarts after faults of nodes."""

    MODE = "mode"
    REQUEUE_REQUEST = "requeue-request"
    """Set by the supervisor only, when it cannot restart the step itself: ``requeue``, or
    ``requeue:1:1763837400`` with the number of requeues before the run that has ended, and the time
    at which its step ended, in seconds of the epoch."""

    RESTART_REASON = "restart-reason"
    """Set by the controller only: ``1:NodeLost:node7``, the number of requeues when the current run
    began, why the run before was stopped, and the faulty node."""

    LOSS_FAULT = "loss-fault"
    """Set by the supervisor only: ``1001:LossNotFinite:12:rollback``, the number of the attempt,
    the reason, the step, and what follows."""

    SUSPECTED_HANG = "suspected-hang"
    """Set by the supervisor only, while a step reports no progress: ``1001:12:1763837400``, the
    number of the attempt, its last step, if any, and the time of that step or of the start."""

    PROGRESS = "progress"
    """Set by the supervisor only: ``1001:1200:0.52``, the number of the attempt, its last step, and
    its steps per second."""

    STRAGGLER = "straggler"
    """Set by the supervisor only: ``1001:node7``, the number of the attempt, and the node of the
    rank that the others wait for."""

    CHECKPOINT = "checkpoint"
    """Directory of the job's checkpoints, in Megatron's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An invalid key or value, which is ignored."""

    key: str
    value: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueRequest:
    """A supervisor's request for a requeue."""

    restarts: int | None = None
    """Number of requeues before the run that has ended; None if not given."""

    since: datetime | None = None
    """Time when the step ended; None if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentRequest:
    """Requests in a Comment."""

    auto_resume: bool | None = None
    """None if not given."""

    max_retry: int | None = None
    mode: RestartMode = RestartMode.REQUEUE
    requeue: RequeueRequest | None = None
    checkpoint: str = ""
    restart_reason: str = ""
    """Value of ``Key.RESTART_REASON``; see ``restart_reason_of``."""

    loss: ReportedLoss | None = None
    hang: ReportedHang | None = None
    progress: ReportedProgress | None = None
    straggler: ReportedStraggler | None = None
    rejected: tuple[Rejected, ...] = ()

    def requests_requeue(self, restarts: int) -> bool:
        """Whether the supervisor of the run with that number of requeues requests another."""
        return self.requeue is not None and self.requeue.restarts in (None, restarts)

    def restart_reason_of(self, restarts: int) -> str:
        """Return why the run before that number of requeues was stopped; empty if unknown."""
        count, _, rest = self.restart_reason.partition(":")
        return rest.partition(":")[0] if count == str(restarts) else ""


_EXPECTED: Final = {
    Key.AUTO_RESUME: "1 or 0",
    Key.MAX_RETRY: f"a whole number from 0 to {MAX_RETRY_LIMIT}",
    Key.MODE: ", ".join(RestartMode),
    Key.REQUEUE_REQUEST: "requeue, or requeue:RESTARTS:SECONDS",
    Key.RESTART_REASON: "RESTARTS:REASON:NODE",
    Key.LOSS_FAULT: "ATTEMPT:REASON:STEP:ACTION",
    Key.SUSPECTED_HANG: "ATTEMPT:STEP:SECONDS",
    Key.PROGRESS: "ATTEMPT:STEP:RATE",
    Key.STRAGGLER: "ATTEMPT:NODE",
    Key.CHECKPOINT: "the absolute path of a directory, without spaces",
}


def parse(comment: str) -> CommentRequest:
    """Return the requests in a Comment. Never raises: invalid keys and values are rejected."""
    values: dict[Key, str] = {}
    rejected: list[Rejected] = []
    if len(comment) > COMMENT_LIMIT:
        expected = f"at most {COMMENT_LIMIT} characters"
        return CommentRequest(rejected=(_rejected("Comment", comment, expected),))
    for word, value in _words(comment):
        key = _key(word)
        if key is None:
            continue
        if word != key:
            rejected.append(_rejected(word, value, f"{key}={_shown(value)}, spelled exactly"))
        elif _is_usable(key, value):
            values[key] = value
        else:
            rejected.append(_rejected(key, value, _EXPECTED[key]))
    resume, retries = values.get(Key.AUTO_RESUME), values.get(Key.MAX_RETRY)
    return CommentRequest(
        auto_resume=None if resume is None else int(resume) > 0,
        max_retry=None if retries is None else int(retries),
        mode=RestartMode(values.get(Key.MODE, RestartMode.REQUEUE)),
        requeue=_requeue_request(values[Key.REQUEUE_REQUEST])
        if Key.REQUEUE_REQUEST in values
        else None,
        checkpoint=values.get(Key.CHECKPOINT, ""),
        restart_reason=values.get(Key.RESTART_REASON, ""),
        loss=parse_loss(values.get(Key.LOSS_FAULT, "")),
        hang=parse_hang(values.get(Key.SUSPECTED_HANG, "")),
        progress=parse_progress(values.get(Key.PROGRESS, "")),
        straggler=parse_straggler(values.get(Key.STRAGGLER, "")),
        rejected=tuple(rejected[:REJECTED_LIMIT]),
    )


def changed(comment: str, changes: Mapping[Key, str | None]) -> str:
    """Return a Comment with other values for some keys; those with None are removed.

    Raises:
        ValueError: a value is invalid.

    """
    for key, value in changes.items():
        if value is not None and not _is_usable(key, value):
            raise ValueError(f"{key} must be {_EXPECTED[key]}, got {value!r}")
    text, rest = _split(comment)
    for key in changes:
        rest = re.sub(rf"(?<!\S){key}=\S*\s*", "", rest)
    if text is None:
        written = [f"{key}={value}" for key, value in changes.items() if value is not None]
        return " ".join(filter(None, (rest.rstrip(), *written)))
    section = text.pop(_SECTION, {})
    section = {**(section if isinstance(section, dict) else {}), **changes}
    section = {key: value for key, value in section.items() if value is not None}
    whole = {**text, **({_SECTION: section} if section else {})}
    return " ".join(filter(None, (json.dumps(whole), rest.strip())))


def noted(comment: str, note: str) -> str:
    """Return a Comment with another note for the owner of the job; empty removes it."""
    note = one_line(note.translate(_PLAIN), len(note))
    text, rest = _split(comment)
    if text is None:
        words = _NOTE.sub("", comment).rstrip()
        return " ".join(filter(None, (words, f"[holdfast: {note}]" if note else "")))
    section = text.pop(_SECTION, {})
    section = dict(section) if isinstance(section, dict) else {}
    section.pop(_NOTE_KEY, None)
    section |= {_NOTE_KEY: note} if note else {}
    whole = {**text, **({_SECTION: section} if section else {})}
    return " ".join(filter(None, (json.dumps(whole), rest.strip())))


def requeue_request(restarts: int, since: datetime) -> str:
    """Return the value of ``Key.REQUEUE_REQUEST`` of a run that began after so many requeues."""
    return f"{RestartMode.REQUEUE}:{restarts}:{since.timestamp():.0f}"


def restart_reason(restarts: int, reason: str, node: str) -> str:
    """Return the value of ``Key.RESTART_REASON`` of a run that begins after so many requeues."""
    return f"{restarts}:{_NO_WORD.sub('_', reason)[:100] or '_'}:{_NO_NODE.sub('', node)[:100]}"


def _rejected(key: str, value: str, expected: str) -> Rejected:
    return Rejected(key=key, value=_shown(value), expected=expected)


def _shown(value: str) -> str:
    """Return the beginning of a value as text that can be stored and printed."""
    return value[:_EXCERPT].encode("utf-8", "replace").decode()


def _requeue_request(value: str) -> RequeueRequest:
    found = _REQUEUE_REQUEST.fullmatch(value)
    if found is None or found[1] is None:
        return RequeueRequest()
    return RequeueRequest(restarts=int(found[1]), since=datetime.fromtimestamp(int(found[2]), UTC))


def _is_usable(key: Key, value: str) -> bool:
    match key:
        case Key.AUTO_RESUME | Key.MAX_RETRY:
            return _COUNT.fullmatch(value) is not None and int(value) <= MAX_RETRY_LIMIT
        case Key.MODE:
            return value in list(RestartMode)
        case Key.REQUEUE_REQUEST:
            return _REQUEUE_REQUEST.fullmatch(value) is not None
        case Key.RESTART_REASON:
            return _RESTART_REASON.fullmatch(value) is not None
        case Key.LOSS_FAULT:
            return parse_loss(value) is not None
        case Key.SUSPECTED_HANG:
            return parse_hang(value) is not None
        case Key.PROGRESS:
            return parse_progress(value) is not None
        case Key.STRAGGLER:
            return parse_straggler(value) is not None
        case Key.CHECKPOINT:
            is_printable = value.isprintable() and _BLANK.search(value) is None
            return value.startswith("/") and is_printable


def _key(word: str) -> Key | None:
    """Return the key that a word is, or nearly is."""
    letters = word.lower().replace("_", "-")
    return next((key for key in Key if key == letters), None)


def _words(comment: str) -> Iterator[tuple[str, str]]:
    """Yield all pairs that may be ours; later ones win."""
    text, rest = _split(_NOTE.sub(" ", comment))
    if text is not None:
        yield from _nvidias(text.get(_NVIDIAS))
        section = text.get(_SECTION)
        if isinstance(section, dict):
            yield from ((key, str(value)) for key, value in section.items() if key != _NOTE_KEY)
    for word in rest.split():
        key, equals, value = word.partition("=")
        if equals:
            yield key, value


def _nvidias(value: object) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        return
    if "auto_resume_mode" in value:
        mode = str(value["auto_resume_mode"])
        yield Key.AUTO_RESUME, {RestartMode.REQUEUE: "1", "none": "0"}.get(mode.lower(), mode)
    if "max_requeue_times" in value:
        yield Key.MAX_RETRY, str(value["max_requeue_times"])


def _split(comment: str) -> tuple[dict[str, object] | None, str]:
    """Split a Comment into its leading JSON object, if any, and the rest."""
    text = comment.strip()
    if len(text) > COMMENT_LIMIT or not text.startswith("{") or is_nested_deeply(text):
        return None, comment
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, comment
    return found, text[end:]
