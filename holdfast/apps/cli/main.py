"""``holdfast``: the root command; imports only the subcommand that is called."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from holdfast import __version__
from holdfast.apps.cli.help import FullHelpGroup
from holdfast.apps.exit_codes import ExitCode

if TYPE_CHECKING:  # only completion needs it
    from click.shell_completion import CompletionItem


class CommandRow(NamedTuple):
    """Short help and module of a command."""

    help: str
    module: str
    """Module that defines the command under its name; empty if ``holdfast.apps.main`` runs it."""


COMMANDS: Final = {
    "run": CommandRow("Run a training job and keep it running.", "holdfast.apps.cli.run"),
    "launch": CommandRow("Run ranks on this node and restart them in place.", ""),
    "demo": CommandRow("Run a training job with four faults.", "holdfast.apps.cli.demo"),
    "status": CommandRow("Show what needs attention, nodes and jobs.", "holdfast.apps.cli.status"),
    "goodput": CommandRow(
        "Show productive time of jobs, and lost time.", "holdfast.apps.cli.goodput"
    ),
    "inject": CommandRow("Inject a fault into a node.", "holdfast.apps.cli.inject.commands"),
    "nodes": CommandRow(
        "List, describe, reboot or replace nodes.", "holdfast.apps.cli.nodes.commands"
    ),
    "jobs": CommandRow(
        "List, describe, diagnose jobs; read logs.", "holdfast.apps.cli.jobs.commands"
    ),
    "clusters": CommandRow(
        "Create, change and delete clusters.", "holdfast.apps.cli.clusters.commands"
    ),
    "incidents": CommandRow(
        "List incidents and show their timelines.", "holdfast.apps.cli.incidents"
    ),
    "scan": CommandRow(
        "Evaluate captured logs and tool output.", "holdfast.apps.cli.scan.commands"
    ),
    "check": CommandRow(
        "Run health checks on nodes under load.", "holdfast.apps.cli.check.commands"
    ),
    "checkpoint": CommandRow(
        "Verify checkpoints before resume.", "holdfast.apps.cli.checkpoint.commands"
    ),
    "simulate": CommandRow("Simulate faults on a cluster.", "holdfast.apps.cli.simulate"),
    "slurm": CommandRow(
        "Install on Slurm and diagnose problems.", "holdfast.apps.cli.slurm.commands"
    ),
    "agent": CommandRow("Run the agent that monitors this node.", ""),
    "controller": CommandRow("Run the controller of a cluster.", "holdfast.apps.cli.controller"),
    "hyperpod": CommandRow(
        "Run jobs with HyperPod CLI syntax.", "holdfast.apps.cli.hyperpod.commands"
    ),
    "api": CommandRow("Serve the SageMaker cluster API.", "holdfast.apps.cli.api"),
    "export": CommandRow("Export agent events to CloudWatch.", "holdfast.apps.cli.export"),
    "uninstall": CommandRow(
        "Remove Holdfast's records from a cluster.", "holdfast.apps.cli.uninstall"
    ),
    "completion": CommandRow("Print a shell completion script.", "holdfast.apps.cli.completion"),
}


class LazyGroup(FullHelpGroup):
    """Group whose commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return command names in the order of the table, the first used ones first."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Return the command with this name, or None."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        if not row.module:
            return click.Command(cmd_name, help=row.help)
        command: click.Command = getattr(import_module(row.module), cmd_name)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands from the table, without imports."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """See ``click.Group.shell_complete``; uses the table, without imports."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - see above

        names = [
            CompletionItem(name, help=row.help)
            for name, row in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep training jobs running through hardware failure.

    Start with `holdfast demo` or `holdfast run -- python train.py`.

    DURATION in the help of a command is a number with a unit, such as 500ms, 90s, 15m or 1h30m.
    """


def main(argv: Sequence[str]) -> int:
    """Run one command. Returns its exit code; 0 if the command returned none."""
    try:
        code = cli.main(list(argv), prog_name="holdfast", standalone_mode=False)
    except click.Abort:  # click raises it on Ctrl-C
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else ExitCode.OK
