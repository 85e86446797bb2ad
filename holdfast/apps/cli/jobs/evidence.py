"""``holdfast jobs evidence``: saves what the ranks of a hung job did."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.host.evidence_file import read_evidence
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import job_names
from holdfast.apps.cli.where import job_options, taken
from holdfast.apps.target import open_jobs
from holdfast.apps.views.evidence import LOG_BYTES, LOGS_LIMIT, SUFFIX, report, write_bundle
from holdfast.apps.views.jobs import Jobs, UnsupportedOnPlatform
from holdfast.apps.views.not_found import NotFound
from holdfast.apps.views.rank_logs import LogRequest
from holdfast.decisions.hang_evidence import HangEvidence
from holdfast.kit.bounded_files import end_text
from holdfast.model.errors import BackendError

_LAUNCHED: Final = "**/attempt_*/evidence.json"
"""Files of ``holdfast launch`` below its ``--log-dir``."""


@examples(
    "holdfast jobs evidence llama",
    "holdfast jobs evidence llama --attempt 2 --file llama.tar.gz",
    "holdfast jobs evidence pytorchjob/team-a/llama --platform kubernetes",
    "holdfast jobs evidence --from logs --file -",
)
@click.command("evidence")
@click.argument("job", required=False, shell_complete=job_names)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="Evidence file named in the output of a job, or log directory of holdfast launch, instead"
    " of JOB.",
)
@click.option(
    "--attempt",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of the attempt.  [default: the last one that hung]",
)
@click.option(
    "--file",
    "target",
    metavar="FILE",
    help=f"Archive to create, or - to print the report.  [default: JOB-attempt-N{SUFFIX}]",
)
@job_options()
def evidence(
    *, job: str | None, source: Path | None, attempt: int | None, target: str | None, **values: Any
) -> None:
    """Save the evidence of a hang of a job.

    The archive has a report with the verdict and the ranks grouped by stack, the state, arguments
    and environment of each rank, and the ends of their logs. Secrets are masked. The report names
    the ranks that the others waited for.
    """
    if (job is None) == (source is None):
        raise click.UsageError("give either JOB or --from")
    where = taken(values)
    if source is not None:
        file = _launched(source, attempt)
        try:
            found = read_evidence(file)
        except (OSError, ValueError) as error:
            raise NotFound(f"{file}: not an evidence file of a hang: {error}") from error
        _save(found, _logs_beside(file), target)
        return
    with open_jobs(where) as known:
        found = known.evidence(job or "", attempt)
        _save(found, _logs_of(known, job or "", found), target)


def _save(found: HangEvidence, logs: Iterator[tuple[str, str]], target: str | None) -> None:
    if target == "-":
        click.echo(report(found), nl=False)
        return
    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", found.job).strip("-.") or "job"
    path = Path(target or f"{stem}-attempt-{found.attempt}{SUFFIX}")
    try:
        write_bundle(found, logs, path)
    except FileExistsError as error:
        raise NotFound(f"{path} already exists; choose another file with --file") from error
    click.echo(f"{found.job}: {found.verdict.text}")
    click.echo(f"saved {path}")


def _launched(source: Path, attempt: int | None) -> Path:
    """Return the evidence of an attempt below a log directory, or the newest one."""
    if source.is_file():
        return source
    files = sorted(source.glob(_LAUNCHED), key=lambda one: one.stat().st_mtime)
    if attempt is not None:
        files = [one for one in files if one.parent.name == f"attempt_{attempt}"]
    if not files:
        which = "" if attempt is None else f" of attempt {attempt}"
        raise NotFound(f"{source}: no evidence{which}, because no attempt hung")
    return files[-1]


def _logs_beside(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the logs of ``holdfast launch`` beside the evidence of an attempt."""
    folders = [one for one in file.parent.glob("[0-9]*") if one.name.isdecimal()]
    for folder in sorted(folders, key=lambda one: int(one.name)):
        for name in ("stdout", "stderr"):
            if text := end_text(folder / f"{name}.log", LOG_BYTES):
                yield f"rank-{folder.name}.{name}.log", text


def _logs_of(known: Jobs, job: str, found: HangEvidence) -> Iterator[tuple[str, str]]:
    """Yield the logs that the platform still has."""
    for rank in range(LOGS_LIMIT):
        request = LogRequest(rank=rank, attempt=found.attempt, limit=LOG_BYTES)
        try:
            text = known.read_log(job, request).text
        except (NotFound, UnsupportedOnPlatform):
            return
        except BackendError:
            continue
        yield f"rank-{rank}.log", text
