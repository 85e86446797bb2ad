"""Faults of this node, as the report of its agent has them."""

import os
import stat
import sys
import time
from typing import Final

from holdfast.decisions.launch_events import NodeFault
from holdfast.kit.bounded_files import read_bounded

INTERVAL_S: Final = 0.5
"""Time between two looks while nothing else wakes the launcher; the agent's heartbeat interval."""

_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class NodeWatch:
    """The file ``report.json`` of the agent on this node; it need not exist.

    It decides only where the ranks of this job run. A file that others than the owner of its
    directory can write is ignored: another user could move the ranks.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._mark: tuple[int, int] | None = None
        self._look_at = time.monotonic() if path else None
        self._problem = ""
        self.fault: NodeFault | None = None
        """Fault for which ranks should leave the node; None if there is none."""

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``has_changed``; None for never."""
        return self._look_at

    def has_changed(self) -> bool:
        """Read the report if it is new. Return whether ``fault`` is another one than before."""
        if self._look_at is None:
            return False
        self._look_at = time.monotonic() + INTERVAL_S
        try:
            found = os.stat(self._path, follow_symlinks=False)
            mark = (found.st_ino, found.st_mtime_ns)
            if mark == self._mark:
                return False
            self._mark = mark
            before, self.fault = self.fault, self._read(found)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            self._report(str(error))
            return False
        return self.fault != before

    def _read(self, found: os.stat_result) -> NodeFault | None:
        """Return the fault in the report.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a report, or others can write it.

        """
        from holdfast.decisions.launch_nodes import node_fault  # noqa: PLC0415 - only with an agent
        from holdfast.kit.serial import parse_value  # noqa: PLC0415
        from holdfast.model.report import REPORT_LIMIT, NodeReport  # noqa: PLC0415

        folder = os.stat(os.path.dirname(self._path) or ".")
        if found.st_uid != folder.st_uid or (found.st_mode | folder.st_mode) & _OTHERS:
            raise ValueError("others than the owner of its directory can write it")
        return node_fault(parse_value(NodeReport, read_bounded(self._path, REPORT_LIMIT)).faults)

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            sys.stderr.write(
                f"holdfast: --node-report: {self._path} is ignored: {problem}; expected the "
                "report.json of the node's agent\n"
            )
        self._problem = problem
