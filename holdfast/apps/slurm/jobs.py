"""Jobs of a Slurm cluster, as commands show them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from pwd import getpwnam

from holdfast.adapters.checkpoints.directory import latest_step
from holdfast.adapters.host.evidence_file import read_evidence
from holdfast.adapters.slurm.commands.comment import CommentRequest, parse
from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.jobs.step_hangs import EVIDENCE_NAME
from holdfast.adapters.slurm.jobs.views import PAST, PREFIX
from holdfast.adapters.slurm.nodes.state import RememberedJob, SlurmStore
from holdfast.apps.slurm.nodes import open_store, settings_of
from holdfast.apps.views.jobs import (
    JobDetails,
    JobEvent,
    JobStatus,
    RankStatus,
    UnsupportedOnPlatform,
    attempts_of,
    find_name,
)
from holdfast.apps.views.not_found import NotFound
from holdfast.apps.views.rank_logs import LogPart, LogRequest
from holdfast.decisions.hang_evidence import HangEvidence
from holdfast.model.events import JobInputRejected
from holdfast.model.sagemaker import EventLevel


def connect_jobs(state_dir: Path | None) -> "SlurmJobList":
    """Return the jobs of a cluster, from the state of its controller.

    Raises:
        ConfigError: no controller has run with that directory.
        BackendError: the state cannot be read.

    """
    return SlurmJobList(open_store(state_dir))


class SlurmJobList:
    """The ``Jobs`` of a cluster: all that the controller has managed."""

    def __init__(self, store: SlurmStore) -> None:
        self._store = store
        settings = settings_of(store)
        self._slurm = JobCommands(settings.conf, settings.timeout)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def jobs(self) -> list[JobStatus]:
        """See ``Jobs.jobs``."""
        found = self._slurm.batch_jobs()
        known = self._store.read().jobs
        listed = [_status(name, one, found.get(name)) for name, one in known.items()]
        return sorted(listed, key=lambda job: (job.started_at, job.name))

    def with_steps(self, jobs: Sequence[JobStatus], within: timedelta) -> list[JobStatus]:  # noqa: ARG002
        """See ``Jobs.with_steps``: they are known."""
        return list(jobs)

    def describe(self, job: str) -> JobDetails:
        """See ``Jobs.describe``."""
        name = self._named(job)
        known, found = self._store.read().jobs[name], self._slurm.batch_jobs().get(name)
        return JobDetails(
            status=_status(name, known, found),
            ranks=tuple(_ranks(found)) if found is not None else (),
            reported=tuple(_events_of(name, known)),
        )

    def cancel(self, job: str, confirm: Callable[[JobStatus], None]) -> JobStatus:  # noqa: ARG002
        """See ``Jobs.cancel``: jobs are cancelled with Slurm's own commands."""
        name = self._named(job)
        if self._store.read().jobs[name].record.phase.is_final:
            raise NotFound(f"{PREFIX}{name} is no longer running")
        raise UnsupportedOnPlatform(
            f"Holdfast does not cancel Slurm jobs; to cancel {PREFIX}{name}, run: scancel {name}"
        )

    def read_log(self, job: str, request: LogRequest) -> LogPart:  # noqa: ARG002
        """See ``Jobs.read_log``: users choose the files, which the API must not open for them."""
        name = self._named(job)
        raise UnsupportedOnPlatform(
            f"Slurm writes the output of {PREFIX}{name} to a file of its owner; to find it, run: "
            f"scontrol show job {name} | grep StdOut"
        )

    def evidence(self, job: str, attempt: int | None) -> HangEvidence:
        """See ``Jobs.evidence``: from the file that the job's supervisor wrote.

        Users choose its directory, so that it has to belong to the owner of the job.
        """
        name = self._named(job)
        user = self._store.read().jobs[name].user
        folder = self._slurm.work_dir(name)
        file = Path(folder) / EVIDENCE_NAME.format(name)
        try:
            is_own = file.lstat().st_uid == getpwnam(user).pw_uid
            found = read_evidence(file) if is_own else None
        except (OSError, ValueError, KeyError):
            found = None
        if found is None or attempt not in (None, found.attempt):
            raise NotFound(
                f"{PREFIX}{name}: no evidence in {file}; if the job has named another file in its "
                "output, run: holdfast jobs evidence --from FILE"
            )
        return replace(found, job=PREFIX + name)

    @property
    def none_yet(self) -> str:
        """See ``Jobs.none_yet``."""
        return (
            "No job of this cluster has enabled auto-resume yet; submit one with: "
            "sbatch --comment=auto-resume=1"
        )

    def _named(self, text: str) -> str:
        names: Mapping[str, str] = {PREFIX + name: name for name in self._store.read().jobs}
        return names[find_name(text, sorted(names))]


def _status(name: str, known: RememberedJob, found: BatchJob | None) -> JobStatus:
    record = known.record
    request = parse(found.comment) if found is not None else CommentRequest()
    folder, progress = request.checkpoint, request.progress
    attempts = attempts_of(record)
    return JobStatus(
        name=PREFIX + name,
        is_active=not record.phase.is_final,
        phase=record.phase,
        phase_since=record.phase_since,
        reason=record.reason,
        started_at=attempts[0].started_at if attempts else record.phase_since,
        nodes=known.nodes,
        attempt=record.attempt,
        placement=record.placement,
        step=progress.step if progress else latest_step(Path(folder)) if folder else None,
        steps_per_second=progress.steps_per_second if progress else None,
        hardware_retries=record.hardware_retries,
        max_retries=known.max_retries,
        app_retries=record.app_retries,
        max_app_retries=0,
        grace=timedelta(0),
        checkpoint_dir=folder,
        cancel_command=f"scancel {name}",
        attempts=attempts,
    )


def _ranks(found: BatchJob) -> Iterator[RankStatus]:
    for rank, node in enumerate(found.nodes):
        yield RankStatus(rank=rank, node=node, name=found.id, state=found.state, detail=found.why)


def _events_of(name: str, known: RememberedJob) -> Iterator[JobEvent]:
    """Yield the notes that the owner of a job was sent."""
    for note in filter(None, known.notes):
        yield JobEvent(
            at=known.record.started_at or known.record.phase_since,
            event=JobInputRejected.name,
            level=EventLevel.WARN,
            message=f"{PREFIX}{name.partition(PAST)[0]}: {note}",
        )
