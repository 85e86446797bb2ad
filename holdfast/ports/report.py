"""Port of the sink of an agent's reports."""

from typing import Protocol

from holdfast.model.report import NodeReport


class ReportSink(Protocol):
    """Receives the reports of one agent. Its methods may raise ``BackendError``: retry later."""

    def last(self) -> NodeReport | None:
        """Return the last published report, also of an earlier agent process; None for none."""
        ...

    def publish(self, report: NodeReport) -> None:
        """Replace the previous report by ``report``, atomically for readers."""
        ...

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        """Publish a heartbeat. Cheap: it wakes no reader that waits for a report."""
        ...
