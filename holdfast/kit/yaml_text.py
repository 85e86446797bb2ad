"""Output of plain values (of ``to_plain``) as YAML 1.1 and 1.2, for people to read.

Only writing is needed, so that a command need not load a YAML library: that takes longer than most
commands do.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z_/][\w./@+-]*(?: [\w./@+-]+)*", re.ASCII)
_RESERVED: Final = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
"""Scalars that are not strings when unquoted."""


def to_yaml(value: Any) -> str:
    """Return a document in block style, with a newline at its end; maps keep their order."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if _is_nested(item):
                yield f"{_scalar(str(key))}:"
                yield from (f"  {line}" for line in _lines(item))
            else:
                yield f"{_scalar(str(key))}: {_scalar(item)}"
    elif isinstance(value, list | tuple) and value:
        for item in value:
            indicator = "- "
            for line in _lines(item):
                yield indicator + line
                indicator = "  "
    else:
        yield _scalar(value)


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: Any) -> str:
    match value:
        case str():
            return value if _is_bare(value) else _quoted(value)
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else f"{'-' * (value < 0)}.inf"
        case float():
            text = repr(value)  # in YAML 1.1, 1e-05 is a string
            return text if "." in text else text.replace("e", ".0e")
        case Mapping():
            return "{}"
        case Sequence():
            return "[]"
    return json.dumps(value)


def _is_bare(text: str) -> bool:
    return _BARE.fullmatch(text) is not None and text.lower() not in _RESERVED


def _quoted(text: str) -> str:
    """Return a string as in JSON, but with one escape for a character beyond the basic plane."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
