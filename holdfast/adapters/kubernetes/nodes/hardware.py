"""Devices of a node as an annotation: pure.

They are compressed, and in an annotation of their own: a node with 8 GPUs and 32 network devices
has 9 KB of them, and who lists thousands of nodes for another purpose must not read that.
"""

import base64
import json
import zlib
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.hardware import DeviceGroup
from holdfast.model.names import HARDWARE

_TEXT_LIMIT: Final = 64 * 1024
"""Maximum length of the annotation, in characters."""

_JSON_LIMIT: Final = 1024 * 1024
"""Maximum size of its content, in bytes."""


def pack(hardware: tuple[DeviceGroup, ...]) -> str | None:
    """Return the value of the annotation; None without devices, and for too many to store."""
    if not hardware:
        return None
    text = json.dumps(to_plain(hardware), separators=(",", ":"), ensure_ascii=False)
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")
    return packed if len(packed) <= _TEXT_LIMIT else None


def unpack(node: Json) -> tuple[DeviceGroup, ...]:
    """Return the devices in the annotation of a Node object; empty if it is missing or invalid."""
    text = (node["metadata"].get("annotations") or {}).get(HARDWARE)
    if not isinstance(text, str) or len(text) > _TEXT_LIMIT:
        return ()
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(base64.b64decode(text, validate=True), _JSON_LIMIT)
        return parse_value(tuple[DeviceGroup, ...], content)
    except (ValueError, zlib.error):
        return ()
