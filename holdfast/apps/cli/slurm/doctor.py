"""``holdfast slurm doctor``: diagnoses the configuration of a Slurm cluster."""

from pathlib import Path
from typing import Final

import click

from holdfast.adapters.slurm.install.cluster_reading import Sources, read_cluster
from holdfast.adapters.slurm.install.doctor_rules import diagnose_cluster
from holdfast.apps.cli.diagnostics import exit_code, print_diagnostics, strict_option
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import LISTS, output_option
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import ControllerConfig
from holdfast.kit.config import load_config

_CONFIG: Final = Path("/etc/holdfast/controller.toml")


@examples("holdfast slurm doctor", "holdfast slurm doctor --strict --output wide")
@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help=f"Configuration file of the controller.  [default: {_CONFIG}, if it exists]",
)
@click.option(
    "--report-dir",
    type=click.Path(path_type=Path),
    help="Directory of the agents' reports.  [default: from the controller's configuration]",
)
@strict_option
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
    sources = _sources(known, report_dir)
    found = diagnose_cluster(read_cluster(sources, SystemClock().now()))
    print_diagnostics(found, output)
    return exit_code(found, strict=strict)


def _sources(config: ControllerConfig, report_dir: Path | None) -> Sources:
    """Return the sources that a controller's configuration names."""
    slurm = config.slurm
    return Sources(
        conf=None if slurm is None else slurm.conf,
        report_dir=report_dir or (None if slurm is None else slurm.report_dir),
        state_dir=None if slurm is None else slurm.state_dir,
        max_retries=None if slurm is None else slurm.max_retries,
        join_timeout=config.nodes.join_timeout,
        replace=str(config.provider.replace or ""),
        reboot=str(config.provider.reboot or ""),
    )
