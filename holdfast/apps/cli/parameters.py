"""Types of command-line parameters: durations, numbers and addresses."""

import math
from datetime import timedelta
from typing import Any

import click

from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.units import parse_duration


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


class Address(click.ParamType[ListenAddress]):
    """``host:port``, or a port on the loopback address."""

    name = "[host:]port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType.convert``."""
        try:
            return ListenAddress.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
