"""Progress of a check on a terminal."""

from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

from holdfast.adapters.host.deep_checks.contract import Work
from holdfast.kit.units import format_duration
from holdfast.model.node_checks import PartResult


class TimeLeft:
    """A ``Watcher`` that shows the running check and the estimated remaining time on one line."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            _Left(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "TimeLeft":
        """Show the line."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Remove the line."""
        self._progress.stop()

    def begun(self, name: str, plan: Work, left: timedelta) -> None:  # noqa: ARG002 - protocol
        """See ``Watcher.begun``."""
        self._task = self._progress.add_task(name, total=left.total_seconds())

    def ended(self, result: PartResult) -> None:  # noqa: ARG002 - protocol
        """See ``Watcher.ended``."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class _Left(ProgressColumn):
    """Remaining time of a task, whose total is in seconds."""

    def render(self, task: Task) -> Text:
        """See ``ProgressColumn.render``."""
        left = (task.total or 0.0) - (task.elapsed or 0.0)
        if left <= 0:
            return Text("taking longer than usual")
        return Text(f"about {format_duration(timedelta(seconds=round(left)))} remaining in total")
