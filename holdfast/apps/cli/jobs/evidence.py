"""``holdfast jobs evidence``: saves what the ranks of a hung job did."""

from pathlib import Path

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import job_names
from holdfast.apps.views.evidence import read_evidence, report, write_bundle
from holdfast.apps.views.nodes import NotFound
from holdfast.apps.views.run_jobs import RunJobs
from holdfast.apps.views.runs import KnownJob


@examples(
    "holdfast jobs evidence llama",
    "holdfast jobs evidence llama --attempt 2 --file llama.tar.gz",
    "holdfast jobs evidence llama --file -",
)
@click.command("evidence")
@click.argument("job", shell_complete=job_names)
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the attempt.  [default: the last one that hung]",
)
@click.option(
    "--file",
    "target",
    metavar="FILE",
    help="Archive to create, or - to print the report.  [default: JOB-attempt-N.tar.gz]",
)
def evidence(*, job: str, attempt: int | None, target: str | None) -> None:
    """Save the evidence of a hang of a job on this machine.

    The archive has a report with the verdict and the ranks grouped by stack, the state, arguments
    and environment of each rank, and the ends of their logs. Secrets are masked.
    """
    with RunJobs(default_home()).found(job) as known:
        number = attempt or _last(known)
        file = known.files.evidence(number)
        if not file.is_file():
            raise NotFound(f"{known.ref}: no evidence of attempt {number}; it did not hang")
        try:
            found = read_evidence(file)
            text = report(found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotFound(f"{file}: cannot be read: {error}; delete it") from error
        if target == "-":
            click.echo(text, nl=False)
            return
        path = Path(target or f"{known.name}-attempt-{number}.tar.gz")
        logs = {rank: known.files.log(number, rank) for rank in range(known.spec.nodes)}
        try:
            write_bundle(found, logs, path)
        except FileExistsError as error:
            raise NotFound(f"{path}: exists; name another file with --file") from error
        click.echo(f"{known.ref}: {found['verdict']['text']}")
        click.echo(f"saved {path}")


def _last(job: KnownJob) -> int:
    """Return the last attempt of a job with evidence."""
    for attempt in range(job.record.attempt, 0, -1):
        if job.files.evidence(attempt).is_file():
            return attempt
    raise NotFound(
        f"{job.ref}: no evidence, because no attempt hung; to detect hangs, run with --hang-timeout"
    )
