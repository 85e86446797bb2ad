"""The agent's log, as HyperPod's agent writes it."""

from holdfast.adapters.telemetry.detection_lines import detection_lines
from holdfast.adapters.telemetry.line_output import LineOutput
from holdfast.model.report import NodeReport


class JsonLog:
    """A ``ReportObserver`` that writes ``detection_lines``."""

    def __init__(self, output: LineOutput) -> None:
        """Write to ``output``."""
        self._output = output

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """See ``ReportObserver.changed``."""
        self._output.write(detection_lines(before, report))

    def beat(self) -> None:
        """See ``ReportObserver.beat``."""
        self._output.flush()
