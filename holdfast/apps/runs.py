"""The runs of this machine as other commands find them, while they go on and afterwards."""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.local.layout import RunDir, runs
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.store import LocalStore
from holdfast.model.errors import BackendError, HoldfastError
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec

NO_RUN: Final = "no run is going on; start one with: holdfast run -- COMMAND"

_ON_NODES: Final = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)


class NotFound(HoldfastError):
    """There is nothing of the name that a person gave; the message says what there is."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run, opened. Its methods raise ``BackendError`` if its state cannot be used."""

    directory: RunDir
    store: LocalStore
    is_active: bool
    """Whether its Holdfast runs now."""

    @property
    def name(self) -> str:
        """The name of the run, and of its job."""
        return self.directory.name

    def job(self) -> tuple[JobSpec, JobRecord, bool]:
        """Its job as in ``LocalStore.jobs``."""
        return next(iter(self.store.jobs().values()))

    def placement(self) -> tuple[str, ...]:
        """The node of each rank that runs now, by node rank; empty while none does."""
        _, record, _ = self.job()
        return record.placement if self.is_active and record.phase in _ON_NODES else ()

    def wake(self) -> None:
        """Have the run look at once at what was recorded for it."""
        self.directory.wake.touch()


@contextlib.contextmanager
def open_runs(
    home: Path, name: str | None = None, *, ended: bool = False
) -> Iterator[list[KnownRun]]:
    """Open the run called ``name``; without a name all that go on and, if ``ended``, all others.

    Among several runs, one whose state cannot be read is left out with a word on standard error. A
    run in its first moment, before its job is submitted, is not there yet.

    Raises:
        NotFound: there is no run of that name.
        BackendError: the state of the run of that name cannot be read.

    """
    known = list(runs(home))
    with contextlib.ExitStack() as stack:
        opened = []
        for run in known:
            is_active = is_held(run)
            if run.name != name and (name is not None or not (is_active or ended)):
                continue
            try:
                store = stack.enter_context(contextlib.closing(LocalStore(run.state)))
                if store.jobs():
                    opened.append(KnownRun(run, store, is_active))
            except BackendError as error:
                if name is not None:
                    raise
                click.echo(f"holdfast: run {run.name} is left out: {error}", err=True)
        if name is not None and not opened:
            raise NotFound(no_such("run", name, [run.name for run in known]))
        yield opened


def only(known: Sequence[KnownRun]) -> KnownRun:
    """The one run that is meant.

    Raises:
        NotFound: there is none, or more than one.

    """
    if not known:
        raise NotFound(NO_RUN)
    if len(known) > 1:
        raise NotFound(f"several runs go on: {_names(known)}; choose one with --run NAME")
    return known[0]


def find_run(job: str, known: Sequence[KnownRun]) -> KnownRun:
    """The run whose job is called so.

    Raises:
        NotFound: there is none.

    """
    for run in known:
        if run.name == job:
            return run
    raise NotFound(no_such("job", job, [run.name for run in known]))


def find_node(text: str, known: Sequence[KnownRun]) -> tuple[KnownRun, str]:
    """The node that a person means by its name, its instance id or its rank in the job.

    Of names and ids the beginning will do, as a narrow table shows it.

    Raises:
        NotFound: no node of these runs is meant, or several are.

    """
    beginning = text.removesuffix("…")
    hits = _nodes(known, text, str.__eq__) or _nodes(known, beginning, str.startswith)
    if len(hits) > 1:
        names = ", ".join(f"{name} of run {run.name}" for run, name in hits)
        raise NotFound(f"{text!r} may be each of {names}; say more of its name, or add --run NAME")
    if not hits:
        raise NotFound(_no_such_node(text, known))
    return hits[0]


def no_such(kind: str, text: str, names: Sequence[str]) -> str:
    """The sentence for a name that is not there."""
    near = difflib.get_close_matches(text, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    there = f" There are: {', '.join(names)}" if names else " There is none."
    return f"there is no {kind} {text!r}{hint or '.'}{there}"


def _nodes(
    known: Sequence[KnownRun], text: str, matches: Callable[[str, str], bool]
) -> list[tuple[KnownRun, str]]:
    if text.isdecimal():
        return [
            (run, name)
            for run in known
            for rank, name in enumerate(run.placement())
            if rank == int(text)
        ]
    return [
        (run, name)
        for run in known
        for name, (machine, _, _) in run.store.nodes().items()
        if text and (matches(name, text) or matches(machine, text))
    ]


def _no_such_node(text: str, known: Sequence[KnownRun]) -> str:
    if not known:
        return NO_RUN
    if text.isdecimal():
        ranks = "; ".join(f"{run.name}: {_ranks(run)}" for run in known)
        return f"no rank {text} runs on a node now ({ranks})"
    for run in known:
        for incident in run.store.list_incidents():
            if text in (incident.node, incident.provider_id) and incident.successor:
                return f"{incident.node} is gone: it was replaced by {incident.successor}"
    nodes = [name for run in known for name in run.store.nodes()]
    return no_such("node", text, nodes)


def _ranks(run: KnownRun) -> str:
    if not run.is_active:
        return "the run has ended"
    count = len(run.placement())
    if count == 0:
        return f"the job is {run.job()[1].phase}"
    return f"ranks 0 to {count - 1}" if count > 1 else "rank 0 only"


def _names(known: Iterable[KnownRun]) -> str:
    return ", ".join(run.name for run in known)
