"""Writes the definitions in the schema of the Helm chart's values from the code.

The keys of the agent's and of the controller's configuration are described once, where they are
read. With ``--check`` it only reports whether the schema is stale.

Exit code: 0 if it is fresh (or was written), 1 if ``--check`` found it stale.
"""

import json
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from render_reference import docs_under_names, shown_default
from values_limits import LIMITS, PAIRS, tried_limits

from holdfast.apps.agent.config import AgentConfig, ListenAddress
from holdfast.apps.controller.config import ControllerConfig
from holdfast.detectors.corroborations import CORROBORATED
from holdfast.detectors.table import detectors
from holdfast.kit.quota import Quota

ROOT: Final = Path(__file__).parents[1]
SCHEMA: Final = ROOT / "deploy" / "helm" / "holdfast" / "values.schema.json"

SET_BY_CHART: Final[Mapping[str, tuple[str, ...]]] = {
    "AgentConfig": ("node", "root", "report_dir", "log", "telemetry", "kubernetes", "slurm"),
    "ControllerConfig": ("platform", "listen", "probes", "slurm"),
    "KubernetesSettings": (
        "kubeconfig",
        "context",
        "namespace",
        "agent_namespace",
        "label_prefix",
    ),
    "ElectionSettings": ("lease",),
}
"""Keys that are no values: the chart has to know them itself, or has no use for them."""

_SCALARS: Final[Mapping[type, Mapping[str, object]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Path: {"type": "string", "minLength": 1},
    datetime: {
        "type": "string",  # "format" is not checked by Helm
        "pattern": r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3])"
        r"(:[0-5][0-9]){2}(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$",
    },
    timedelta: {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"},
    Quota: {
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": r"^([0-9]+|([0-9]{1,2}(\.[0-9]+)?|100(\.0+)?)\s*%)$",
    },
    ListenAddress: {"type": ["integer", "string"]},
}


def schema() -> str:
    """The schema of the chart's values, with its definitions anew."""
    whole = json.loads(SCHEMA.read_text(encoding="utf-8"))
    agent = _table(AgentConfig)
    keys = agent["properties"]
    detector = keys["detectors"].pop("additionalProperties")
    names = [one.name for one in detectors(AgentConfig().profile)]
    keys["detectors"] |= _closed({name: _reference(name) for name in names})
    remedy = keys["xid"].pop("additionalProperties")
    keys["xid"] |= {"patternProperties": {"^[0-9]+$": remedy}, "additionalProperties": False}
    whole["definitions"] = {
        "agentConfig": agent,
        "detector": _uncorroborated(detector),
        "corroboratedDetector": detector,
        "controllerConfig": _table(ControllerConfig),
    }
    return json.dumps(whole, indent=2) + "\n"


def _reference(detector: str) -> dict[str, Any]:
    name = "corroboratedDetector" if detector in CORROBORATED else "detector"
    return {"$ref": f"#/definitions/{name}"}


def _uncorroborated(detector: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a detector whose findings no other reading supports."""
    about = f"Only for {', '.join(CORROBORATED)}."
    keys = detector["properties"] | {"needs_corroboration": {"description": about, "const": False}}
    return {**detector, "properties": keys}


def _table(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    docs = docs_under_names(kind)
    shown = [one for one in fields(kind) if one.name not in SET_BY_CHART.get(kind.__name__, ())]
    properties = {}
    for one in shown:
        default = shown_default(one)
        about = docs.get(one.name) or _about(hints[one.name])
        about += "" if default in ("", "``", "`required`") else f" Default: {default}."
        more = LIMITS.get((kind.__name__, one.name)) or tried_limits(
            kind, one.name, hints[one.name]
        )
        properties[one.name] = {"description": about, **_of(hints[one.name]), **more}
    required = [one.name for one in shown if one.default is one.default_factory is MISSING]
    needed = {"required": required} if required else {}
    return {**_closed(properties), **needed, **PAIRS.get(kind.__name__, {})}


def _closed(properties: Mapping[str, object]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _about(kind: Any) -> str:
    """What a table is for, of a key without a docstring."""
    return str(_plain(kind).__doc__).partition("\n\n")[0].replace("\n", " ").replace("``", "`")


def _of(kind: Any) -> dict[str, Any]:
    kind = _plain(kind)
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _of(get_args(kind)[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": _of(get_args(kind)[1])}
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    if issubclass(kind, Enum):
        return {"enum": [one.value for one in kind]}
    if is_dataclass(kind):
        return _table(kind)
    raise TypeError(f"{kind} has no form in a schema: add it to _SCALARS")


def _plain(kind: Any) -> Any:
    """The type that remains of ``X | None``."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    return next(one for one in get_args(kind) if one is not types.NoneType)


def main(argv: list[str]) -> int:
    """Write the schema, or check it."""
    text = schema()
    is_fresh = SCHEMA.read_text(encoding="utf-8") == text
    if "--check" in argv and not is_fresh:
        print(f"stale: {SCHEMA.relative_to(ROOT)}; run: make reference")
        return 1
    if not is_fresh:
        SCHEMA.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
