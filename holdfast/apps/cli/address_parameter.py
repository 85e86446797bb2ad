"""Type of command-line parameters that are addresses; lists need not import it."""

from typing import Any

import click

from holdfast.apps.listen_address import ListenAddress


class Address(click.ParamType[ListenAddress]):
    """``host:port``, or a port on the loopback address."""

    name = "[host:]port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType.convert``."""
        try:
            return ListenAddress.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
