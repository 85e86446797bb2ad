"""``holdfast slurm stacks``: shows which rank a hung job waits for."""

import click

from holdfast.adapters.slurm.commands.rank_stacks import TIMEOUT, RankStacks, nodes_of
from holdfast.apps.cli.help import examples
from holdfast.apps.views.evidence import stacks_text
from holdfast.decisions.hang_verdict import verdict
from holdfast.model.errors import BackendError


@examples("holdfast slurm stacks 1042")
@click.command()
@click.argument("job", metavar="JOB_ID")
def stacks(*, job: str) -> None:
    """Show what all ranks of a running job do, and which rank the others wait for.

    Starts a step beside those of the job, which runs py-spy on each of its nodes. Ranks are the
    processes with the variable RANK. Run it as the owner of the job, or as root. py-spy has to be
    in PATH on the nodes. The job is not stopped.
    """
    slurm = RankStacks(None, TIMEOUT)
    snapshots = slurm.take_snapshots(job, nodes_of(slurm, job))
    if not snapshots:
        raise BackendError(f"job {job}: no Python process has the variable RANK; see: squeue -s")
    click.echo(f"job {job}: {verdict(snapshots).text}\n")
    click.echo(stacks_text(snapshots), nl=False)
