"""Live view of a run on a terminal."""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import IO, Final, cast

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.apps.run.nonblocking_output import NonblockingOutput
from holdfast.apps.run.screen import RunSnapshot
from holdfast.decisions.node_labels import health_status
from holdfast.engine.wording import sentence
from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError
from holdfast.model.events import Event
from holdfast.model.job_views import JobView
from holdfast.model.nodes import NodeView, Phase

_REPAINT_S: Final = 0.1
_EVENTS: Final = 8
_LINES: Final = 5
_COLORS: Final = {Phase.SCHEDULABLE: "green", Phase.QUARANTINED: "red", Phase.DRAINING: "red"}


class LiveScreen:
    """Shows nodes with their health, the job, the last events and the last lines of its ranks."""

    def __init__(self, out: NonblockingOutput, started_at: datetime) -> None:
        self._out = out
        self._started_at = started_at
        self._events: deque[Text] = deque(maxlen=_EVENTS)
        self._lines: deque[Text] = deque(maxlen=_LINES)
        self._painted = 0.0
        self._read_snapshot: Callable[[], RunSnapshot] | None = None
        self._live = Live(console=Console(file=cast("IO[str]", out)), auto_refresh=False)
        self._live.start()

    @property
    def is_behind(self) -> bool:
        """See ``Screen.is_behind``: always False, as only the latest lines are painted."""
        return False

    def event(self, at: datetime, event: Event) -> None:
        """See ``Screen.event``."""
        seconds = (at - self._started_at).total_seconds()
        self._events.append(Text(f"{seconds:7.1f}s  {sentence(event)}"))

    def log(self, rank: int, line: str) -> None:
        """See ``Screen.log``."""
        self._lines.append(Text(f"rank {rank} | ") + Text.from_ansi(line))

    def moment(self, read_snapshot: Callable[[], RunSnapshot]) -> None:
        """See ``Screen.moment``."""
        self._read_snapshot = read_snapshot
        if time.monotonic() - self._painted >= _REPAINT_S and not self._out.waiting:
            self._paint()

    def close(self) -> None:
        """See ``Screen.close``."""
        if self._live.is_started:
            self._paint()
            self._live.stop()
        self._out.finish()

    def _paint(self) -> None:
        self._painted = time.monotonic()
        if self._read_snapshot is not None:
            with contextlib.suppress(BackendError):  # the last view stays
                self._live.update(self._view(self._read_snapshot()), refresh=True)

    def _view(self, moment: RunSnapshot) -> Group:
        return Group(
            _job_line(moment),
            _node_table(moment),
            _panel("events", self._events),
            _panel("output", self._lines),
        )


def _panel(title: str, lines: deque[Text]) -> Panel:
    """Return a panel of constant height: a view that grows leaves lines behind."""
    text = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
    return Panel(text, title=title, title_align="left", height=(lines.maxlen or 0) + 2)


def _job_line(moment: RunSnapshot) -> Text:
    job: JobView = moment.job
    record, spec = job.record, job.spec
    parts = [
        f"[bold]{escape(spec.name)}[/] {record.phase}",
        f"attempt {record.attempt}",
        *([f"step {job.step}"] if job.step is not None else []),
        f"retries {record.hardware_retries}/{spec.max_retries} hardware, "
        f"{record.app_retries}/{spec.max_app_retries} application",
    ]
    return Text.from_markup("  ·  ".join(parts))


def _node_table(moment: RunSnapshot) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("NODE", "PHASE", "HEALTH", "RANK", "FOR", "FAULT"):
        table.add_column(title, no_wrap=True)
    ranks = {name: str(rank) for rank, name in enumerate(moment.job.record.placement)}
    for node in moment.cluster.nodes:
        phase = node.record.phase
        is_running = moment.job.spec.name in node.running_jobs
        table.add_row(
            node.name,
            Text(phase, style=_COLORS.get(phase, "yellow")),
            str(health_status(node.record) or "-"),
            ranks.get(node.name, "-") if is_running else "-",
            format_duration(moment.now - node.record.phase_since),
            _fault(node),
        )
    return table


def _fault(node: NodeView) -> str:
    remediation = node.record.remediation
    return f"{remediation.reason} → {remediation.remedy}" if remediation is not None else ""
