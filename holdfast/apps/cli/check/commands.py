"""``holdfast check``: deep health checks of nodes, run manually or by a scheduler."""

from typing import Final

import click

from holdfast.apps.cli.help import FullHelpGroup

_HERE: Final = "holdfast.apps.cli.check"

_MODULES: Final = {
    **{
        name: f"{_HERE}.{name}"
        for name in ("baseline", "deep", "node", "pair", "pairs", "replay", "show")
    },
    **dict.fromkeys(("prolog", "epilog", "health"), f"{_HERE}.job"),
    "serve": f"{_HERE}.pair",
}


@click.group(cls=FullHelpGroup, modules=_MODULES)
def check() -> None:
    """Run health checks under load before nodes accept jobs."""
