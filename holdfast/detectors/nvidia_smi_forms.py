"""Parsers of the output of ``nvidia-smi``: ``-q -x`` (XML), ``-q`` (text), and the table.

All of them give the same: for each GPU its fields, as pairs of a path such as
``remapped_rows/pending`` and a value. Paths are in lower case, with ``_`` for blanks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.parsers import expat

LONGEST: Final = 16 * 1024 * 1024
"""Maximum number of characters of a document that are read; 16 GPUs have less than 1 million."""

_DEEPEST: Final = 30

Field = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU in the output."""

    address: str
    """Address as printed, e.g. ``00000000:B9:00.0``."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiLog:
    """One output of the tool."""

    gpus: tuple[Gpu, ...] = ()
    attached: int | None = None
    """Number of GPUs that the tool reports; None where it does not."""

    defect: str = ""
    """Defect of the output as a whole, e.g. that its end is missing."""


class _Refused(Exception):
    """The document has constructs that this tool never writes."""


class _XmlReader:
    """Collects the fields while expat reads."""

    def __init__(self) -> None:
        self.gpus: list[Gpu] = []
        self.attached = ""
        self.is_nvidia_smi = False
        self._path: list[str] = []
        self._fields: list[Field] = []
        self._address = ""
        self._text: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path:
            self.is_nvidia_smi = name == "nvidia_smi_log"
        self._path.append(name)
        if len(self._path) > _DEEPEST:
            raise _Refused
        if self._path == ["nvidia_smi_log", "gpu"]:
            self._address, self._fields = attributes.get("id", ""), []
        self._text = []

    def text(self, data: str) -> None:
        self._text.append(data)

    def end(self, _name: str) -> None:
        value = "".join(self._text).strip()
        self._text = []
        if self._path == ["nvidia_smi_log", "attached_gpus"]:
            self.attached = value
        if self._path == ["nvidia_smi_log", "gpu"]:
            self.gpus.append(Gpu(address=self._address, fields=tuple(self._fields)))
        elif self._path[:2] == ["nvidia_smi_log", "gpu"] and value:
            self._fields.append(("/".join(self._path[2:]).lower(), value))
        self._path.pop()

    def refuse(self, *_: object) -> None:
        raise _Refused


def read_xml(text: str) -> SmiLog:
    """Parse the output of ``nvidia-smi -q -x``; a truncated one is read up to its end."""
    if _shows_nothing(text):
        return SmiLog(attached=0)
    reader = _XmlReader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.refuse
    defect = ""
    try:
        parser.Parse(text[:LONGEST].encode("utf-8", errors="replace"), True)  # noqa: FBT003 - expat's
    except expat.ExpatError as error:
        defect = f"the document ends early or is damaged: {error}"
    except _Refused:
        defect = "the document declares entities or is nested too deeply"
    if not reader.is_nvidia_smi:
        return SmiLog(defect=defect or "not a document of nvidia-smi")
    return SmiLog(gpus=tuple(reader.gpus), attached=_number(reader.attached), defect=defect)


_GPU_HEADER: Final = re.compile(
    r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f.]{2,4})\s*$", re.M
)
_ATTACHED: Final = re.compile(r"^Attached GPUs {0,80}: {0,9}([0-9]{1,4})\s*$", re.M)
_LAST_SECTION: Final = ("processes", "capabilities")
"""Last sections of a GPU's part; a part without them was cut off."""

_TABLE: Final = "| NVIDIA-SMI "
_ROW: Final = re.compile(
    r"\| {1,9}(?P<index>[0-9]{1,3}) .{1,80}\| {0,3}"
    r"(?P<address>[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F.]{4}) "
    r"[^|]{0,40}\| {1,40}(?P<ecc>[^|]{1,30}?) {0,30}\|"
)
_ROW_BELOW: Final = re.compile(
    r"\| {0,9}(?P<fan>\S{1,9}) {1,9}(?P<temperature>\S{1,9}) {1,9}(?P<state>\S{1,9}) "
    r"{1,9}(?P<power>[^|]{1,40}?) {0,20}\|"
)


def read_text(text: str) -> SmiLog:
    """Parse the output of ``nvidia-smi -q``, or the table of ``nvidia-smi``."""
    text = text[:LONGEST]
    if _shows_nothing(text):
        return SmiLog(attached=0)
    if _TABLE in text:
        return _read_table(text)
    headers = list(_GPU_HEADER.finditer(text))
    starts = [header.start() for header in headers]
    ends = [*starts[1:], len(text)] if headers else []
    gpus = tuple(
        Gpu(address=header[1], fields=tuple(_text_fields(text[header.end() : end])))
        for header, end in zip(headers, ends, strict=True)
    )
    cut = [gpu.address for gpu in gpus if not _is_complete(gpu)]
    defect = f"the part of GPU {cut[0]} is incomplete" if cut else ""
    count = _ATTACHED.search(text)
    attached = None if count is None else int(count[1])
    if attached is not None and len(gpus) < attached:  # this form has no end mark
        defect = f"{len(gpus)} of {attached} GPUs are listed"
    return SmiLog(gpus=gpus, attached=attached, defect=defect)


def _text_fields(part: str) -> Iterator[Field]:
    """Yield the fields of one GPU; indentation marks sections."""
    sections: list[tuple[int, str]] = []
    for line in part.splitlines():
        name, _, value = line.partition(" : ")
        label = name.strip().lower().replace(" ", "_").removesuffix(":")
        indent = len(line) - len(line.lstrip())
        if not label:
            continue
        while sections and sections[-1][0] >= indent:
            sections.pop()
        if len(sections) >= _DEEPEST:
            return
        yield "/".join((*(section for _, section in sections), label)), value.strip()
        sections.append((indent, label))


def _is_complete(gpu: Gpu) -> bool:
    return any(path in _LAST_SECTION for path, _ in gpu.fields)


def _read_table(text: str) -> SmiLog:
    """Parse the table: two or three lines for each GPU; the second has fan, heat and power."""
    lines = text.splitlines()
    gpus = []
    for row, below in pairwise(lines):
        if (head := _ROW.match(row[:200])) is None:
            continue
        fields = [("ecc_errors/volatile/uncorrectable", head["ecc"])]
        if (rest := _ROW_BELOW.match(below[:200])) is not None:
            fields += [
                ("fan_speed", rest["fan"]),
                ("temperature/gpu", rest["temperature"]),
                ("performance_state", rest["state"]),
                ("power/draw", rest["power"].partition(" /")[0]),
            ]
        gpus.append(Gpu(address=head["address"], fields=tuple(fields)))
    is_whole = "| Processes:" in text and text.rstrip().endswith("+")
    return SmiLog(gpus=tuple(gpus), defect="" if is_whole else "the table is cut off")


def _shows_nothing(text: str) -> bool:
    """Return whether the output, in any form, is that of a driver without a GPU."""
    return text.strip() == "No devices were found"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None
