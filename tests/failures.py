"""What keeps a run with failures short, and shows them even if it is ended from outside."""

import time
from collections import Counter
from typing import Any

import pytest

_LINES = 40
"""How many of the last lines of a failure are shown; the summary has all of them."""

_SLOW_S = 60.0
_MOST_SLOW = 3


class ShownAtOnce:
    """Shows each failure when it happens; a plugin of the process that has the terminal.

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


class BrokenFiles:
    """Fails the other tests of a file at once after failures that each took more than a minute.

    What they wait for will not come: an engine or the machine is broken, and each would take its
    full timeout.
    """

    def __init__(self) -> None:
        self._slow: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.duration > _SLOW_S:
            self._slow[_file(report.nodeid)] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._slow[_file(item.nodeid)] >= _MOST_SLOW:
            pytest.fail(
                f"not run: {_MOST_SLOW} tests of this file failed after more than {_SLOW_S:.0f} s "
                "each",
                pytrace=False,
            )


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
