"""``holdfast run``: runs a job on an embedded cluster."""

import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from holdfast.adapters.host.log_rule_file import load_log_rules
from holdfast.adapters.local.layout import default_home, runs
from holdfast.apps.cli.known_names import cluster_names
from holdfast.apps.cli.output import OutputFormat, is_terminal, output_option, print_next
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.logs import Follow, RankLogs
from holdfast.apps.run.on_cluster import check_cluster, handed_over, job_name
from holdfast.apps.run.prepare import check, default_name, launcher_warning
from holdfast.apps.run.settings import RunConfig, RunSettings
from holdfast.apps.run.start import Show, exit_code, opened, started
from holdfast.apps.run.summary import Summary, report_lines
from holdfast.kit.config import load_config
from holdfast.kit.serial import to_plain
from holdfast.kit.units import counted
from holdfast.model.errors import ConfigError

_EPILOG = """\b
Examples:
  holdfast run -- python train.py
  holdfast run --nodes 2 --spares 1 -- torchrun train.py
  holdfast run --nodes 4 --nproc-per-node 2 --name llm \\
    --checkpoint-dir ckpt -- torchrun train.py

COMMAND is started once per node, with MASTER_ADDR, MASTER_PORT, WORLD_SIZE, NODE_RANK and the
PET_* variables that torchrun reads. With one process per node it also has RANK and LOCAL_RANK; with
more, it has to start them itself, as torchrun does. It has HOLDFAST_ATTEMPT,
HOLDFAST_RESTART_REASON (why the previous attempt was stopped; empty in the first),
HOLDFAST_CHECKPOINT_DIR, and HOLDFAST_PROGRESS_FILE, to which it may append the step that it resumes
from, and then each completed step, one number per line; a loss may follow the number.

\b
Exit codes:
  0 the job succeeded    1 it failed        2 invalid command line or file
  130 Ctrl-C             143 SIGTERM        70 a bug in Holdfast
"""


@click.command("run", epilog=_EPILOG, context_settings={"ignore_unknown_options": True})
@click.option(
    "--cluster",
    metavar="NAME",
    shell_complete=cluster_names,
    help="Run on the nodes of this cluster, created by holdfast api on this machine.",
)
@click.option("--nodes", default=1, show_default=True, help="Number of nodes of the job.")
@click.option("--spares", default=0, show_default=True, help="Number of spare nodes.")
@click.option(
    "--nproc-per-node",
    default=1,
    show_default=True,
    help="Number of processes per node, which COMMAND starts.",
)
@click.option(
    "--checkpoint-dir",
    type=click.Path(path_type=Path),
    help="Checkpoint directory of the job.  [default: in the run's directory]",
)
@click.option(
    "--max-retries", default=10, show_default=True, help="Maximum restarts after hardware failures."
)
@click.option(
    "--max-app-retries",
    default=3,
    show_default=True,
    help="Maximum restarts after application failures.",
)
@click.option(
    "--name",
    help="Name of the job and, without --cluster, of its run. Each job also has a unique ID.  "
    "[default: <script>-<n>]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Resume from the last job with this --name that has checkpoints. Without --resume, each "
    "job starts with an empty checkpoint directory.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with the tables [nodes], [jobs] and [machines].",
)
@click.option(
    "--boot-time", type=Duration(), help="Simulated boot time of a machine.  [default: 500ms]"
)
@click.option(
    "--grace",
    type=Duration(),
    default="5s",
    show_default=True,
    help="Time between SIGTERM and SIGKILL for ranks.",
)
@click.option(
    "--hang-timeout",
    type=Duration(),
    help="Restart the job if it reports no new step within this time, counted from its first "
    "reported step.  [default: no limit]",
)
@click.option(
    "--startup-timeout",
    type=Duration(),
    help="Restart the job if an attempt does not report its first step within this time. "
    " [default: no limit]",
)
@click.option(
    "--log-rules",
    "log_rules_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Restart the job by the log rules in FILE (JSON or YAML, with the fields of HyperPod's "
    "logMonitoringConfiguration).",
)
@click.option("--master-port", type=int, help="Value of MASTER_PORT.  [default: a free port]")
@click.option(
    "--logs",
    type=click.Choice([one.value for one in Follow]),
    default=Follow.FIRST.value,
    show_default=True,
    help="Ranks whose output to show; the output of all ranks is kept in files.",
)
@click.option("--dry-run", is_flag=True, help="Check the options and exit without running the job.")
@output_option(OutputFormat.TABLE, OutputFormat.JSON)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913 - one parameter for each option
    *,
    command: tuple[str, ...],
    cluster: str | None,
    nodes: int,
    spares: int,
    nproc_per_node: int,
    checkpoint_dir: Path | None,
    max_retries: int,
    max_app_retries: int,
    name: str | None,
    resume: bool,
    config_file: Path | None,
    boot_time: timedelta | None,
    grace: timedelta,
    hang_timeout: timedelta | None,
    startup_timeout: timedelta | None,
    log_rules_file: Path | None,
    master_port: int | None,
    logs: str,
    dry_run: bool,
    output: str,
) -> int:
    """Run COMMAND as a job on a cluster embedded in this machine, and keep it running.

    When a rank exits, a node sends no heartbeat or a fault is detected, the whole job is stopped,
    the node is rebooted or replaced, and the job restarts from its last checkpoint.
    """
    if cluster is not None and (spares or config_file or boot_time):
        raise click.UsageError(
            "--cluster: the cluster has its nodes already; omit --spares, --config and --boot-time"
        )
    if resume and name is None:
        raise click.UsageError("--resume: the job to resume is not specified; add --name NAME")
    home = default_home()
    settings = RunSettings(
        name=name or _default_name(home, cluster, command),
        home=home,
        command=command,
        nodes=nodes,
        spares=spares,
        nproc_per_node=nproc_per_node,
        checkpoint_dir=checkpoint_dir.absolute() if checkpoint_dir is not None else None,
        resume=resume,
        max_retries=max_retries,
        max_app_retries=max_app_retries,
        grace=grace,
        hang_timeout=hang_timeout,
        startup_timeout=startup_timeout,
        log_rules=() if log_rules_file is None else load_log_rules(log_rules_file, "--log-rules"),
        master_port=master_port,
        config=_config(config_file, boot_time),
    )
    if warning := launcher_warning(settings):
        click.echo(f"warning: {warning}", err=True)
    if dry_run:
        return _check_only(settings, cluster)
    if cluster is None:
        summary, stopped_by = _run(settings, output, Follow(logs))
    else:
        summary, stopped_by = _run_on(cluster, settings, output, Follow(logs))
    if output == OutputFormat.JSON:
        print_next({"event": "run.ended", **to_plain(summary)}, output)
    else:
        click.echo("\n".join(report_lines(summary)))
    return exit_code(summary, stopped_by)


def _run(settings: RunSettings, output: str, follow: Follow) -> tuple[Summary, int | None]:
    check(settings)
    with opened(_show(output)) as screen, started(settings, screen, follow) as (session, _):
        session.run()
        return session.summary(), session.stopped_by


def _run_on(
    cluster: str, settings: RunSettings, output: str, follow: Follow
) -> tuple[Summary, int | None]:
    """Run the job on an existing cluster, whose nodes other commands show."""
    show = Show.JSON if output == OutputFormat.JSON else Show.PLAIN
    with handed_over(cluster, settings, _report) as job, opened(show) as screen:
        job.follow(screen, RankLogs(job.files, settings.nodes, follow))
        return job.summary(), job.stopped_by


def _report(message: str) -> None:
    click.echo(f"holdfast: {message}", err=True)


def _default_name(home: Path, cluster: str | None, command: tuple[str, ...]) -> str:
    if cluster is not None:
        return job_name(home, cluster, command)
    return default_name({run.name for run in runs(home)}, command)


def _config(path: Path | None, boot_time: timedelta | None) -> RunConfig:
    config = load_config(path, RunConfig) if path is not None else RunConfig()
    if boot_time is None:
        return config
    try:
        return replace(config, machines=replace(config.machines, boot_time=boot_time))
    except ValueError as error:
        raise ConfigError(f"--boot-time: {error}") from error


def _check_only(settings: RunSettings, cluster: str | None) -> int:
    if cluster is not None:
        check_cluster(cluster, settings)
        click.echo(
            f"{cluster}: would run {shlex.join(settings.command)} on {settings.nodes} of its "
            f"nodes, {_processes(settings)} on each; nothing was started"
        )
        return ExitCode.OK
    check(settings)
    total = settings.nodes + settings.spares
    click.echo(
        f"{settings.name}: would run {shlex.join(settings.command)} on {settings.nodes} of {total} "
        f"nodes, {_processes(settings)} on each; nothing was started"
    )
    return ExitCode.OK


def _processes(settings: RunSettings) -> str:
    return counted(settings.nproc_per_node, "process", "processes")


def _show(output: str) -> Show:
    if output == OutputFormat.JSON:
        return Show.JSON
    return Show.LIVE if is_terminal() else Show.PLAIN
