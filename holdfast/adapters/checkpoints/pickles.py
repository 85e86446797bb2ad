"""Reads pickles as data: imports nothing and calls nothing.

An import is represented as ``Global``, a call or construction as ``Built``. A dict is ``Pairs``,
since keys may be of any type. Only the binary opcodes of protocols 2 to 5 are supported, as torch
writes no others. https://docs.python.org/3/library/pickletools.html lists them.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

SIZE_LIMIT: Final = 1 << 26
"""Maximum bytes of a pickle; the index of a checkpoint with a trillion parameters has 25 MB."""

_STEP_LIMIT: Final = 24_000_000
"""Maximum opcodes, each of which may create an object of about 60 bytes. An index has one per
three bytes."""

_LONG_LIMIT: Final = 64


class InvalidPickle(Exception):
    """The bytes are not a pickle, are truncated, or use features that torch does not write."""


class PickleTooLarge(InvalidPickle):
    """The pickle has more than ``_STEP_LIMIT`` opcodes."""


@dataclass(frozen=True, slots=True)
class Global:
    """Name of a class or function."""

    module: str
    name: str


@dataclass(slots=True)
class Built:
    """Stands for the result of a call."""

    kind: object
    """What would have been called, usually a ``Global``."""

    args: object
    state: object = None
    pairs: "Pairs | None" = None
    """Items that were set on it by key, as on an ``OrderedDict``."""

    @property
    def name(self) -> str:
        """Name of the class without its module."""
        return self.kind.name if isinstance(self.kind, Global) else ""


class Pairs(list[tuple[object, object]]):
    """Dict as pairs in the order in which they were set."""

    __slots__ = ()

    def get(self, key: str) -> object:
        """Return the last value of a key; None if it is missing."""
        for one, value in reversed(self):
            if one == key:
                return value
        return None


@dataclass(slots=True)
class Loaded:
    """Result of reading a pickle."""

    value: object
    end: int
    """Offset of the byte after the pickle."""

    ids: list[object]
    """Persistent IDs of the pickle."""

    names: list[Global]
    """Classes and functions that the pickle names."""


class _Machine:
    """Stack machine of a pickle."""

    __slots__ = ("at", "data", "ids", "marks", "memo", "names", "stack")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.ids: list[object] = []
        self.names: list[Global] = []

    def take(self, count: int) -> bytes:
        begin, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise InvalidPickle("truncated")
        return self.data[begin : self.at]

    def size(self, width: int) -> int:
        if width == 1:  # by far the most frequent
            self.at += 1
            return self.data[self.at - 1]
        return int.from_bytes(self.take(width), "little")

    def marked(self) -> list[Any]:
        begin = self.marks.pop()
        items = self.stack[begin:]
        del self.stack[begin:]
        return items

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise InvalidPickle("truncated")
        return str(self.take(end + 1 - self.at)[:-1], "utf-8", "replace")


_Handler = Callable[[_Machine], None]


def load(data: bytes, start: int = 0) -> Loaded:
    """Read the pickle that starts at ``start``.

    Raises:
        InvalidPickle: invalid or truncated; ``PickleTooLarge`` if it has too many opcodes.

    """
    machine = _Machine(data, start)
    handlers, steps = _HANDLERS, 0
    try:
        while (code := data[machine.at]) != _STOP:
            machine.at += 1
            handlers[code](machine)
            steps += 1
            if steps > _STEP_LIMIT:
                raise PickleTooLarge("too many opcodes")
        return Loaded(machine.stack.pop(), machine.at + 1, machine.ids, machine.names)
    except (IndexError, KeyError, struct.error, AttributeError, TypeError, ValueError) as error:
        raise InvalidPickle("truncated or corrupt") from error


def _constant(value: object) -> _Handler:
    return lambda machine: machine.stack.append(value)


def _byte(machine: _Machine) -> None:
    machine.stack.append(machine.data[machine.at])
    machine.at += 1


def _integer(width: int, *, signed: bool = False) -> _Handler:
    def handle(machine: _Machine) -> None:
        machine.stack.append(int.from_bytes(machine.take(width), "little", signed=signed))

    return handle


def _long(width: int) -> _Handler:
    def handle(machine: _Machine) -> None:
        count = machine.size(width)
        if count > _LONG_LIMIT:
            raise InvalidPickle("an integer is too long")
        machine.stack.append(int.from_bytes(machine.take(count), "little", signed=True))

    return handle


def _text(width: int) -> _Handler:
    def handle(machine: _Machine) -> None:
        data = machine.take(machine.size(width))
        try:
            machine.stack.append(str(data, "utf-8"))
        except UnicodeDecodeError:
            text = str(data, "utf-8", "surrogatepass")  # as pickle does; invalid bytes raise
            machine.stack.append(text.encode("utf-8", "replace").decode())

    return handle


def _old_text(width: int) -> _Handler:
    def handle(machine: _Machine) -> None:
        machine.stack.append(str(machine.take(machine.size(width)), "utf-8", "replace"))

    return handle


def _bytes(width: int) -> _Handler:
    return lambda machine: machine.stack.append(machine.take(machine.size(width)))


def _put(width: int) -> _Handler:
    def handle(machine: _Machine) -> None:
        machine.memo[machine.size(width)] = machine.stack[-1]

    return handle


def _get(width: int) -> _Handler:
    return lambda machine: machine.stack.append(machine.memo[machine.size(width)])


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _push_mark(machine: _Machine) -> None:
    machine.marks.append(len(machine.stack))


def _tuple(count: int) -> _Handler:
    def handle(machine: _Machine) -> None:
        items = tuple(machine.stack[-count:])
        if len(items) < count:
            raise InvalidPickle("corrupt")
        machine.stack[-count:] = [items]

    return handle


def _new(make: Callable[[], object]) -> _Handler:
    return lambda machine: machine.stack.append(make())


def _gather(make: Callable[[list[Any]], object]) -> _Handler:
    return lambda machine: machine.stack.append(make(machine.marked()))


def _pairs(items: list[Any]) -> Pairs:
    return Pairs(zip(items[::2], items[1::2], strict=True))


def _extend(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if not isinstance(target, Built):  # items of other objects are not needed
        target.extend(items)


def _append(machine: _Machine) -> None:
    item = machine.stack.pop()
    _extend(machine, [item])


def _appends(machine: _Machine) -> None:
    items = machine.marked()
    _extend(machine, items)


def _set(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if isinstance(target, Built):
        target.pairs = target.pairs if target.pairs is not None else Pairs()
        target = target.pairs
    target.extend(_pairs(items))


def _setitem(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _set(machine, [key, value])


def _setitems(machine: _Machine) -> None:
    items = machine.marked()
    _set(machine, items)


def _call(machine: _Machine) -> None:
    args, kind = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(Built(kind, args))


def _call_named(machine: _Machine) -> None:
    names, args, kind = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.stack.append(Built(kind, (args, names)))


def _build(machine: _Machine) -> None:
    state = machine.stack.pop()
    machine.stack[-1].state = state


def _global(machine: _Machine) -> None:
    _name(machine, machine.line(), machine.line())


def _stack_global(machine: _Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    _name(machine, str(module), str(name))


def _name(machine: _Machine, module: str, name: str) -> None:
    one = Global(module, name)
    machine.names.append(one)
    machine.stack.append(one)


def _persistent(machine: _Machine) -> None:
    one = machine.stack.pop()
    machine.ids.append(one)
    machine.stack.append(Built(None, one))


def _float(machine: _Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


def _skip(machine: _Machine, count: int) -> None:
    machine.take(count)


def _frame(machine: _Machine) -> None:
    size = machine.size(8)
    if machine.at + size > len(machine.data):
        raise InvalidPickle("truncated")


def _pop(machine: _Machine) -> None:
    machine.stack.pop()


_STOP: Final = ord(".")
_HANDLERS: Final[dict[int, _Handler]] = {
    0x80: lambda machine: _skip(machine, 1),  # PROTO
    0x95: _frame,
    ord("N"): _constant(None),
    0x88: _constant(True),  # noqa: FBT003 - NEWTRUE
    0x89: _constant(False),  # noqa: FBT003 - NEWFALSE
    ord("K"): _byte,
    ord("M"): _integer(2),
    ord("J"): _integer(4, signed=True),
    0x8A: _long(1),
    0x8B: _long(4),
    ord("G"): _float,
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("U"): _old_text(1),
    ord("T"): _old_text(4),
    ord("C"): _bytes(1),
    ord("B"): _bytes(4),
    0x8E: _bytes(8),
    0x96: _bytes(8),  # BYTEARRAY8
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: _memoize,
    ord("h"): _get(1),
    ord("j"): _get(4),
    ord("("): _push_mark,
    ord(")"): _new(tuple),
    ord("]"): _new(list),
    ord("}"): _new(Pairs),
    0x8F: _new(list),  # EMPTY_SET
    ord("t"): _gather(tuple),
    ord("l"): _gather(list),
    ord("d"): _gather(_pairs),
    0x91: _gather(list),  # FROZENSET
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("a"): _append,
    ord("e"): _appends,
    0x90: _appends,  # ADDITEMS
    ord("s"): _setitem,
    ord("u"): _setitems,
    ord("c"): _global,
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,  # NEWOBJ
    0x92: _call_named,  # NEWOBJ_EX
    ord("b"): _build,
    ord("Q"): _persistent,
    ord("0"): _pop,
    ord("2"): lambda machine: machine.stack.append(machine.stack[-1]),
}
