"""Numbers on the command line."""

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number of a range. ``nan``, which is beyond no bound, and ``inf`` are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See ``click.ParamType.convert``."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
