"""Decoder of XIDs 144 to 150, errors of NVLinks of the fifth generation (Blackwell).

The driver prints the failed unit, its severity, the link, and words in hexadecimal, of which the
first two are the interrupt's information and the error's status::

    RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 ..)

The actions are in the sheet "XID 144-150 Decode" of NVIDIA's XID catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, of October 2025). The unit's
number is in the lowest bits of the information, which drivers before R575 lay out in another way,
and bits 20 to 25 hold the reason for which a link went down.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

FIRST_NEW_DRIVER: Final = 575
"""First major version of the driver with the second layout."""

_LINE: Final = re.compile(
    r".*[ ,](?P<unit>[A-Z][A-Z0-9_/]{1,60}) {1,20}(?P<severity>Fatal|Nonfatal) {1,20}"
    r"XC[0-9] i[0-9] Link (?P<link>-?[0-9]{1,3}) "
    r"\(0x(?P<info>[0-9a-fA-F]{1,8}) 0x(?P<status>[0-9a-fA-F]{1,8})[ )]",
    re.DOTALL,  # the last one: a process name may look the same
)


class Advice(Enum):
    """Action of the sheet."""

    IGNORE = "ignore it"
    RESET = "reset the GPU"
    AWAIT = "follow XID 154"
    BY_SEVERITY = "reset the GPU if it is fatal, else ignore it"
    NONE = "no action listed"


@dataclass(frozen=True, slots=True)
class _Unit:
    """One unit of the sheet, with the actions of its statuses or its reasons."""

    code: int
    names: str
    first: str
    """Lowest bits of the information, in binary, with drivers before R575."""

    second: str
    """The same from R575 on."""

    by_status: Mapping[int, Advice]
    by_reason: Mapping[int, Advice] | None = None
    """Actions by bits 20 to 25, where given; elsewhere they are 0."""


def _advice(*, ignore: str = "", reset: str = "", wait: str = "") -> dict[int, Advice]:
    rows = ((ignore, Advice.IGNORE), (reset, Advice.RESET), (wait, Advice.AWAIT))
    return {int(value, 16): advice for values, advice in rows for value in values.split()}


_TLW: Final = _advice(ignore="1 2 80000000", reset="4")
_DOWN: Final = _advice(
    reset="0 1 2 4 a f 10 11 12 15 16 20 21 22 23 24 25 2a 2b",
    ignore="26 28",  # software of the node or its host took the link down
)
_RXPIPE: Final = dict.fromkeys((1, 2, 4), Advice.BY_SEVERITY)

# fmt: off
_UNITS: Final = (
    _Unit(144, "SAW_MVB", "0000100001", "0000001",
        _advice(ignore="1 4 8 20", reset="2 10")),
    _Unit(145, "RLW_CTRL", "0001100010", "0000011", _advice(ignore="80000000")),
    _Unit(145, "RLW_REMAP", "0010000010", "0000100",
        _advice(wait="1 2 4 8 10 20", reset="40 80", ignore="100 200 80000000")),
    _Unit(145, "RLW_RSPCOL", "0010100010", "0000101", _advice(ignore="1 80000000", reset="2")),
    _Unit(145, "RLW_RXPIPE", "00011000010", "00000110", _RXPIPE),
    _Unit(145, "RLW_RXPIPE", "0011000010", "0000110", _advice(ignore="8 80000000")),
    _Unit(145, "RLW_SRC_TRACK", "0011100010", "0000111",
        _advice(reset="1 10 20", wait="4 8", ignore="2 80000000")),
    _Unit(145, "RLW_TAGSTATE", "0100000010", "0001000",
        _advice(ignore="1 10000 80000000", reset="2 20000 100000")),
    _Unit(146, "TLW_CTRL", "0100100011", "0001001", _TLW),
    _Unit(146, "TLW_RX/TLW_RX_PIPE0", "0101000011", "0001010", _TLW),
    _Unit(146, "TLW_RX/TLW_RX_PIPE1", "0101000011", "0001011", _TLW),
    _Unit(146, "TLW_TX/TLW_TX_PIPE0", "0101100011", "0001100", _TLW),
    _Unit(146, "TLW_TX/TLW_TX_PIPE1", "0101100011", "0001101", _TLW),
    _Unit(147, "TREX", "0110000100", "0001110", _advice(ignore="1 80000000")),
    _Unit(148, "NVLPW_CTRL/NVLPW", "0000000101", "0001111", _advice(ignore="80000000")),
    _Unit(149, "NETIR/NETIR_INT", "0000000110", "0011000", _advice(reset="0")),
    _Unit(149, "NETIR_BER_EVENT", "1000100110", "0010011", _advice(ignore="0 1 2 3")),
    _Unit(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", "0111000110", "0010001", {}, _DOWN),
    _Unit(149, "NETIR_MFDE_EVENT", "1001000110", "0010100",
        _advice(ignore="3", reset="1 4 5 7")),
    _Unit(150, "MSE_WATCHDOG", "0000000000", "0000000", _advice(reset="0")),
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkError:
    """One such error."""

    unit: str
    is_fatal: bool
    """Severity that the driver reports."""

    link: int
    """-1 if it is not one link."""

    info: int
    status: int
    advice: Advice

    def __str__(self) -> str:
        severity = "fatal" if self.is_fatal else "not fatal"
        where = f"link {self.link}" if self.link >= 0 else "no single link"
        return (
            f"NVLink 5: {self.unit}, {severity}, {where}, information 0x{self.info:08x}, "
            f"status 0x{self.status:08x}; NVIDIA's decode sheet: {self.advice.value}"
        )


def decode(code: int, text: str, driver: int | None) -> LinkError | None:
    """Decode the ``text`` of the XID ``code``; None if it is not such a text.

    Args:
        code: 144 to 150.
        text: line after the code.
        driver: major version of the driver. If it is unknown, only actions on which both layouts
            agree apply.

    """
    line = _LINE.match(text)
    if line is None:
        return None
    info, status = int(line["info"], 16), int(line["status"], 16)
    is_fatal = line["severity"] == "Fatal"
    layouts = (1, 2) if driver is None else (1,) if driver < FIRST_NEW_DRIVER else (2,)
    found = {
        advice
        for unit in _UNITS
        for layout in layouts
        if unit.code == code
        and _is_named(unit, line["unit"])
        and (advice := _find_advice(unit, layout, info, status)) is not None
        and _fits(unit, advice, is_fatal=is_fatal)
    }
    advice = found.pop() if len(found) == 1 else Advice.NONE
    if advice is Advice.BY_SEVERITY:
        advice = Advice.RESET if is_fatal else Advice.IGNORE
    return LinkError(
        unit=line["unit"],
        is_fatal=is_fatal,
        link=int(line["link"]),
        info=info,
        status=status,
        advice=advice,
    )


def _is_named(unit: _Unit, name: str) -> bool:
    """Return whether a name is one of the unit's; NETIR alone stands for each of its parts."""
    names = set(unit.names.split("/"))
    return not names.isdisjoint(name.split("/")) or (
        name == "NETIR" and unit.names.startswith("NETIR")
    )


def _fits(unit: _Unit, advice: Advice, *, is_fatal: bool) -> bool:
    """Return whether severity and reset agree: in the sheet the GPU is reset after fatal errors."""
    if advice is Advice.BY_SEVERITY:
        return True
    return is_fatal is (advice is Advice.RESET or unit.by_reason is not None)


def _find_advice(unit: _Unit, layout: int, info: int, status: int) -> Advice | None:
    bits = unit.first if layout == 1 else unit.second
    reason = info >> 20 & 0x3F
    if info & ((1 << len(bits)) - 1) != int(bits, 2):
        return None
    if unit.by_reason is not None:
        return unit.by_reason.get(reason) if status == 0 else None
    return unit.by_status.get(status) if reason == 0 else None
