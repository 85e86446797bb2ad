"""Parses saved node lists: the text and the JSON of every supported Slurm version. Pure.

The controller itself uses ``SHOW_NODES``, whose output is the same in all versions.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from holdfast.adapters.slurm.commands.node_text import NodeFacts, parse_nodes
from holdfast.adapters.slurm.commands.reasons import parse_reason

_HOW: Final = "save them with: scontrol show node, or with --json"
_BEGIN: Final = "NodeName="
_STATE: Final = re.compile(r"\bState=[A-Z]")


def parse_saved(text: str) -> dict[str, NodeFacts]:
    """Return the nodes in a file, by name.

    It may hold the output of ``scontrol show node``, with ``-o``, with ``--json`` (since 23.02) or
    plain, or of ``sinfo --json`` of 22.05.

    Raises:
        ValueError: the file holds none of these; with the position and what was expected there.

    """
    found = _of_json(text) if text.lstrip()[:1] in ("{", "[") else _of_text(text)
    nodes: dict[str, NodeFacts] = {}
    for place, node in found:
        if node.name in nodes:
            raise ValueError(f"{place}: node {node.name} is duplicated")
        nodes[node.name] = node
    if not nodes:
        raise ValueError(f"it contains no node; {_HOW}")
    return nodes


def _of_text(text: str) -> Iterator[tuple[str, NodeFacts]]:
    begins, node = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_BEGIN):
            yield from _parsed(begins, node)
            begins, node = number, line
        elif node and (not line or line[0].isspace()):
            node += f" {line.strip()}"
        elif line.strip():
            raise ValueError(f"line {number}: {line[:60]!r} does not start a node; {_HOW}")
    yield from _parsed(begins, node)


def _parsed(number: int, node: str) -> Iterator[tuple[str, NodeFacts]]:
    if not node:
        return
    if not _STATE.search(node):
        raise ValueError(f"line {number}: State is missing in {node[:60]!r}; is it cut off?")
    for facts in parse_nodes(node).values():
        yield f"line {number}", facts


def _of_json(text: str) -> Iterator[tuple[str, NodeFacts]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    nodes = whole.get("nodes") if isinstance(whole, dict) else None
    if not isinstance(nodes, list):
        why = "sinfo of this version does not list nodes one by one; " if "sinfo" in whole else ""
        raise ValueError(f"nodes: missing, expected a list; {why}{_HOW}")
    for number, node in enumerate(nodes):
        place = f"nodes[{number}]"
        if not isinstance(node, dict):
            raise ValueError(f"{place}: {str(node)[:60]!r}, expected an object")
        yield place, _node(place, node)


def _node(place: str, node: Mapping[str, Any]) -> NodeFacts:
    name, partitions = _text(place, node, "name"), node.get("partitions") or ()
    if not name:
        raise ValueError(f"{place}.name: missing, expected the name of the node")
    if not isinstance(partitions, list | tuple):
        raise ValueError(f"{place}.partitions: {partitions!r}, expected a list")
    reason = _text(place, node, "reason")
    who, when = _text(place, node, "reason_set_by_user"), _time(place, node, "reason_changed_at")
    boot, slurmd = _time(place, node, "boot_time"), _time(place, node, "slurmd_start_time")
    return NodeFacts(
        name,
        _state(place, node),
        parse_reason(reason),
        f"{who}@{when}" if reason else "",
        f"{boot}/{slurmd}",
        _text(place, node, "instance_id"),
        _text(place, node, "address"),
        next(iter(map(str, partitions)), ""),
    )


def _state(place: str, node: Mapping[str, Any]) -> frozenset[str]:
    """Return state and flags: in 22.05 a text and a list, in later versions one list."""
    state, flags = node.get("state"), node.get("state_flags", [])
    words = [state] if isinstance(state, str) else state
    for key, value in (("state", words), ("state_flags", flags)):
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            found = "missing" if value is None else repr(value)[:60]
            raise ValueError(f"{place}.{key}: {found}, expected states such as IDLE, DRAIN")
    if not words:
        raise ValueError(f"{place}.state: empty, expected states such as IDLE, DRAIN")
    return frozenset(word.upper() for word in (*words, *flags))


def _text(place: str, node: Mapping[str, Any], key: str) -> str:
    value = node.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{place}.{key}: {value!r}, expected text")
    return value or ""


def _time(place: str, node: Mapping[str, Any], key: str) -> str:
    """Return seconds of the epoch, written as ``7`` or as ``{"set": true, "number": 7}``."""
    value = node.get(key, 0)
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set") else 0
    try:
        return datetime.fromtimestamp(value).astimezone().strftime("%FT%T") if value else ""
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{place}.{key}: {value!r}, expected seconds of the epoch") from error
