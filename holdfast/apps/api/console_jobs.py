"""Logs and cancellation of jobs for the console."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from holdfast.api.console_source import Json, NotAccepted, UnknownObject
from holdfast.apps.target import Where, open_jobs
from holdfast.apps.views.checkpoints import checkpoint_rows
from holdfast.apps.views.evidence import shown
from holdfast.apps.views.jobs import Jobs, JobStatus, UnsupportedOnPlatform
from holdfast.apps.views.not_found import NotFound
from holdfast.apps.views.rank_logs import LogRequest
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError

T = TypeVar("T")

LOG_BYTES: Final = 1 << 18
"""Maximum size of one part of a log; the page keeps eight of them."""


class ConsoleJobs:
    """Calls on one job, in a thread of its own: the log of a lost node may block for seconds."""

    def __init__(self, where: Where) -> None:
        self._where = where.in_all_namespaces()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-jobs")
        self._opened = ExitStack()
        self._jobs: Jobs | None = None

    def close(self) -> None:
        """Close all open resources."""
        self._thread.submit(self._opened.close).result()
        self._thread.shutdown()

    def read_log(self, job: str, rank: int, attempt: int, after: str) -> Json:
        """See ``ConsoleBackend.read_log``."""
        request = LogRequest(rank=rank, attempt=attempt, after=after, limit=LOG_BYTES)
        part: Json = to_plain(self._call(lambda jobs: jobs.read_log(job, request)))
        return part

    def cancel(self, job: str) -> str:
        """See ``ConsoleBackend.cancel_job``."""

        def confirm(_status: JobStatus) -> None:
            """The page has asked."""

        status = self._call(lambda jobs: jobs.cancel(job, confirm))
        return f"Cancellation of {job} requested; ranks get {format_duration(status.grace)} to exit"

    def checkpoints(self, job: str) -> Json:
        """See ``ConsoleBackend.checkpoints``."""
        return self._call(lambda jobs: _checkpoints(jobs, job))

    def evidence(self, job: str) -> Json:
        """See ``ConsoleBackend.evidence``."""
        return shown(self._call(lambda jobs: jobs.evidence(job, None)))

    def _call(self, work: Callable[[Jobs], T]) -> T:
        try:
            return self._thread.submit(lambda: work(self._open())).result()
        except NotFound as gone:
            raise UnknownObject(str(gone)) from gone
        except UnsupportedOnPlatform as elsewhere:
            raise NotAccepted(str(elsewhere)) from elsewhere

    def _open(self) -> Jobs:
        if self._jobs is None:
            self._jobs = self._opened.enter_context(open_jobs(self._where))
        return self._jobs


def _checkpoints(jobs: Jobs, job: str) -> Json:
    folder = jobs.describe(job).status.checkpoint_dir
    if not folder:
        why = "Holdfast does not know the checkpoint directory of this job."
        return {"rows": [], "directory": "", "message": why}
    try:
        rows, message = checkpoint_rows(Path(folder)), f"There is no checkpoint in {folder} yet."
    except BackendError as error:
        rows, message = [], f"The checkpoints cannot be read here: {error}"
    return {"rows": to_plain(rows), "directory": folder, "message": "" if rows else message}
