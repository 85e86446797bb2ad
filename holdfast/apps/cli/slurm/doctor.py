"""``holdfast slurm doctor``: what would make auto-resume fail, and the line to change."""

from pathlib import Path
from typing import Final

import click

from holdfast.adapters.slurm.install.rules import Finding, Severity, examine
from holdfast.apps.cli.examples import examples
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    is_document,
    output_option,
    print_document,
    print_rows,
)
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import ControllerConfig
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.slurm.doctor import Sources, look
from holdfast.kit.config import load_config

_CONFIG: Final = Path("/etc/holdfast/controller.toml")

_COLUMNS: Final = [
    Column[Finding](title="severity", cell=lambda one: one.severity),
    Column[Finding](title="trap", cell=lambda one: one.trap),
    Column[Finding](title="found", cell=lambda one: one.found, minor=True),
    Column[Finding](title="why", cell=lambda one: one.why, wide=True),
    Column[Finding](title="change", cell=lambda one: one.change, minor=True),
]


@examples("holdfast slurm doctor", "holdfast slurm doctor --strict --output wide")
@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help=f"The controller's configuration.  [default: {_CONFIG}, if it is there]",
)
@click.option(
    "--report-dir",
    type=click.Path(path_type=Path),
    help="Directory of the agents' reports.  [default: from the controller's configuration]",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors: exit with code 1.")
@output_option(*LISTS)
def doctor(*, config: Path | None, report_dir: Path | None, strict: bool, output: str) -> int:
    """Diagnose what would make auto-resume fail on this Slurm cluster, and print fixes.

    Changes nothing. Checks that need the slurmctld host are skipped elsewhere; run it there to
    check everything.

    Exits with 0 if nothing prevents jobs from resuming, 1 if something does.
    """
    if config is None and _CONFIG.exists():
        config = _CONFIG
    known = load_config(config, ControllerConfig) if config else ControllerConfig()
    sources = Sources.of(known, report_dir)
    found = examine(look(sources, SystemClock().now()))
    if is_document(output):
        print_document(found, output)
    else:
        print_rows(found, _COLUMNS, output=output, empty="It is in no trap that is known.")
    bad = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return ExitCode.FAILED if any(one.severity in bad for one in found) else ExitCode.OK
