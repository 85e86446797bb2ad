"""Reader of the part of YAML that kubectl writes into kubeconfig files.

Importing PyYAML takes an eighth of the CPU time of ``nodes list``, so commands try this
first: mappings and lists in block style whose texts need no quotes. All else is left to PyYAML.
"""

import re
from typing import Any, Final

_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<item>- )?(?:(?P<key>[A-Za-z][\w./-]*):(?: |$))?(?P<value>[^ ].*)?", re.ASCII
)
_TEXT: Final = re.compile(
    r"(?:--?)?[A-Za-z/][\w./:@+=-]*(?<!:)|\d[\w./@+=-]*[G-NP-SU-WYg-np-su-wy][\w./@+=-]*", re.ASCII
)
"""Scalars that are texts without quotes.

One that begins with a digit may be a number or a date, unless it has a letter that neither has.
"""

_VALUES: Final = {"true": True, "false": False, "null": None}
_WORDS: Final = frozenset((*_VALUES, "y", "n", "yes", "no", "on", "off"))
"""Words that YAML 1.1 reads as other values than texts, some of them in some cases only."""

_EMPTY: Final = {"{}": dict, "[]": list}
_INDICATOR: Final = "- "


class NotPlain(ValueError):
    """The text contains other YAML, or is not YAML."""


class _Line:
    """Line of a text; ``indent`` is in characters."""

    def __init__(self, text: str) -> None:
        match = _LINE.fullmatch(text)
        if match is None or not (match["key"] or match["value"]):
            raise NotPlain
        self.indent = len(match["indent"])
        self.is_item = match["item"] is not None
        self.key: str = match["key"] or ""
        self.value: str = match["value"] or ""
        if self.key.lower() in _WORDS:
            raise NotPlain


def parse_plain_yaml(text: str) -> Any:
    """Return the value of a text, as ``yaml.safe_load`` does.

    Raises:
        NotPlain: the text must be read with PyYAML.

    """
    lines = [_Line(line) for line in reversed(text.split("\n")) if line]
    value = _block(lines, 0)
    if lines:
        raise NotPlain
    return value


def _block(lines: list[_Line], indent: int) -> Any:
    """Return the list or mapping that begins at this indent, and remove its lines.

    The first line is the last of ``lines``.
    """
    if lines and lines[-1].is_item:
        return _items(lines, indent)
    found: dict[str, Any] = {}
    while lines and lines[-1].indent == indent and not lines[-1].is_item and lines[-1].key:
        line = lines.pop()
        found[line.key] = _scalar(line.value) if line.value else _nested(lines, indent)
    if not found:
        raise NotPlain
    return found


def _items(lines: list[_Line], indent: int) -> list[Any]:
    found = []
    while lines and lines[-1].indent == indent and lines[-1].is_item:
        line = lines[-1]
        if line.key:  # the first key of a mapping, indented like its others
            line.is_item, line.indent = False, indent + len(_INDICATOR)
            found.append(_block(lines, line.indent))
        else:
            found.append(_scalar(lines.pop().value))
    return found


def _nested(lines: list[_Line], indent: int) -> Any:
    """Return the value of a key that has none on its line."""
    if not lines:
        return None
    line = lines[-1]
    is_nested = line.indent > indent or (line.indent == indent and line.is_item)
    return _block(lines, line.indent) if is_nested else None


def _scalar(text: str) -> Any:
    if text in _EMPTY:
        return _EMPTY[text]()
    if text in _VALUES:
        return _VALUES[text]
    if _TEXT.fullmatch(text) is None or text.lower() in _WORDS:
        raise NotPlain
    return text
