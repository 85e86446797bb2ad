"""Where an agent says how its node is."""

from typing import Protocol

from holdfast.model.report import NodeReport


class ReportSink(Protocol):
    """Takes the word of one agent. Its methods may raise ``BackendError``: try again later."""

    def last(self) -> NodeReport | None:
        """The report that was published last, also by an agent before; None if there is none."""
        ...

    def publish(self, report: NodeReport) -> None:
        """Put ``report`` in place of the one before, for readers to see whole or not at all."""
        ...

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        """Show that the agent lives. Cheap: it wakes nobody who waits for a report."""
        ...
