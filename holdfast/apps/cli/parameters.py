"""Types of command-line parameters: durations, sizes and numbers."""

import math
import re
from datetime import timedelta
from typing import Any, Final

import click

from holdfast.kit.units import parse_duration

_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)([KMGT]?)(?:i?B)?", re.IGNORECASE)


class Duration(click.ParamType[timedelta]):
    """Duration such as ``90s`` or ``1h30m``."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """See ``click.ParamType.convert``."""
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """Number of bytes such as ``500``, ``200M`` or ``1.5GiB``; units are powers of 1,024."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """See ``click.ParamType.convert``."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        size = 0.0
        if match is not None:
            size = float(match[1]) * 1024 ** (" KMGT".index(match[2].upper() or " "))
        if size < 1:
            text = f"{value!r} is not a size; expected bytes such as 500K, 200M or 1.5G"
            self.fail(text, param, ctx)
        return int(size)


class Number(click.FloatRange):
    """Finite number in a range; click's ``FloatRange`` accepts ``nan`` and ``inf``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See ``click.ParamType.convert``."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
