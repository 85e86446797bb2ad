"""``holdfast jobs doctor``: diagnoses Kubernetes jobs."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import IO, Any, Final

import click

from holdfast.apps.cli.diagnostics import exit_code, strict_option
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import job_names
from holdfast.apps.cli.output import (
    RESULTS,
    is_document,
    output_option,
    print_details,
    print_document,
)
from holdfast.apps.cli.where import job_options, taken
from holdfast.apps.target import TargetPlatform, Where, open_jobs

_DOCTOR: Final = "holdfast.apps.kubernetes.doctor"


@examples(
    "holdfast jobs doctor llama --platform kubernetes", "holdfast jobs doctor -f job.yaml --strict"
)
@click.command("doctor")
@click.argument("job", required=False, shell_complete=job_names)
@click.option(
    "-f",
    "--filename",
    "files",
    type=click.File(encoding="utf-8"),
    multiple=True,
    help="Manifest with jobs, or - for standard input. Needs no cluster.",
)
@strict_option
@job_options()
@output_option(*RESULTS)
def doctor(
    *, job: str | None, files: Sequence[IO[str]], strict: bool, output: str, **values: Any
) -> int:
    """Diagnose why a Kubernetes job would not auto-resume, and print fixes.

    Reads JOB from the cluster, or with -f the jobs of a manifest before they are submitted.

    Exits with 0 if nothing prevents the job from resuming, 1 if something does, 2 if no job was
    found.
    """
    where = taken(values)
    if (job is None) == (not files):
        raise click.UsageError("give a JOB of the cluster, or manifests with -f FILE")
    found = _of_cluster(job, where) if job is not None else _of_files(files)
    if is_document(output):
        print_document(found, output)
    else:
        for index, one in enumerate(found):
            if index:
                click.echo()
            print_details(_details(one))
    return exit_code([one for job in found for one in job.diagnostics], strict=strict)


def _of_cluster(job: str, where: Where) -> Sequence[Any]:
    if where.place is not TargetPlatform.KUBERNETES:
        raise click.UsageError(f"jobs doctor supports Kubernetes jobs only, not {where.place}")
    with open_jobs(where) as jobs:
        whole = jobs.whole(job)  # type: ignore[attr-defined]
        groupless = jobs.groupless_nodes()  # type: ignore[attr-defined]
    return [import_module(_DOCTOR).diagnose_object(*whole, groupless=groupless)]


def _of_files(files: Sequence[IO[str]]) -> Sequence[Any]:
    diagnose = import_module(_DOCTOR).diagnose_manifest
    return [one for file in files for one in diagnose(file.read(), file.name)]


def _details(diagnosis: Any) -> Iterator[tuple[str, object]]:
    yield "Job", diagnosis.job
    if not diagnosis.diagnostics:
        yield "Problems", "none"
    for one in diagnosis.diagnostics:
        found = f"{one.found}: " if one.found else ""
        yield f"{one.severity.capitalize()} {one.rule}", f"{found}{one.why}"
        yield "  remedy", one.remedy
