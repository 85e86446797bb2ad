"""Flight recorders as PyTorch dumps them, and as ``adapters.host.own_dumps`` prints them. Pure."""

import base64
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.decisions.flight_recorder import Collective, RankTrace
from holdfast.decisions.rank_snapshots import Frame
from holdfast.kit.bounded_files import parse_json

TRACES_LIMIT: Final = 1 << 18
"""Maximum size in bytes of the output of ``own_dumps`` in one container."""

_UNPACKED: Final = 1 << 21
_RANKS_LIMIT: Final = 64
_ENTRIES_LIMIT: Final = 20_000
_FRAMES_LIMIT: Final = 50
_HEADING: Final = "\n== traces\n"

INVALID: Final = (
    KeyError, ValueError, TypeError, IndexError, EOFError, AttributeError, OverflowError,
    RecursionError, struct.error,
)  # fmt: skip
"""Errors that a dump raises if it is damaged, or has values that no recorder writes."""


def split_traces(text: str) -> tuple[str, str]:
    """Return an output without its flight recorders, and these; empty if there are none."""
    rest, heading, traces = f"\n{text}".rpartition(_HEADING)
    return (rest.removeprefix("\n"), traces) if heading else (text, "")


def printed_traces(traces: str) -> tuple[RankTrace, ...]:
    """Return the traces of the ranks of a container; one that is not valid counts as missing.

    Args:
        traces: second part of ``split_traces``; the job may have written it.

    """
    try:
        packed = base64.b64decode("".join(traces.split()), validate=True)
        by_rank = parse_json(zlib.decompressobj().decompress(packed, _UNPACKED))
        ranks = [(int(rank), plain) for rank, plain in by_rank.items()]
    except (*INVALID, zlib.error):
        return ()
    found = [_valid(rank, plain) for rank, plain in ranks[:_RANKS_LIMIT] if 0 <= rank < 10**6]
    return tuple(one for one in found if one is not None)


def distinct(traces: Sequence[RankTrace]) -> tuple[RankTrace, ...]:
    """Return one trace of each rank, in rank order.

    The process that starts a rank in a pod may have the number of another rank, and its dumps.
    """
    first = {one.rank: one for one in reversed(traces)}
    return tuple(first[rank] for rank in sorted(first))


def _valid(rank: int, plain: Mapping[str, Any]) -> RankTrace | None:
    try:
        return trace_of(rank, plain)
    except INVALID:
        return None


def trace_of(rank: int, plain: Mapping[str, Any]) -> RankTrace:
    """Return the trace of a rank.

    Args:
        rank: the rank.
        plain: its dump.

    Raises:
        Exception: one of ``INVALID``, if it is not what a recorder dumps.

    """
    entries = [one for one in plain.get("entries", ()) if not one.get("is_p2p")]
    members = {
        _group(_text(one["name"]), _text(one["desc"])): frozenset(
            map(int, re.findall(r"\d{1,9}", _text(one["ranks"])))
        )
        for one in plain.get("pg_config", {}).values()
        if one["name"]
    }
    return RankTrace(
        rank=rank,
        collectives=tuple(map(_collective, entries[-_ENTRIES_LIMIT:])),
        members=members,
    )


def _collective(entry: Mapping[str, Any]) -> Collective:
    name, description = entry["process_group"]
    return Collective(
        group=_group(_text(name), _text(description)),
        sequence=int(entry["collective_seq_id"]),
        operation=_text(entry["profiling_name"])[:100],
        sizes=tuple(tuple(map(int, size)) for size in entry["input_sizes"]),
        dtypes=tuple(map(_text, entry.get("input_dtypes", ()))),
        is_over=_is_over(entry),
        frames=_frames(entry.get("frames", ())),
    )


def _is_over(entry: Mapping[str, Any]) -> bool:
    """Gloo retires completed collectives; NCCL also retires those that timed out."""
    is_gloo = _text(entry["profiling_name"]).startswith("gloo:")
    return entry["state"] == "completed" or (is_gloo and bool(entry.get("retired")))


def _group(name: str, description: str) -> str:
    return description if description == "default_pg" else f"{description or 'group'} {name}"


def _frames(frames: Sequence[Mapping[str, Any]]) -> tuple[Frame, ...]:
    return tuple(
        Frame(
            function=_text(one["name"])[:200],
            file=_text(one["filename"])[:500],
            line=int(one["line"]),
        )
        for one in frames[:_FRAMES_LIMIT]
    )


def _text(value: object) -> str:
    """Return a string or number as a string: that of nested lists may be very long.

    Raises:
        TypeError: it is another value.

    """
    if not isinstance(value, str | int):
        raise TypeError(f"expected a string or a number, got {type(value).__name__}")
    return str(value)
