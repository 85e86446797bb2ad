"""``holdfast checkpoint``: what a job can go on from."""

import os
from pathlib import Path

import click

from holdfast.adapters.checkpoints.megatron import Examined, claim, examine, repair
from holdfast.adapters.slurm.attempts import attempt_in, job_in
from holdfast.apps.cli.examples import examples
from holdfast.apps.cli.output import RESULTS, is_document, output_option, print_document
from holdfast.apps.cli.whole_group import WholeGroup
from holdfast.apps.exit_codes import ExitCode


@click.group(cls=WholeGroup)
def checkpoint() -> None:
    """Verify the checkpoints of a job before it goes on from them."""


@examples(
    "holdfast checkpoint verify /fsx/llama/checkpoints",
    "holdfast checkpoint verify /fsx/llama/checkpoints --dry-run",
)
@checkpoint.command("verify")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing.")
@click.option(
    "--attempt",
    type=click.IntRange(min=0),
    default=lambda: attempt_in(os.environ),
    help="Number of the attempt that begins; fails if a later one has begun.",
)
@output_option(*RESULTS)
def verify(*, directory: Path, dry_run: bool, attempt: int | None, output: str) -> int:
    """Find the newest complete checkpoint in DIRECTORY, and let Megatron load that.

    DIRECTORY is what Megatron's --save names. If the last save was cut off,
    latest_checkpointed_iteration.txt is set back, and newer iterations are renamed to
    iter_NNNNNNN.incomplete. Call it while no rank of the job runs.
    """
    if attempt is not None and not dry_run and directory.is_dir():
        claim(directory, attempt, job_in(os.environ))
    found = examine(directory)
    if not dry_run:
        repair(found)
    if is_document(output):
        print_document(
            {
                "directory": str(directory),
                "iteration": found.newest,
                "tracker": found.said,
                "set_back": found.is_set_back,
                "aside": [path.name for path in found.aside],
                "problems": {str(number): why for number, why in found.problems.items()},
                "dry_run": dry_run,
            },
            output,
        )
    else:
        for line in _told(found, is_done=not dry_run):
            click.echo(line)
    return ExitCode.OK


def _told(found: Examined, *, is_done: bool) -> list[str]:
    if found.newest is None and not found.aside:
        what = f"tracker says {found.said}" if found.said else "no checkpoint yet"
        return [f"{found.folder}: {what}"]
    lines = [f"{found.folder}: iteration {number}: {why}" for number, why in found.problems.items()]
    newest = "no iteration" if found.newest is None else f"iteration {found.newest}"
    if found.is_set_back:
        verb = "was" if is_done else "would be"
        before = "nothing" if found.said is None else repr(found.said)
        lines.append(f"{found.folder}: the tracker {verb} set back from {before} to {newest}")
    if found.aside:
        verb = "renamed" if is_done else "would be renamed"
        lines.append(f"{found.folder}: {verb}: {', '.join(path.name for path in found.aside)}")
    return [*lines, f"{found.folder}: {newest} is complete, and is what is loaded"]
