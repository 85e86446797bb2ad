"""The reference page of the SageMaker operations that ``holdfast api`` serves."""

from collections.abc import Callable, Iterable, Iterator

from holdfast.api.field_tables import Fields, Support
from holdfast.api.operations import OPERATIONS, UNSUPPORTED_OPERATIONS
from holdfast.api.request_fields import REQUEST_FIELDS

Table = Callable[[tuple[str, ...], Iterable[tuple[str, ...]]], Iterator[str]]


def lines(table: Table) -> Iterator[str]:
    """Lines of the page after its head; ``table`` renders titles and rows."""
    yield "`holdfast api` serves these operations of SageMaker on clusters; [the"
    yield "guide](../howto/call-the-api.md) shows how to call them. Requests are checked against"
    yield "the same tables."
    yield ""
    yield "- **supported**: the field has the effect that SageMaker documents, within the limits in"
    yield "  the notes."
    yield "- **ignored**: the field is accepted, and returned where the response has it. Nothing"
    yield "  depends on it."
    yield "- **refused**: a request with the field fails with `ValidationException`; an operation"
    yield "  fails with `UnknownOperationException`. The message has the reason."
    yield ""
    yield "A field of the service model without a row is refused. The row of a field that is"
    yield "ignored or refused also applies to the fields below it."
    yield from ["", "## Operations", ""]
    yield from table(("Operation", "Support", "Note"), _operations())
    for operation in sorted(OPERATIONS):
        yield from ["", f"## {operation}", ""]
        yield from table(("Field", "Support", "Note"), _fields(REQUEST_FIELDS[operation]))


def _operations() -> Iterator[tuple[str, ...]]:
    for name in sorted(OPERATIONS.keys() | UNSUPPORTED_OPERATIONS.keys()):
        if name in OPERATIONS:
            yield f"`{name}`", Support.SUPPORTED, f"[fields](#{name.lower()})"
        else:
            yield f"`{name}`", Support.REFUSED, _sentence(UNSUPPORTED_OPERATIONS[name])


def _fields(fields: Fields) -> Iterator[tuple[str, ...]]:
    for path, field in sorted(fields.items()):
        yield f"`{path}`", field.support, _sentence(field.note)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:].removesuffix('.')}." if note else ""
