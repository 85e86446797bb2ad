"""Durations on the command line."""

from datetime import timedelta

import click

from holdfast.kit.units import parse_duration


class Duration(click.ParamType[timedelta]):
    """Text such as ``90s`` or ``1h30m``."""

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
