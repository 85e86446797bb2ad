"""Where the nodes are that a command is about: the options that say so, and what they open."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.fleet import Fleet
from holdfast.apps.runs import open_runs

VARIABLE: Final = "HOLDFAST_PLATFORM"

_KUBERNETES: Final = "holdfast.apps.kubernetes_fleet"
_SLURM: Final = "holdfast.apps.slurm_fleet"


class Place(StrEnum):
    """Where nodes can be."""

    LOCAL = "local"
    """In the runs on this machine."""

    KUBERNETES = "kubernetes"
    """In a Kubernetes cluster."""

    SLURM = "slurm"
    """In a Slurm cluster whose controller runs on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a person said about it."""

    run: str | None = None
    platform: str | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    state_dir: Path | None = None

    @property
    def place(self) -> Place:
        """Where to look; the options of one place say so as well as the platform."""
        if self.run is not None:
            return Place.LOCAL
        if self.state_dir is not None:
            return Place.SLURM
        if self.kubeconfig is not None or self.context is not None:
            return Place.KUBERNETES
        return Place(self.platform or Place.LOCAL)

    def again(self) -> str:
        """The options that mean the same place in another command; begins with a blank."""
        if self.run is not None:
            return f" --run {self.run}"
        if self.place is Place.LOCAL:
            return ""
        given = {
            "kubeconfig": self.kubeconfig, "context": self.context, "state-dir": self.state_dir,
        }  # fmt: skip
        said = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
        return said or f" --platform {self.place}"


def where_options(run_help: str) -> Callable[[Any], Any]:
    """Adds the options; they reach the function as one argument ``where``."""
    options: Sequence[Callable[[Any], Any]] = (
        click.option("--run", metavar="RUN", help=run_help),
        click.option(
            "--platform",
            type=click.Choice([place.value for place in Place]),
            envvar=VARIABLE,
            help=f"Where the nodes are.  [default: ${VARIABLE} or local]",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            help="Of the Kubernetes cluster that they are in.",
        ),
        click.option("--context", help="Of the kubeconfig.  [default: its current one]"),
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path),
            help="Where the controller of the Slurm cluster keeps its state.",
        ),
    )

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def taken(values: dict[str, Any]) -> Where:
    """Takes what ``where_options`` added out of a command's values."""
    names = ("run", "platform", "kubeconfig", "context", "state_dir")
    where = Where(**{name: values.pop(name) for name in names})
    is_kubernetes = where.kubeconfig is not None or where.context is not None
    if where.run is not None and (is_kubernetes or where.state_dir is not None):
        raise click.UsageError(
            "--run is for runs on this machine: leave out --kubeconfig, --context, --state-dir"
        )
    if is_kubernetes and where.state_dir is not None:
        raise click.UsageError(
            "--state-dir is for Slurm, --kubeconfig and --context are for Kubernetes: leave one out"
        )
    return where


@contextlib.contextmanager
def open_fleets(where: Where, *, ended: bool = False) -> Iterator[Sequence[Fleet]]:
    """Open what is meant: the runs that go on, and those that have ended if ``ended``.

    Raises:
        NotFound: there is no run of that name.
        ConfigError: the cluster cannot be found.
        BackendError: its state cannot be read.

    """
    if where.place is Place.LOCAL:
        with open_runs(default_home(), where.run, ended=ended) as known:
            yield known
        return
    if where.place is Place.SLURM:
        opened = import_module(_SLURM).connect(where.state_dir)
    else:
        opened = import_module(_KUBERNETES).connect(where.kubeconfig, where.context)
    with contextlib.closing(opened) as fleet:
        yield [fleet]
