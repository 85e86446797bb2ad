"""Watches running jobs for stragglers. Samples take 40 seconds, so they are taken in a thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.adapters.host.rank_samples import SECONDS, Sampled, sample_ranks
from holdfast.adapters.host.rank_stacks import NodeRanks, rank_processes
from holdfast.adapters.host.section_times import read_sections, section_samples
from holdfast.adapters.host.straggler_examination import examination
from holdfast.decisions.stragglers import WINDOWS, Straggler, Window, straggler, window_of
from holdfast.kit.files import write_atomically

_NONE: Final = "none"
_REST_S: Final = 60.0
"""Time between two windows if no samples can be taken."""

_WAITS: Final = "no window of synchronous training so far"


@dataclass(slots=True)
class _Watched:
    attempt: int
    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=2 * WINDOWS))
    found: Straggler | None = None
    thread: threading.Thread | None = None
    rest_until: float = 0.0


class StragglerWatch:
    """Names the rank of each job that the others wait for.

    Args:
        take: returns the samples of one window.

    """

    def __init__(self, take: Callable[[Sequence[NodeRanks], Path], Sampled] = sample_ranks) -> None:
        self._take = take
        self._jobs: dict[str, _Watched] = {}

    def found(
        self, job: str, attempt: int, nodes: Sequence[NodeRanks], factor: float, file: Path
    ) -> Straggler | None:
        """Return the straggler of a running attempt; None if none is known.

        Args:
            job: name of the job.
            attempt: number of its attempt.
            nodes: nodes of the attempt.
            factor: least excess over the other ranks that is reported; 0 takes no samples.
            file: file for what is known, for people to read.

        """
        if not factor:
            return None
        known = self._jobs.get(job)
        if known is None or known.attempt != attempt:
            self._jobs[job] = known = _Watched(attempt)
        is_idle = known.thread is None or not known.thread.is_alive()
        if is_idle and time.monotonic() >= known.rest_until:
            known.thread = threading.Thread(
                target=self._run, args=(known, nodes, factor, file), name="stragglers", daemon=True
            )
            known.thread.start()
        return known.found

    def _run(self, known: _Watched, nodes: Sequence[NodeRanks], factor: float, file: Path) -> None:
        sampled = _by_sections(nodes, file.with_suffix(".sections"))
        if not sampled.ranks:
            sampled = self._take(nodes, file.with_suffix(".samples"))
        window = window_of(sampled.ranks)
        if window is not None:
            known.windows.append(window)
            found = straggler([*known.windows], factor)
            if found is None or known.found is None or found.rank != known.found.rank:
                # The figures of a report do not change with each window.
                known.found = found and replace(found, slowdowns=_slowdowns(found, nodes))
        elif sampled.note:
            known.rest_until = time.monotonic() + _REST_S
        count = len(known.windows)
        text = sampled.note or (f"{_NONE} in {count} windows" if count else _WAITS)
        with suppress(OSError):  # a full disk loses the text, nothing else
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, (known.found.text if known.found else text) + "\n")


def _slowdowns(found: Straggler, nodes: Sequence[NodeRanks]) -> str:
    """Return what slows GPU and CPU of a rank down; empty if nothing does, or if it is unknown."""
    pids = {rank: pid for rank, node, pid in rank_processes(nodes) if node == found.node}
    if found.rank not in pids:
        return ""
    try:
        printed = examination(found.rank, pids)
    except OSError:
        return ""
    with closing(printed):
        return printed.awaited("")


def _by_sections(nodes: Sequence[NodeRanks], folder: Path) -> Sampled:
    """Return one window of the times of sections; empty unless all ranks report some."""
    names = {
        rank: node.node
        for node in nodes
        for rank in range(
            node.node_rank * node.local_world_size, (node.node_rank + 1) * node.local_world_size
        )
    }
    before, began = read_sections(folder, names), time.monotonic()
    if not before:
        return Sampled()
    time.sleep(2 * SECONDS)
    after = read_sections(folder, names)
    return Sampled(ranks=section_samples(before, after, names, time.monotonic() - began))
