"""Failures, shown when they happen: a run that is ended from outside prints no summary."""

import time
from typing import Any

import pytest

_LINES = 40
"""How many of the last lines of a failure are shown; the summary has all of them."""


class ShownAtOnce:
    """A plugin of the process that has the terminal.

    Args:
        terminal: pytest's terminal reporter.

    """

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal
        self._started = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        minutes = (time.monotonic() - self._started) / 60
        took = f"{report.when} of {report.duration:.0f} s, {minutes:.1f} min into the run"
        crash = getattr(report.longrepr, "reprcrash", None)
        lines = report.longreprtext.splitlines()[-_LINES:]
        self._terminal.write_line(f"\nFAILED {report.nodeid} ({took})", red=True)
        for line in [*crash.message.splitlines()[:1], *lines] if crash else lines:
            self._terminal.write_line(f"    {line}")
