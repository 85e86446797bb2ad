"""``holdfast slurm``: Holdfast on a machine of a Slurm cluster."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.slurm.install_plan import Choices, Role, next_steps, plan
from holdfast.adapters.slurm.job_commands import JobCommands
from holdfast.apps.cli.examples import examples
from holdfast.apps.cli.slurm_doctor import doctor
from holdfast.apps.cli.slurm_plan import plan as preview
from holdfast.apps.cli.whole_group import WholeGroup
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.slurm_doctor import DEFAULT_CONF
from holdfast.apps.slurm_install import Act, Done, Installer, Manifest
from holdfast.model.errors import BackendError

_CALL: Final = timedelta(seconds=15)
_DAEMONS: Final = {"slurmctld": Role.HEAD, "slurmd": Role.COMPUTE}
_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


@click.group(cls=WholeGroup)
def slurm() -> None:
    """Install Holdfast on a Slurm cluster, and find what would stop it there."""


@slurm.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    help="What this machine is.  [default: by the daemon that it has]",
)
@click.option("--dry-run", is_flag=True, help="Show every file and line, and write nothing.")
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    help="Put everything below this directory.",
)
@click.option(
    "--report-dir",
    type=click.Path(path_type=Path),
    help="Directory that all machines share, for the reports of agents.",
)
@click.option(
    "--plugstack",
    type=click.Path(path_type=Path),
    help="Slurm's plugstack.conf.  [default: as slurmctld says, else beside slurm.conf]",
)
@click.option(
    "--holdfast", "program", type=click.Path(path_type=Path), help="This program, on all machines."
)
@click.option("--user", default="slurm", show_default=True, help="Who runs the controller.")
@click.option(
    "--headers",
    type=click.Path(path_type=Path),
    help="Where slurm/spank.h of the installed Slurm is.  [default: include beside the bin of"
    " scontrol, else /usr/include]",
)
@click.option("--compiler", default="gcc", show_default=True, help="The C compiler.")
@click.option(
    "--sagemaker-dir",
    is_flag=True,
    help="Make /opt/sagemaker_cluster, by which HyperPod's scripts know --auto-resume.",
)
@click.option(
    "--prolog",
    is_flag=True,
    help="Write the script that checks nodes before a job: PrologSlurmctld on the head, Prolog on"
    " compute nodes.",
)
def install(
    *,
    role: str | None,
    dry_run: bool,
    prefix: Path,
    plugstack: Path | None,
    program: Path | None,
    headers: Path | None,
    **given: Any,
) -> int:
    """Write units, configurations and the SPANK plugin for srun --auto-resume.

    What others have written or changed stays as it is. slurm.conf is never touched: holdfast slurm
    doctor shows lines for it.

    \b
      holdfast slurm install --role head --report-dir /fsx/holdfast --dry-run
      holdfast slurm install --role compute --report-dir /fsx/holdfast --sagemaker-dir

    Exits with 3 if something was kept that others had written.
    """  # noqa: D301 - click keeps the lines after it
    prefix = prefix.absolute()
    choices = Choices(
        role=Role(role) if role else _found_role(),
        holdfast=program or _this_program(),
        plugstack=plugstack or _found_plugstack(prefix),
        prefix=prefix,
        headers=headers or _found_headers(),
        **given,
    )
    if choices.report_dir is None and choices.role is not Role.LOGIN:
        raise click.UsageError(
            f"--report-dir is missing: on a {choices.role} machine, name a directory that all"
            " machines share"
        )
    installer = Installer(Manifest.read(choices.manifest), dry_run=dry_run)
    done = _told(installer.install(plan(choices)), dry_run=dry_run)
    for command in next_steps(choices):
        click.echo(f"next: {command}")
    return _code(done)


@examples("holdfast slurm uninstall --dry-run")
@slurm.command()
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    help="That of the installation.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
def uninstall(*, prefix: Path, dry_run: bool) -> int:
    """Remove what install has written on this machine, and nothing else.

    A file that was changed since stays; then it exits with 3. Stop the units before.
    """
    choices = Choices(role=Role.LOGIN, holdfast=Path(), plugstack=Path(), prefix=prefix.absolute())
    if not choices.manifest.exists():
        click.echo(f"Nothing was installed: there is no {choices.manifest}", err=True)
        return ExitCode.OK
    installer = Installer(Manifest.read(choices.manifest), dry_run=dry_run)
    return _code(_told(installer.uninstall(), dry_run=dry_run))


slurm.add_command(doctor)
slurm.add_command(preview)
slurm.add_command(
    click.Command(
        "supervise", help="Run a step of a job, and run it again after a fault of a node."
    )
)


def _told(found: Iterable[Done], *, dry_run: bool) -> list[Done]:
    done = []
    for one in found:
        is_change = one.act in (Act.WRITTEN, Act.REMOVED)
        verb = f"would be {one.act}" if dry_run and is_change else str(one.act)
        click.echo(f"{verb}: {one.path}{f': {one.detail}' if one.detail else ''}")
        for line in one.text.splitlines() if dry_run else ():
            click.echo(f"    {line}".rstrip())
        done.append(one)
    return done


def _code(done: Sequence[Done]) -> int:
    kept = any(one.act is Act.KEPT for one in done)
    return ExitCode.PARTLY_DONE if kept else ExitCode.OK


def _found_role() -> Role:
    found = (role for name, role in _DAEMONS.items() if shutil.which(name, path=_PATH))
    return next(found, Role.LOGIN)


def _found_plugstack(prefix: Path) -> Path:
    """Where Slurm reads it on this machine; below ``prefix`` may be another."""
    if prefix == Path("/"):
        with suppress(BackendError):  # it may run only later
            told = JobCommands(None, _CALL).settings().get("PlugStackConfig", "")
            if told.startswith("/"):
                return Path(told)
    conf = Path(os.environ.get("SLURM_CONF", DEFAULT_CONF)).absolute()
    return prefix / conf.with_name("plugstack.conf").relative_to("/")


def _found_headers() -> Path:
    """Those of the Slurm that is used here, where there are some of another one, too."""
    scontrol = Path(shutil.which("scontrol") or "/usr/bin/scontrol").resolve()
    beside = scontrol.parent.parent / "include"
    return beside if (beside / "slurm/spank.h").is_file() else Path("/usr/include")


def _this_program() -> Path:
    beside = Path(sys.executable).with_name("holdfast")
    found = shutil.which("holdfast")
    if beside.exists() or found is None:
        return beside
    return Path(found).absolute()
