"""Corrects drift of nodes before each round of the leader, without decisions of the core."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.adapters.slurm.nodes.state import SlurmStore
from holdfast.adapters.slurm.nodes.views import (
    Known,
    has_leftovers,
    is_lost,
    is_marked,
    request_of,
)
from holdfast.engine.repeats import RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed, InputRejected
from holdfast.model.names import SlurmReason
from holdfast.model.nodes import NodeRecord
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink

Mark = Callable[[str, NodeRecord], None]
"""Changes a node to match its record."""

DriftError = InputRejected | CallFailed

_AGAIN_S: Final = 5.0
"""Minimum seconds between two corrections of the same drift, to avoid a fight with whoever causes
it."""

_AT_ONCE: Final = 50
"""Nodes corrected before one round; the others follow before the next."""

_SHOWN_CHARS: Final = 100
_DAMAGE_CHARS: Final = 250
_QUIET_S: Final = 60.0
"""Minimum seconds between two reports about the same value of one node, which may change with
every round."""

_MISSED: Final = (
    "The agent of its machine reports. Slurm ignores a slurmd whose machine booted before the"
    " order to power it up: check the node's clock. If machines take longer to boot, raise"
    " ResumeTimeout in slurm.conf. The node is ordered again"
)

REPORT: Final = "its report"
ENTRY: Final = "its entry in state.db"
_EXPECTED: Final = {
    REPORT: "the report of its agent; the file is skipped: see the agent's log on that node",
    ENTRY: "a value written by Holdfast; restore state.db from a backup, or remove the entry",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """An unreadable file or database entry of one node."""

    node: str
    what: str
    """``REPORT`` or ``ENTRY``."""

    why: str = ""


class DriftCorrection:
    """Restores lost marks of nodes, forgets nodes that are gone, and reports invalid values.

    slurmctld saves its state a few seconds late: changes written just before a crash are lost. A
    failure is reported and retried later; the round continues.
    """

    def __init__(
        self, mark: Mark, clear: Mark, store: SlurmStore, clock: Clock, events: EventSink
    ) -> None:
        """Use these functions and stores for corrections.

        Args:
            mark: closes or opens a node to match its record.
            clear: ends the jobs that Slurm believes to run on a closed node.
            store: store of the controller.
            clock: clock.
            events: sink for reports of invalid values and failed calls.

        """
        self._mark = mark
        self._clear = clear
        self._store = store
        self._clock = clock
        self._events = events
        self._repeats = RepeatLimiter(events)
        self._done_at: dict[str, float] = {}
        self._reported: set[DriftError] = set()
        self._reported_at: dict[tuple[str, ...], float] = {}

    def run(
        self,
        facts: Mapping[str, NodeFacts],
        known: Mapping[str, Known],
        damaged: Iterable[Damage],
        opened: Collection[str],
    ) -> bool:
        """Correct all drift that is found. Returns whether any node was changed.

        Args:
            facts: all nodes that Slurm knows.
            known: the managed nodes.
            damaged: what cannot be read.
            opened: nodes whose deep health check is about to begin: they stay open.

        """
        limit = time.monotonic() - _AGAIN_S
        self._done_at = {what: at for what, at in self._done_at.items() if at > limit}
        lost = (one for one in known.values() if is_lost(one, self._clock.now()))
        self._report({*_invalid_requests(facts, known, damaged), *map(_unreached, lost)})
        memory = self._store.read()
        for name in memory.nodes.keys() - known.keys() - memory.unreadable:
            self._try(f"deleting the record of {name}", partial(self._store.forget_node, name))
        marked = [one for name, one in known.items() if name not in opened]
        corrections = [correction for one in marked for correction in self._corrections(one)]
        for what, act in corrections[:_AT_ONCE]:
            self._try(what, act)
        return bool(corrections)

    def _corrections(self, known: Known) -> Iterator[tuple[str, Callable[[], None]]]:
        facts, before = known.facts, known.remembered
        if facts is None or before is None or request_of(facts, self._clock.now()) is not None:
            return
        record = before.record
        if has_leftovers(known):
            what = f"ending leftover jobs on {known.name}"
            yield what, partial(self._clear, known.name, record)
        elif not is_marked(facts, record, self._clock.now(), was_closed=False):
            what = f"correcting the state of {known.name}"
            yield what, partial(self._mark, known.name, record)

    def _report(self, found: set[DriftError]) -> None:
        """Report invalid values, once for as long as each exists."""
        now, waiting = time.monotonic(), set()
        self._reported_at = {
            key: at for key, at in self._reported_at.items() if now - at < _QUIET_S
        }
        for one in sorted(found - self._reported, key=str):
            key = (one.node, one.key) if isinstance(one, InputRejected) else (one.what,)
            if key in self._reported_at:
                waiting.add(one)
                continue
            self._events.emit(one)
            self._reported_at[key] = now
        self._reported = found - waiting

    def _try(self, what: str, act: Callable[[], None]) -> None:
        if what in self._done_at:
            return
        try:
            act()
        except BackendError as error:
            self._repeats.emit(CallFailed(what=what, error=str(error)), self._clock.now())
        self._done_at[what] = time.monotonic()


def _unreached(known: Known) -> CallFailed:
    address, problem = "", ""
    if known.facts is not None:
        address, problem = known.facts.address, known.facts.start_error
    what = f"slurmctld: contacting slurmd of {known.name} at {address}"
    if problem:
        return CallFailed(what=what, error=f"{problem}. {_MISSED}")
    return CallFailed(
        what=what,
        error="the agent of its machine reports; if a new machine has another address, use a DNS"
        " name as NodeAddr, or correct slurm.conf; delete a dynamic node of Slurm 22.05, scontrol"
        f" delete nodename={known.name}, and restart its slurmd",
    )


def _invalid_requests(
    facts: Mapping[str, NodeFacts], known: Mapping[str, Known], damaged: Iterable[Damage]
) -> Iterator[InputRejected]:
    words = f"{SlurmReason.REPLACE} or {SlurmReason.REBOOT}, spelled exactly"
    for node in facts.values():
        is_request = bool(node.reason.suggestion) or node.reason.resembles_request
        if node.reason.author is Author.OTHER and is_request and node.is_closed:
            meant = (
                f"; to request {node.reason.suggestion}, set exactly that"
                if node.reason.suggestion
                else ""
            )
            yield InputRejected(
                node=node.name,
                key="reason",
                value=node.reason.text[:_SHOWN_CHARS],
                expected=f"{words}{meant}",
            )
        elif node.reason.verb is not None and node.name not in known:
            yield InputRejected(
                node=node.name,
                key="reason",
                value=node.reason.text[:_SHOWN_CHARS],
                expected="an agent that reports from the node; start holdfast agent there first",
            )
    for one in damaged:
        value = one.why[:_DAMAGE_CHARS]
        yield InputRejected(node=one.node, key=one.what, value=value, expected=_EXPECTED[one.what])
