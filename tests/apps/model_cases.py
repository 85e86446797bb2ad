"""Requests made from SageMaker's service model: right ones, and ones with a single mistake."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape

MODEL = ServiceModel(Loader().load_service_model("sagemaker", "service-2"))
UNREADABLE = "SerializationException"
WRONG = "ValidationException"
WIDEST = 200
"""Lists longer than that are not made to see that they are too long."""

EXAMPLES = (
    "a1", "1", "i-0123456789abcdef0", "arn:aws:iam::123456789012:role/SageMakerRole",
    "arn:aws:sagemaker:us-east-1:123456789012:cluster/0123456789ab",
    "arn:aws:sagemaker:us-east-1:123456789012:training-plan/a",
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:a",
    "arn:aws:eks:us-east-1:123456789012:cluster/a", "arn:aws:kms:us-east-1:123456789012:key/a",
    "00000000-0000-4000-8000-000000000000", "ami-0123456789abcdef0", "s3://sagemaker-a/b",
    "https://a/b", "subnet-01234567", "sg-01234567", "cron(0 0 1 * ? *)", "fs-01234567",
    "fs-01234567.fsx.us-east-1.amazonaws.com", "/a", "1.0.0", "us-east-1a", "012345678901",
)  # fmt: skip
"""One of them fits any text of the requests of clusters."""

MISFITS = ("!", " ", "", "\n", "-", "é", "a b", "\x00", "x" * 40, "_" * 20)
LIMITS = {"integer": 2**31, "long": 2**63}


@dataclass(frozen=True)
class Mistake:
    """A request with one mistake."""

    what: str
    request: Any
    code: str
    member: str
    """Its name, as the message is to spell it."""


def fits(shape: Shape, text: str) -> bool:
    """Whether a text keeps the rules of its shape."""
    rules = shape.metadata
    if shape.enum:
        return text in shape.enum
    pattern = rules.get("pattern", "(?s).*").replace(r"\p{Z}", " ")
    pattern = re.sub(r"\\p\{\w+\}", r"\\w", pattern)
    is_long_enough = rules.get("min", 0) <= len(text) <= rules.get("max", 2**31)
    return is_long_enough and re.fullmatch(pattern, text) is not None


def example(shape: Shape, *, whole: bool = False) -> Any:
    """A value that fits; with ``whole`` members that need not be are there, too."""
    if isinstance(shape, StructureShape):
        names = list(shape.members) if whole else list(shape.required_members)
        if shape.metadata.get("union"):
            names = list(shape.members)[:1]
        return {name: example(shape.members[name], whole=whole) for name in names}
    if isinstance(shape, ListShape):
        return [example(shape.member, whole=whole)] * max(1, shape.metadata.get("min", 1))
    if isinstance(shape, MapShape):
        return {example(shape.key): example(shape.value)}
    if shape.type_name == "string":
        return next(one for one in (*shape.enum, *EXAMPLES) if fits(shape, one))
    plain = {"boolean": True, "timestamp": 1767225600}
    return plain.get(shape.type_name, max(1, shape.metadata.get("min", 1)))


def mistakes(operation: str) -> Iterator[Mistake]:
    """Every request of an operation that has one mistake, one for each rule of the model."""
    shape = MODEL.operation_model(operation).input_shape
    for wrong in (None, [], 3, "x"):
        yield Mistake(f"no object but {wrong!r}", wrong, UNREADABLE, ".")
    yield from _in_members(shape, lambda value: value, ())


Wrap = Callable[[Any], Any]


def _in(shape: Shape, wrap: Wrap, path: tuple[str, ...]) -> Iterator[Mistake]:
    place, name = ".".join(path), path[-1][:1].lower() + path[-1][1:]
    wrong: Any = {} if shape.type_name in ("string", "boolean", "integer", "long") else "x"
    yield Mistake(f"{place} of another type", wrap(wrong), UNREADABLE, name)
    if shape.type_name in LIMITS:
        beyond = wrap(LIMITS[shape.type_name])
        yield Mistake(f"{place} beyond all numbers", beyond, UNREADABLE, name)
    for what, value in _outside(shape):
        yield Mistake(f"{place} {what}", wrap(value), WRONG, name)
    if isinstance(shape, StructureShape):
        yield from _in_members(shape, wrap, path)
    if isinstance(shape, ListShape):
        least = max(1, shape.metadata.get("min", 1))
        rest = [example(shape.member)] * (least - 1)
        yield from _in(shape.member, lambda value: wrap([value, *rest]), (*path, "member"))
    if isinstance(shape, MapShape):
        yield from _in(shape.value, lambda value: wrap({example(shape.key): value}), (*path, "a1"))


def _in_members(shape: StructureShape, wrap: Wrap, path: tuple[str, ...]) -> Iterator[Mistake]:
    full = example(shape)
    for name in shape.required_members:
        rest = {key: value for key, value in full.items() if key != name}
        shown = name[:1].lower() + name[1:]
        yield Mistake(f"{'.'.join(path)} without {name}", wrap(rest), WRONG, shown)
        yield Mistake(f"{'.'.join((*path, name))} null", wrap({**rest, name: None}), WRONG, shown)
    if shape.metadata.get("union"):
        yield Mistake(f"{'.'.join(path)} with no member", wrap({}), WRONG, "exactly one of")
        full = {}
    for name, member in shape.members.items():

        def inner(value: Any, name: str = name) -> Any:
            return wrap({**full, name: value})

        yield from _in(member, inner, (*path, name))


def _outside(shape: Shape) -> Iterator[tuple[str, Any]]:
    """Values of the right type that break a rule."""
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if shape.type_name in ("integer", "long", "float", "double"):
        if least is not None:
            yield f"below {least}", least - 1
        if most is not None and most + 1 < LIMITS.get(shape.type_name, 2**99):
            yield f"above {most}", most + 1
    if isinstance(shape, ListShape):
        if least:
            yield f"of {least - 1} items", [example(shape.member)] * (least - 1)
        if most is not None and most <= WIDEST:
            yield f"of {most + 1} items", [example(shape.member)] * (most + 1)
    if shape.type_name == "string":
        if most is not None and not shape.enum:
            yield f"of {most + 1} characters", "a" * (most + 1)
        misfit = next((one for one in MISFITS if not fits(shape, one)), None)
        if misfit is not None:
            yield f"{misfit!r}", misfit
