"""What a job asks for in its Comment: ``auto-resume=1 max-retry=3 mode=step``. Pure.

Words of other programs are left as they are. NVIDIA Mission Control's form is read, too:
``{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

MOST: Final = 1000
"""More restarts than that are a slip of the pen."""

_OURS: Final = "holdfast"
"""In a comment that is JSON, our words are the members of this object."""

_NVIDIAS: Final = "APS"
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_BLANK: Final = re.compile(r"\s")
_ASK: Final = re.compile(r"requeue(?::([0-9]{1,9}):([0-9]{1,11}))?")
_RESTART_REASON: Final = re.compile(r"[0-9]{1,9}:\w{1,100}:[^\s:=\[\]]{0,100}")
_NO_WORD: Final = re.compile(r"\W")
_NO_NODE: Final = re.compile(r"[\s:=\[\]]")
_NOTE: Final = re.compile(r"\s*\[holdfast: [^\[\]]*\]")
"""What the controller says to the owner, between words."""

_NOTE_KEY: Final = "note"
"""The same where the comment is JSON."""


_PLAIN: Final = str.maketrans({"[": "(", "]": ")", "=": ":", '"': "'"})
"""What would end a note, or begin a word of somebody's."""


class Key(StrEnum):
    """Our words."""

    AUTO_RESUME = "auto-resume"
    """1 to be resumed after a fault of a node, 0 not to be."""

    MAX_RETRY = "max-retry"
    """How often a fault of a node may cost the job a restart."""

    MODE = "mode"
    ASK = "ask"
    """Set by the supervisor alone, which cannot resume the step by itself: ``requeue``, or
    ``requeue:1:1763837400`` with the count of requeues before the run that is over, and the time at
    which its step ended, in seconds of the epoch."""

    RESTART_REASON = "restart-reason"
    """Set by the controller alone: ``1:NodeLost:node7``, the count of requeues with which the
    present run began, why the run before was stopped, and the node at fault."""

    CHECKPOINT = "checkpoint"
    """The directory of the job's checkpoints, in Megatron's layout."""


class Mode(StrEnum):
    """How a job is resumed."""

    REQUEUE = "requeue"
    """By the controller: the whole job again, on good nodes."""

    STEP = "step"
    """By the supervisor in the job: its step again, on the good nodes that it has."""

    SWAP = "swap"
    """By the supervisor in the job: its step again, when the same nodes are back."""

    RESIZE = "resize"
    """By the supervisor in the job: its step again, the bad nodes exchanged for idle ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Something of ours that cannot be used, and is treated as if it were not there."""

    key: str
    value: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A supervisor's request for a requeue."""

    restarts: int | None = None
    """The count of requeues before the run that is over; None if that is not said."""

    since: datetime | None = None
    """When the step ended; None if that is not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a comment says."""

    auto_resume: bool | None = None
    """None if it says nothing about that."""

    max_retry: int | None = None
    mode: Mode = Mode.REQUEUE
    ask: Ask | None = None
    checkpoint: str = ""
    restart_reason: str = ""
    """The value of that word; see ``restart_reason_of``."""

    rejected: tuple[Rejected, ...] = ()

    def asks_requeue(self, restarts: int) -> bool:
        """Whether the supervisor of the run with that count of requeues asks for another."""
        return self.ask is not None and self.ask.restarts in (None, restarts)

    def restart_reason_of(self, restarts: int) -> str:
        """Why the run before the one with that count of requeues was stopped; empty if unknown."""
        count, _, rest = self.restart_reason.partition(":")
        return rest.partition(":")[0] if count == str(restarts) else ""


_EXPECTED: Final = {
    Key.AUTO_RESUME: "1 or 0",
    Key.MAX_RETRY: f"a whole number from 0 to {MOST}",
    Key.MODE: ", ".join(Mode),
    Key.ASK: "requeue, or requeue:RESTARTS:SECONDS",
    Key.RESTART_REASON: "RESTARTS:REASON:NODE",
    Key.CHECKPOINT: "the absolute path of a directory, without blanks",
}


def parse(comment: str) -> Wish:
    """Read a comment. Never raises: what cannot be used is rejected."""
    values: dict[Key, str] = {}
    rejected: list[Rejected] = []
    for word, value in _words(comment):
        key = _key(word)
        if key is None:
            continue
        if word != key:
            said = f"{key}={value}"
            rejected.append(Rejected(key=word, value=value, expected=f"{said}, to the letter"))
        elif _is_usable(key, value):
            values[key] = value
        else:
            rejected.append(Rejected(key=key, value=value, expected=_EXPECTED[key]))
    resume, retries = values.get(Key.AUTO_RESUME), values.get(Key.MAX_RETRY)
    return Wish(
        auto_resume=None if resume is None else int(resume) > 0,
        max_retry=None if retries is None else int(retries),
        mode=Mode(values.get(Key.MODE, Mode.REQUEUE)),
        ask=_ask(values[Key.ASK]) if Key.ASK in values else None,
        checkpoint=values.get(Key.CHECKPOINT, ""),
        restart_reason=values.get(Key.RESTART_REASON, ""),
        rejected=tuple(rejected),
    )


def changed(comment: str, changes: Mapping[Key, str | None]) -> str:
    """A comment with other values for some of our words; those with None are taken out.

    Raises:
        ValueError: a value cannot be used.

    """
    for key, value in changes.items():
        if value is not None and not _is_usable(key, value):
            raise ValueError(f"{key} must be {_EXPECTED[key]}, got {value!r}")
    text, rest = _split(comment)
    for key in changes:
        rest = re.sub(rf"(?<!\S){key}=\S*\s*", "", rest)
    if text is None:
        said = [f"{key}={value}" for key, value in changes.items() if value is not None]
        return " ".join(filter(None, (rest.rstrip(), *said)))
    ours = text.pop(_OURS, {})
    ours = {**(ours if isinstance(ours, dict) else {}), **changes}
    ours = {key: value for key, value in ours.items() if value is not None}
    whole = {**text, **({_OURS: ours} if ours else {})}
    return " ".join(filter(None, (json.dumps(whole), rest.strip())))


def noted(comment: str, note: str) -> str:
    """A comment with another note for the owner of the job; empty takes it out."""
    plain = "".join(one if one.isprintable() else " " for one in note.translate(_PLAIN))
    said = " ".join(plain.split())
    text, rest = _split(comment)
    if text is None:
        words = _NOTE.sub("", comment).rstrip()
        return " ".join(filter(None, (words, f"[holdfast: {said}]" if said else "")))
    ours = text.pop(_OURS, {})
    ours = dict(ours) if isinstance(ours, dict) else {}
    ours.pop(_NOTE_KEY, None)
    ours |= {_NOTE_KEY: said} if said else {}
    whole = {**text, **({_OURS: ours} if ours else {})}
    return " ".join(filter(None, (json.dumps(whole), rest.strip())))


def ask_for(restarts: int, since: datetime) -> str:
    """The value of ``Key.ASK`` of a run that has begun after so many requeues."""
    return f"{Mode.REQUEUE}:{restarts}:{since.timestamp():.0f}"


def restart_reason(restarts: int, reason: str, node: str) -> str:
    """The value of ``Key.RESTART_REASON`` of a run that begins after so many requeues."""
    return f"{restarts}:{_NO_WORD.sub('_', reason)[:100] or '_'}:{_NO_NODE.sub('', node)[:100]}"


def _ask(value: str) -> Ask:
    found = _ASK.fullmatch(value)
    if found is None or found[1] is None:
        return Ask()
    return Ask(restarts=int(found[1]), since=datetime.fromtimestamp(int(found[2]), UTC))


def _is_usable(key: Key, value: str) -> bool:
    match key:
        case Key.AUTO_RESUME | Key.MAX_RETRY:
            return _COUNT.fullmatch(value) is not None and int(value) <= MOST
        case Key.MODE:
            return value in list(Mode)
        case Key.ASK:
            return _ASK.fullmatch(value) is not None
        case Key.RESTART_REASON:
            return _RESTART_REASON.fullmatch(value) is not None
        case Key.CHECKPOINT:
            return value.startswith("/") and _BLANK.search(value) is None


def _key(word: str) -> Key | None:
    """Which of our words this is, or is nearly."""
    letters = word.lower().replace("_", "-")
    return next((key for key in Key if key == letters), None)


def _words(comment: str) -> Iterator[tuple[str, str]]:
    """All that may be ours, in the order in which later words win."""
    text, rest = _split(_NOTE.sub(" ", comment))
    if text is not None:
        yield from _nvidias(text.get(_NVIDIAS))
        ours = text.get(_OURS)
        if isinstance(ours, dict):
            yield from ((key, str(value)) for key, value in ours.items() if key != _NOTE_KEY)
    for word in rest.split():
        key, equals, value = word.partition("=")
        if equals:
            yield key, value


def _nvidias(said: object) -> Iterator[tuple[str, str]]:
    if not isinstance(said, dict):
        return
    if "auto_resume_mode" in said:
        mode = str(said["auto_resume_mode"])
        yield Key.AUTO_RESUME, {Mode.REQUEUE: "1", "none": "0"}.get(mode.lower(), mode)
    if "max_requeue_times" in said:
        yield Key.MAX_RETRY, str(said["max_requeue_times"])


def _split(comment: str) -> tuple[dict[str, object] | None, str]:
    """The JSON object that a comment begins with, if it does, and the words after it."""
    text = comment.strip()
    if not text.startswith("{"):
        return None, comment
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, comment
    return found, text[end:]
