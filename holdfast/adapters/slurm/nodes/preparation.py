"""Runs the site's command for a machine that has replaced another, before jobs get it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError

_PAUSE_S: Final = 60.0
"""Seconds before a failed command is run again."""


@dataclass(slots=True, kw_only=True)
class _Run:
    machine: str
    ended_at: float | None = None
    error: str = ""


class Preparation:
    """Runs ``after_replacement``, in a thread per node. It may run more than once."""

    def __init__(self, settings: SlurmSettings, changed: Callable[[], None]) -> None:
        """Prepare; ``changed`` is called from a thread when a command has ended."""
        self._argv = settings.after_replacement
        self._timeout = settings.after_replacement_timeout
        self._changed = changed
        self._runs: dict[str, _Run] = {}

    def is_done(self, node: str, machine: str) -> bool:
        """Whether the machine behind a node needs no run of the command any more."""
        one = self._runs.get(node)
        is_over = one is not None and one.machine == machine and one.ended_at is not None
        return not self._argv or (one is not None and is_over and not one.error)

    def begin(self, node: str, machine: str) -> None:
        """Run the command, unless it is running, or has failed less than a pause ago."""
        one = self._runs.get(node)
        if one is not None and one.machine == machine:
            is_early = one.ended_at is None or time.monotonic() - one.ended_at < _PAUSE_S
            if is_early or not one.error:
                return
        new = _Run(machine=machine)
        self._runs[node] = new
        threading.Thread(target=partial(self._run, node, new), name=node, daemon=True).start()

    def error(self, node: str, machine: str) -> str:
        """Return why the last run for a machine failed; empty if it did not."""
        one = self._runs.get(node)
        return one.error if one is not None and one.machine == machine else ""

    def _run(self, node: str, one: _Run) -> None:
        try:
            done = run((*self._argv, node), timeout=self._timeout)
        except BackendError as error:
            one.error = str(error)
        else:
            last = (done.errors or done.output).strip().splitlines()[-1:]
            if done.status:
                one.error = " ".join((f"{self._argv[0]} ended with {done.status}:", *last))
        one.ended_at = time.monotonic()
        self._changed()
