"""``holdfast slurm``: installs Holdfast on a machine of a Slurm cluster, and removes it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from pwd import getpwnam
from typing import Any, Final

import click

from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.rank_stacks import TIMEOUT, RankStacks, nodes_of
from holdfast.adapters.slurm.install.cluster_reading import DEFAULT_CONF
from holdfast.adapters.slurm.install.leftovers import restoring_commands, settings_in_use
from holdfast.adapters.slurm.install.plan import Choices, MachineRole, next_steps, plan
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.slurm.doctor import doctor
from holdfast.apps.cli.slurm.plan import plan as preview
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.slurm.install import Done, InstallAction, Installer, Manifest
from holdfast.apps.views.evidence import stacks_text
from holdfast.decisions.evidence_precedence import verdict_of
from holdfast.model.errors import BackendError, ConfigError

_CALL: Final = timedelta(seconds=15)
_DAEMONS: Final = {"slurmctld": MachineRole.HEAD, "slurmd": MachineRole.COMPUTE}
_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


@click.group(cls=FullHelpGroup)
def slurm() -> None:
    """Install Holdfast on a Slurm cluster, and diagnose its configuration."""


@slurm.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in MachineRole]),
    help="Role of this machine.  [default: from the installed Slurm daemon]",
)
@click.option("--dry-run", is_flag=True, help="Print every file and line and exit.")
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    help="Install below this directory instead of /.",
)
@click.option(
    "--report-dir",
    type=click.Path(path_type=Path),
    help="Shared directory for the reports of the agents.",
)
@click.option(
    "--plugstack",
    type=click.Path(path_type=Path),
    help="Path of plugstack.conf.  [default: from slurmctld, else next to slurm.conf]",
)
@click.option(
    "--holdfast",
    "program",
    type=click.Path(path_type=Path),
    help="Path of the holdfast program on all machines.",
)
@click.option("--user", default="slurm", show_default=True, help="User that runs the controller.")
@click.option(
    "--headers",
    type=click.Path(path_type=Path),
    help="Directory that contains slurm/spank.h.  [default: the include directory of Slurm's "
    "installation, else /usr/include]",
)
@click.option("--compiler", default="gcc", show_default=True, help="C compiler.")
@click.option(
    "--sagemaker-dir",
    is_flag=True,
    help="Create /opt/sagemaker_cluster, which HyperPod's scripts check before they use "
    "--auto-resume.",
)
@click.option(
    "--prolog",
    is_flag=True,
    help="Write the script that checks nodes before a job: PrologSlurmctld on the head node, "
    "Prolog on compute nodes.",
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
    """Install systemd units, configuration and the SPANK plugin for srun --auto-resume.

    Files that you or another program wrote or changed are kept. slurm.conf is never changed:
    holdfast slurm doctor prints the lines to add.

    \b
      holdfast slurm install --role head --report-dir /fsx/holdfast --dry-run
      holdfast slurm install --role compute --sagemaker-dir \\
          --report-dir /fsx/holdfast

    Exits with 3 if such a file was kept.
    """  # noqa: D301 - click keeps the lines after it
    prefix = prefix.absolute()
    chosen = MachineRole(role) if role else _found_role()
    _refuse_unusable(
        chosen, prefix, given["user"], report_dir=given["report_dir"], holdfast=program
    )
    choices = Choices(
        role=chosen,
        holdfast=program or _this_program(),
        plugstack=plugstack.absolute() if plugstack else _found_plugstack(prefix),
        prefix=prefix,
        headers=headers or _found_headers(),
        **given,
    )
    if choices.report_dir is None and choices.role is not MachineRole.LOGIN:
        raise click.UsageError(
            f"--report-dir is missing: on a {choices.role} machine, name a directory that all"
            " machines share"
        )
    installer = Installer(Manifest.read(choices.manifest), dry_run=dry_run)
    done = _printed(installer.install(plan(choices)), dry_run=dry_run)
    for command in next_steps(choices):
        click.echo(f"next: {command}")
    return _code(done)


@examples("holdfast slurm uninstall --dry-run")
@slurm.command()
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    help="Value of --prefix at installation.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed and exit.")
def uninstall(*, prefix: Path, dry_run: bool) -> int:
    """Remove the files that holdfast slurm install wrote on this machine.

    Stop the units first. A file that was changed since is kept, and the command exits with 3. While
    slurm.conf names one of the files, nothing is removed: slurmd drains each node whose Prolog is
    missing. At the end, it prints the commands that resume nodes closed by Holdfast and
    delete its reservations.
    """
    choices = Choices(
        role=MachineRole.LOGIN, holdfast=Path(), plugstack=Path(), prefix=prefix.absolute()
    )
    if not choices.manifest.exists():
        click.echo(f"Nothing is installed: {choices.manifest} not found", err=True)
        return ExitCode.OK
    manifest = Manifest.read(choices.manifest)
    if in_use := _read_slurm(lambda commands: settings_in_use(commands, manifest.files)):
        raise ConfigError(
            f"slurm.conf still contains {', '.join(in_use)}: nothing was removed; delete these"
            " settings from slurm.conf, run scontrol reconfigure, and retry"
        )
    done = _printed(Installer(manifest, dry_run=dry_run).uninstall(), dry_run=dry_run)
    for command in _read_slurm(restoring_commands):
        click.echo(f"next: {command}")
    return _code(done)


slurm.add_command(doctor)
slurm.add_command(preview)


@examples("holdfast slurm stacks 1042")
@slurm.command()
@click.argument("job", metavar="JOB_ID")
def stacks(*, job: str) -> None:
    """Show the stacks of all ranks of a running job, and the rank that the others wait for.

    Starts a step in the allocation of the job, which runs py-spy on each node and requests dumps
    of PyTorch's flight recorder. Ranks are the processes with the environment variable RANK. Run
    it as the owner of the job, or as root. py-spy must be in PATH on the nodes. The job is not
    stopped.
    """
    ranks = RankStacks(None, TIMEOUT)
    found = ranks.look(job, nodes_of(ranks, job))
    if not found.snapshots:
        raise BackendError(f"job {job}: no Python process has the variable RANK; see: squeue -s")
    click.echo(f"job {job}: {verdict_of(found).text}\n")
    click.echo(stacks_text(found.snapshots), nl=False)


slurm.add_command(
    click.Command("supervise", help="Run a job step and restart it after a node fault.")
)


def _refuse_unusable(role: MachineRole, prefix: Path, user: str, **paths: Path | None) -> None:
    """Refuse what the units would fail with: relative paths, and a user that does not exist."""
    for name, path in paths.items():
        if path is not None and not path.is_absolute():
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option}: {path} is relative; give an absolute path")
    if role is not MachineRole.HEAD or prefix != Path("/"):
        return
    try:
        getpwnam(user)
    except KeyError:
        raise click.UsageError(
            f"--user: user {user} not found on this machine; create it, or set --user to SlurmUser"
        ) from None


def _read_slurm(read: Callable[[JobCommands], Iterable[str]]) -> list[str]:
    """Read from slurmctld; returns an empty list, with a message, if it does not answer."""
    try:
        return list(read(JobCommands(None, _CALL)))
    except BackendError as error:
        click.echo(f"holdfast: leftovers in Slurm were not checked: {error}", err=True)
        return []


def _printed(found: Iterable[Done], *, dry_run: bool) -> list[Done]:
    done = []
    for one in found:
        is_change = one.act in (InstallAction.WRITTEN, InstallAction.REMOVED)
        verb = f"would be {one.act}" if dry_run and is_change else str(one.act)
        click.echo(f"{verb}: {one.path}{f': {one.detail}' if one.detail else ''}")
        for line in one.text.splitlines() if dry_run else ():
            click.echo(f"    {line}".rstrip())
        done.append(one)
    return done


def _code(done: Sequence[Done]) -> int:
    has_kept = any(one.act is InstallAction.KEPT for one in done)
    return ExitCode.PARTLY_DONE if has_kept else ExitCode.OK


def _found_role() -> MachineRole:
    found = (role for name, role in _DAEMONS.items() if shutil.which(name, path=_PATH))
    return next(found, MachineRole.LOGIN)


def _found_plugstack(prefix: Path) -> Path:
    """Return the path that Slurm reads on this machine; with ``prefix``, the one below it."""
    if prefix == Path("/"):
        with suppress(BackendError):  # slurmctld may not be running yet
            reported = JobCommands(None, _CALL).settings().get("PlugStackConfig", "")
            if reported.startswith("/"):
                return Path(reported)
    conf = Path(os.environ.get("SLURM_CONF", DEFAULT_CONF)).absolute()
    return prefix / conf.with_name("plugstack.conf").relative_to("/")


def _found_headers() -> Path:
    """Return the headers of the Slurm installation in PATH, as there may be several."""
    scontrol = Path(shutil.which("scontrol") or "/usr/bin/scontrol").resolve()
    beside = scontrol.parent.parent / "include"
    return beside if (beside / "slurm/spank.h").is_file() else Path("/usr/include")


def _this_program() -> Path:
    beside = Path(sys.executable).with_name("holdfast")
    found = shutil.which("holdfast")
    if beside.exists() or found is None:
        return beside
    return Path(found).absolute()
