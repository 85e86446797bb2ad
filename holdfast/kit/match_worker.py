"""Matches log lines against users' regular expressions, in a process of its own.

``PatternMatcher`` runs it as a script, by path and with the standard library alone, so that it
starts in milliseconds. Each line of its input is ``{"rules": [...], "lines": [...]}``; each line of
its output has, for each rule, what is wrong with it, or its hits as ``[line, is match, number, is
stop]``.
"""

import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

LIMIT_S: Final = 0.25
"""Processor time for one rule and one chunk of a log, at most 64 KiB. An ordinary pattern takes a
hundredth of it."""

TOO_SLOW: Final = "a regular expression that can be matched quickly; this one takes too long"


Rule = Mapping[str, Any]
"""``pattern``, ``stop`` (empty for none) and ``number``: whether it must have a group for one."""


def answer(rules: Sequence[Rule], lines: Sequence[str]) -> list[Any]:
    """Return the response to a request; only in the main thread, which alone receives signals."""
    signal.signal(signal.SIGVTALRM, _stop)
    return [_in_time(rule, lines) for rule in rules]


def _in_time(rule: Rule, lines: Sequence[str]) -> Any:
    try:
        # Matching handles signals from time to time, however long it takes.
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        found = _hits(rule, lines)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TimeoutError:
        return TOO_SLOW
    return found


def _hits(rule: Rule, lines: Sequence[str]) -> Any:
    try:
        pattern = re.compile(rule["pattern"])
        stops = re.compile(rule["stop"]) if rule["stop"] else None
    except (re.error, OverflowError, RecursionError) as error:
        return f"a regular expression of Python: {error}"
    if rule["number"] and not pattern.groups:
        return "a group that holds the number, such as (\\d+)"
    found = []
    for index, line in enumerate(lines):
        match = pattern.match(line)
        is_stop = stops is not None and stops.match(line) is not None
        if match is not None or is_stop:
            number = _number(match.group(1)) if match is not None and pattern.groups else None
            found.append((index, match is not None, number, is_stop))
    return found


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _stop(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    # A parent that waits for its signals blocks all of them, also for its children.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGVTALRM])
    for request in sys.stdin:
        requested = json.loads(request)
        sys.stdout.write(json.dumps(answer(requested["rules"], requested["lines"])) + "\n")
        sys.stdout.flush()
