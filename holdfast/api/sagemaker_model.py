"""Validation of requests and responses by AWS's own service models."""

import gc
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from botocore.loaders import Loader

from holdfast.api.problems import NotReadable, UnknownOperation, ValidationException

Json = dict[str, Any]

_SERVICE: Final = "sagemaker"

_SOURCE: Final = "LifecycleSource"
_ANY_SOURCE: Final = "(https|s3)://([^/]+)/?(.*)|(file://)?/.*"
"""Pattern of the URI of lifecycle scripts: local directories are allowed, too."""
_SHOWN: Final = 200
"""Maximum characters of an invalid value that the response repeats."""

_BITS: Final = {"integer": 31, "long": 63}
"""Largest number of a type, as Java names it."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "map": (dict,),
    "structure": (dict,),
    "timestamp": (int, float, str),
}


@cache
def _loaded(service: str) -> Mapping[str, Any]:
    model: Mapping[str, Any] = Loader().load_service_model(service, "service-2")
    if service == _SERVICE:
        scripts = model["shapes"]["ClusterLifeCycleConfig"]["members"]["SourceS3Uri"]
        model["shapes"][_SOURCE] = {**model["shapes"][scripts["shape"]], "pattern": _ANY_SOURCE}
        scripts["shape"] = _SOURCE
    gc.freeze()  # 80,000 permanent objects: collecting them costs 50 ms each time
    return model


class AwsModel:
    """Service model that botocore ships; loaded once by a process, on first use."""

    def __init__(self, service: str) -> None:
        self._service = service

    @property
    def _model(self) -> Mapping[str, Any]:
        return _loaded(self._service)

    @property
    def operations(self) -> Sequence[str]:
        """Names of all operations."""
        return sorted(self._model["operations"])

    def read(self, operation: str, request: Any) -> Json:
        """Validated request, with its timestamps parsed.

        Members that are unknown to the model are dropped, as in AWS.

        Raises:
            UnknownOperation: no operation has that name.
            NotReadable: a member has the wrong type.
            ValidationException: the request is invalid; the message names every problem.

        """
        shape = self._shape_of(operation, "input")
        problems = list(self._problems(shape, request, ""))
        if problems:
            many = "error" if len(problems) == 1 else "errors"
            raise ValidationException(
                f"{len(problems)} validation {many} detected: {'; '.join(problems)}"
            )
        return dict(self._read(shape, request))

    def unknown_members(
        self, operation: str, request: Any
    ) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Unknown members: their path, their names, and the known names."""
        yield from self._unknown_members(self._shape_of(operation, "input"), request, "")

    def write(self, operation: str, response: Json) -> Json:
        """Response in wire format: timestamps in seconds, None values omitted.

        Raises:
            ValueError: the response lacks a required member, or has an unknown one.

        """
        return dict(self._write(self._shape_of(operation, "output"), response, operation))

    def _shape_of(self, operation: str, direction: str) -> Mapping[str, Any]:
        try:
            found = self._model["operations"][operation]
        except KeyError:
            what = f"no operation {operation[:_SHOWN]!r}"
            raise UnknownOperation(f"the service {self._service} has {what}") from None
        return self._shape(found[direction]) if direction in found else {"type": "structure"}

    def _shape(self, member: Mapping[str, Any]) -> Mapping[str, Any]:
        shape: Mapping[str, Any] = self._model["shapes"][member["shape"]]
        return shape

    def _problems(self, shape: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
        kind = shape["type"]
        if not _is_of(kind, value):
            raise NotReadable(_type_error(value, path, kind))
        if (limit := _limit(shape, value)) is not None:
            yield _failed(value, path, limit)
            return
        match kind:
            case "structure":
                yield from self._problems_in_members(shape, value, path)
            case "list":
                member = self._shape(shape["member"])
                for number, item in enumerate(value, 1):
                    yield from self._problems(member, item, f"{path}.{number}.member")
            case "map":
                for key, item in value.items():
                    yield from self._problems(self._shape(shape["key"]), key, f"{path}.key")
                    yield from self._problems(self._shape(shape["value"]), item, f"{path}.{key}")
            case "timestamp" if _time(value) is None:
                raise NotReadable(_type_error(value, path, kind))

    def _problems_in_members(
        self, shape: Mapping[str, Any], value: Json, path: str
    ) -> Iterator[str]:
        members = shape.get("members", {})
        for name in shape.get("required", ()):
            if value.get(name) is None:
                yield f"Value at '{_joined(path, name)}' {_RULE}: Member must not be null"
        given = [name for name in members if value.get(name) is not None]
        if shape.get("union") and len(given) != 1:
            yield _failed(value, path or ".", f"Member must have exactly one of {list(members)}")
        for name in given:
            yield from self._problems(self._shape(members[name]), value[name], _joined(path, name))

    def _unknown_members(
        self, shape: Mapping[str, Any], value: Any, path: str
    ) -> Iterator[tuple[str, str, Sequence[str]]]:
        if shape["type"] == "structure" and isinstance(value, dict):
            members = shape.get("members", {})
            for name, item in value.items():
                if name in members:
                    member = self._shape(members[name])
                    yield from self._unknown_members(member, item, _joined(path, name))
                else:
                    yield path, name, list(members)
        elif shape["type"] == "list" and isinstance(value, list):
            member = self._shape(shape["member"])
            for number, item in enumerate(value, 1):
                yield from self._unknown_members(member, item, f"{path}.{number}.member")

    def _read(self, shape: Mapping[str, Any], value: Any) -> Any:
        match shape["type"]:
            case "structure":
                members = shape.get("members", {})
                return {
                    name: self._read(self._shape(members[name]), item)
                    for name, item in value.items()
                    if name in members and item is not None
                }
            case "list":
                member = self._shape(shape["member"])
                return [self._read(member, item) for item in value]
            case "timestamp":
                return _time(value)
        return value

    def _write(self, shape: Mapping[str, Any], value: Any, path: str) -> Any:
        match shape["type"]:
            case "structure":
                members = shape.get("members", {})
                present = {name: item for name, item in value.items() if item is not None}
                if unknown_members := present.keys() - members.keys():
                    raise ValueError(f"{path}: unknown members {sorted(unknown_members)}")
                if lacking := set(shape.get("required", ())) - present.keys():
                    raise ValueError(f"{path}: missing members {sorted(lacking)}")
                return {
                    name: self._write(self._shape(members[name]), item, f"{path}.{name}")
                    for name, item in present.items()
                }
            case "list":
                member = self._shape(shape["member"])
                return [self._write(member, item, path) for item in value]
            case "timestamp":
                return value.timestamp()
        return value


class SageMakerModel(AwsModel):
    """Service model of SageMaker, which also allows local directories of scripts."""

    def __init__(self) -> None:
        super().__init__(_SERVICE)


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        return kind == "boolean" and isinstance(value, bool)
    return kind not in _BITS or -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]


def _type_error(value: Any, path: str, kind: str) -> str:
    return f"'{_shown(value)}' at '{path or '.'}' can not be converted to {kind}"


_RULE: Final = "failed to satisfy constraint"


def _failed(value: Any, path: str, rule: str) -> str:
    return f"Value '{_shown(value)}' at '{path}' {_RULE}: {rule}"


def _shown(value: Any) -> str:
    """Value as text, truncated at any length and depth."""
    text = value if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _joined(path: str, name: str) -> str:
    """Path in AWS's spelling: with a lower-case first letter."""
    member = name[:1].lower() + name[1:]
    return f"{path}.{member}" if path else member


def _limit(shape: Mapping[str, Any], value: Any) -> str | None:
    """Constraint of its shape that a value of the right type violates; None if it is valid."""
    kind = shape["type"]
    least, most = shape.get("min"), shape.get("max")
    if kind in ("integer", "long", "float", "double"):
        size, what = value, "have value"
    elif kind in ("string", "list", "map"):
        size, what = len(value), "have length"
    else:
        return None
    if least is not None and size < least:
        return f"Member must {what} greater than or equal to {least}"
    if most is not None and size > most:
        return f"Member must {what} less than or equal to {most}"
    if kind != "string":
        return None
    if "enum" in shape and value not in shape["enum"]:
        return f"Member must satisfy enum value set: [{', '.join(shape['enum'])}]"
    pattern = shape.get("pattern")
    if pattern is not None and _compiled(pattern).fullmatch(value) is None:
        return f"Member must satisfy regular expression pattern: {pattern}"
    return None


_BLANKS: Final = " \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode category Z, for a character class."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled pattern of the model, a Java pattern: its Unicode classes are expanded."""
    return re.compile(re.sub(r"\\p\{\w+\}", r"\\w", pattern.replace(r"\p{Z}", _BLANKS)))


def _time(value: Any) -> datetime | None:
    """Timestamp sent by a client: seconds since 1970, or ISO 8601; None if invalid."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
