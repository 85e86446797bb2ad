"""Regular expression matching with a limit of processor time."""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.decisions.log_rules import Hit, JobLogRule
from holdfast.kit import match_worker
from holdfast.model.errors import BackendError

TIMEOUT_S: Final = 30.0
"""A child process without a response for this long is killed; its own limit is a few seconds."""

_PIECE: Final = 1 << 16

Hits = Sequence[tuple[int, Hit]]
"""Lines that match a rule, by their index."""


class PatternMatcher:
    """Matches lines with the patterns of rules, from any thread, until ``close``.

    HyperPod's rules are Python regular expressions, some of which never finish. While Python
    matches, no other thread of the process runs, not even the one that renews the lease. Therefore
    one child process matches for all jobs, with a limit of processor time for each rule. It is
    started with the first rule and takes 10 MiB.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    @property
    def pids(self) -> set[int]:
        """The child process, if there is one."""
        process = self._process  # another thread may end it
        return set() if process is None else {process.pid}

    def match(self, rules: Sequence[JobLogRule], lines: Sequence[str]) -> list[Hits | str]:
        """For each rule its hits, or what is expected instead of its invalid patterns.

        Raises:
            BackendError: no response; the next call starts a new process.

        """
        patterns = [
            {
                "pattern": rule.pattern,
                "stop": rule.stop_pattern,
                "number": rule.threshold is not None,
            }
            for rule in rules
        ]
        request = json.dumps({"rules": patterns, "lines": lines}).encode()
        with self._lock:
            try:
                answers = json.loads(self._requested(request + b"\n"))
            except (OSError, ValueError) as error:
                self._end()
                raise BackendError(f"the process that matches log rules failed: {error}") from error
        return [one if isinstance(one, str) else [_hit(*hit) for hit in one] for one in answers]

    def close(self) -> None:
        """Stop the process, also while another thread waits for it."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _requested(self, request: bytes) -> bytes:
        if self._is_closed:
            raise BackendError("the process that matches log rules has stopped")
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", Path(match_worker.__file__)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # keeps Ctrl-C from the child, which ends with this process
            )
        process = self._process
        if self._is_closed:  # meanwhile
            raise BackendError("the process that matches log rules has stopped")
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(request)
        process.stdin.flush()
        answer = bytearray()
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        deadline = time.monotonic() + TIMEOUT_S
        while not answer.endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError("it does not respond")
            piece = os.read(process.stdout.fileno(), _PIECE)
            if not piece:
                raise BrokenPipeError("it has ended")
            answer += piece
        return bytes(answer)

    def _end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        with suppress(OSError), process:  # closes the pipes and waits
            pass


def _hit(index: int, is_match: Any, number: float | None, is_stop: Any) -> tuple[int, Hit]:
    return index, Hit(is_match=is_match, number=number, is_stop=is_stop)
