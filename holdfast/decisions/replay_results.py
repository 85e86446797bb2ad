"""Results of the same deterministic steps on two nodes, compared bit by bit: pure.

A replay prints a line for each step and device, and one that names what it ran on::

    holdfast: replay on torch 2.10.0, NVIDIA H100 80GB HBM3
    holdfast: replay 3 cuda:0 9f86d081884c7d65...
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

PRINTED: Final = "holdfast: replay"

_KIND: Final = re.compile(rf"{PRINTED} on (.{{1,300}})")
_STEP: Final = re.compile(rf"{PRINTED} (\d{{1,9}}) ([\w.:/-]{{1,100}}) ([0-9a-f]{{16,128}})")
_LINES: Final = 100_000
"""Maximum number of steps and devices of a replay."""

_SAME_WORK: Final = "cuda:"
"""Beginning of the names of devices of one node that do the same steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Results of one node."""

    kind: str = ""
    """What it ran on. Results of different kinds may differ."""

    digests: Mapping[str, str] = field(default_factory=dict)
    """Digest of the results of each step, by ``STEP DEVICE``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two nodes' results show."""

    is_equal: bool | None
    """None if they cannot be compared."""

    text: str


def parse_replay(text: str) -> Replay:
    """Return the results that a replay has printed, among other output."""
    kind = ""
    digests: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith(PRINTED):
            continue
        if (found := _KIND.fullmatch(line)) is not None:
            kind = found[1]
        elif (found := _STEP.fullmatch(line)) is not None and len(digests) < _LINES:
            digests[f"{found[1]} {found[2]}"] = found[3]
    return Replay(kind=kind, digests=digests)


def compared(here: Replay, there: Replay) -> Comparison:
    """Return whether the results of two nodes are equal, and where they first differ."""
    for side, one in (("this node", here), ("the other node", there)):
        if not one.digests:
            return Comparison(is_equal=None, text=f"{side} has no results")
        if (odd := _odd_device(one)) is not None:
            return Comparison(is_equal=False, text=f"{side}: {odd}")
    if here.kind != there.kind:
        text = f"different hardware or software: {here.kind or '-'}, and {there.kind or '-'}"
        return Comparison(is_equal=None, text=text)
    if here.digests.keys() != there.digests.keys():
        return Comparison(is_equal=None, text="the nodes have done different steps")
    wrong = [key for key, digest in here.digests.items() if there.digests[key] != digest]
    if not wrong:
        return Comparison(is_equal=True, text=f"{len(here.digests)} results are equal")
    step, _, device = min(wrong, key=_order).partition(" ")
    text = f"the results differ from step {step} on ({device}; {here.kind or 'unknown kind'})"
    return Comparison(is_equal=False, text=text)


def _odd_device(one: Replay) -> str | None:
    """Return which accelerator of a node differs from most others; None if none stands out."""
    by_step: dict[str, dict[str, str]] = {}
    for key, digest in one.digests.items():
        step, _, device = key.partition(" ")
        if device.startswith(_SAME_WORK):
            by_step.setdefault(step, {})[device] = digest
    for step, found in sorted(by_step.items(), key=lambda entry: int(entry[0])):
        usual, count = Counter(found.values()).most_common(1)[0]
        if count == len(found):
            continue
        odd = _listed(device for device, digest in found.items() if digest != usual)
        which = f"{odd} differ" if 2 * count > len(found) else "its accelerators differ"
        return f"{which} from step {step} on"
    return None


def _listed(devices: Iterable[str]) -> str:
    return ", ".join(sorted(devices)[:8])


def _order(key: str) -> tuple[int, str]:
    step, _, device = key.partition(" ")
    return int(step), device
