"""Polls the nodes and files of a Slurm cluster in its own threads, and reports changes."""

import os
import select
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.host.inotify import FileWatch
from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import parse_reason
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock

_POLL_S: Final = 1.0
"""Seconds between two polls of the reports where the kernel reports no changes, as over NFS."""


class NodeWatch:
    """Polls the nodes every few seconds, from ``start`` to ``stop``."""

    def __init__(
        self, slurm: Slurm, settings: SlurmSettings, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._slurm = slurm
        self._poll_s = settings.poll.total_seconds()
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._facts: Mapping[str, NodeFacts] | None = None
        self._invalidations = 0
        self._seen = 0
        self._answered: dict[str, datetime] = {}
        self._left: dict[str, str] = {}
        self._stopped = threading.Event()
        self.error = ""
        """Error of the last read; empty if it succeeded."""
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after the command in progress has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def synced(self) -> bool:
        """Whether the nodes were read at least once."""
        return self._facts is not None

    def invalidate(self) -> None:
        """Discard the last result, so that the next ``facts`` asks Slurm."""
        self._invalidations += 1

    def facts(self) -> Mapping[str, NodeFacts]:
        """Return all nodes, by name, as of the last read, a moment ago.

        Raises:
            BackendError: the nodes cannot be read.

        """
        facts = self._current()
        return self.read() if facts is None else facts

    def cached(self, node: str) -> NodeFacts | None:
        """Return a node as of the last read; None if that is outdated, or has no such node."""
        return (self._current() or {}).get(node)

    def read(self) -> Mapping[str, NodeFacts]:
        """Read all nodes now, and return them by name.

        Raises:
            BackendError: the nodes cannot be read.

        """
        with self._lock:
            invalidations = self._invalidations
            try:
                facts = {name: self._freed(one) for name, one in self._slurm.nodes().items()}
            except BackendError as error:
                self.error = str(error)
                raise
            now = self._clock.now()
            self._answered.update({name: now for name, one in facts.items() if one.has_heartbeat})
            self._facts, self._seen, self.error = facts, invalidations, ""
        return facts

    def read_one(self, node: str) -> NodeFacts:
        """Read one node now, and return it.

        Raises:
            BackendError: the node cannot be read.

        """
        facts = self._slurm.nodes(node)[node]
        with self._lock:
            return self._freed(facts)

    def _current(self) -> Mapping[str, NodeFacts] | None:
        """Return the last result; None if there is none, or it was discarded."""
        is_outdated = self._seen != self._invalidations or self.error
        return None if is_outdated else self._facts

    def answered_at(self, node: str) -> datetime | None:
        """Return when the slurmd of a node was last known to respond."""
        return self._answered.get(node)

    def _freed(self, one: NodeFacts) -> NodeFacts:
        """Remove a reason without a meaning to which Slurm has added its own.

        Since 24.11, the reason of a node that is resumed stays, without a meaning; if the node then
        goes DOWN by itself, its reason is ``old reason : Not responding``.
        """
        text = one.reason.text
        if text and not one.is_closed:
            self._left[one.name] = text
            return one
        left = self._left.get(one.name)
        if left is not None and text.startswith(f"{left} :"):
            return replace(one, reason=parse_reason(text[len(left) :]))
        self._left.pop(one.name, None)
        return one

    def _run(self) -> None:
        while not self._stopped.is_set():
            before = self._facts
            try:
                if self.read() != before:
                    self._changed()
            except BackendError:
                pass  # reported as ``error``
            self._stopped.wait(self._poll_s)


class FolderWatch:
    """Watches a directory and a file for changes, from ``start`` to ``stop``."""

    def __init__(
        self, reports: Path, requests: Path, poll: Callable[[], None], changed: Callable[[], None]
    ) -> None:
        """Prepare; the calls come from a thread.

        Args:
            reports: directory of the reports.
            requests: file that other processes write to.
            poll: called when reports may have changed, and every second.
            changed: called when a process has written to ``requests``.

        """
        self._poll = poll
        self._requests = requests
        self._changed = changed
        self._watch = FileWatch([reports / "any", requests])
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        os.close(self._ended)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._end)
        self._watch.close()

    def _run(self) -> None:
        seen = self._written()
        while True:
            descriptor = self._watch.fileno()
            sources = [self._end, *([] if descriptor is None else [descriptor])]
            if self._end in select.select(sources, [], [], _POLL_S)[0]:
                return
            self._watch.refresh()
            self._poll()
            if seen != (seen := self._written()):
                self._changed()

    def _written(self) -> tuple[int, int]:
        try:
            status = self._requests.stat()
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_size)
