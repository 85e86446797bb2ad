"""``holdfast incidents``: lists faults of nodes and checkpoints, and how they were handled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import click

from holdfast.apps.cli.checkpoint.incidents import describe_checkpoint
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.known_names import incident_ids
from holdfast.apps.cli.output import (
    LISTS,
    NAMED_LISTS,
    Column,
    OutputFormat,
    age,
    is_document,
    output_option,
    print_details,
    print_document,
    print_rows,
    print_section,
)
from holdfast.apps.cli.selecting import select_options, taken_selection
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import Where, open_fleets
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.apps.views.overview import FleetSnapshot, attention, incident_state, snapshot
from holdfast.apps.views.planned import PLANNED
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.decisions.incident_steps import next_steps
from holdfast.decisions.planned_work import is_planned
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.names import NODE_NAME_PREFIX
from holdfast.model.nodes import Phase

RELEASED: Final = "released"
VANISHED: Final = "vanished"
"""State: the node disappeared before its repair ended."""

QUARANTINED: Final = Phase.QUARANTINED.value
"""State: the checkpoint was moved out of its directory; or the node awaits its repair."""

OPEN: Final = "open"
"""State: not released, and the run that could release the node has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    run: str
    state: str
    """``RELEASED``, ``VANISHED``, ``OPEN``, or the phase of the node while it is repaired."""

    incident: Incident
    next: tuple[str, ...]
    """What an operator does next."""

    @property
    def took(self) -> timedelta | None:
        """Time from detection to the end of a repair; None while the incident is open."""
        ended_at = self.incident.ended_at
        if ended_at is None or not self.incident.node:
            return None
        return ended_at - self.incident.detected_at

    @property
    def state_text(self) -> str:
        """Return the state, and whether the incident is planned work."""
        return f"{self.state} {PLANNED}" if is_planned(self.incident.reason) else self.state

    @property
    def states(self) -> tuple[str, ...]:
        """Return its state, and what includes it."""
        is_open = (OPEN,) if self.incident.ended_at is None else ()
        return self.state, *is_open, *(("planned",) if is_planned(self.incident.reason) else ())

    @property
    def short_id(self) -> str:
        """Last part of its ID, the time of day; the list shows its age, so the date is left out."""
        return self.incident.id.rpartition("T")[2]

    @property
    def short_subject(self) -> str:
        """Subject; of a node, without its common prefix: the instance ID, which commands accept."""
        return self.incident.subject.removeprefix(NODE_NAME_PREFIX)

    def plain(self) -> dict[str, Any]:
        """Return plain values for JSON and YAML output."""
        took_s = self.took.total_seconds() if self.took is not None else None
        state = {
            "run": self.run,
            "state": self.state,
            "is_planned": is_planned(self.incident.reason),
            "took_s": took_s,
        }
        return {**to_plain(self.incident), **state, "next": list(self.next)}


_STATES: Final = (OPEN, RELEASED, VANISHED, *(phase.value for phase in Phase), "planned")
_FIELDS: Final = RowFields[_Case](
    states=lambda case: case.states,
    since=lambda case: case.incident.ended_at or case.incident.detected_at,
    reason=lambda case: f"{case.incident.reason} {case.incident.message}",
    jobs=lambda case: case.incident.job_names,
    labels={
        "node": lambda case: case.incident.node,
        "remedy": lambda case: case.incident.remedy,
        "run": lambda case: case.run,
    },
)


@click.group(cls=FullHelpGroup)
def incidents() -> None:
    """List incidents: faults of nodes and their repairs, and checkpoints that were quarantined."""


@examples(
    "holdfast incidents list", "holdfast incidents list --platform kubernetes --output wide --watch"
)
@incidents.command("list")
@where_options("Show only this run.  [default: all runs]")
@select_options(_STATES, tuple(_FIELDS.labels))
@watch_option
@output_option(*NAMED_LISTS)
def list_incidents(*, watch: bool, output: str, no_headers: bool, **values: Any) -> None:
    """List incidents of all runs or of a cluster, oldest first."""
    selection = taken_selection(values)
    where = taken(values)
    show(
        lambda: selected(_cases(where), _FIELDS, selection, SystemClock().now()),
        lambda cases: _print(cases, output, selection, headers=not no_headers),
        watch=watch,
    )


@examples("holdfast incidents show 030405.678", "holdfast incidents show 030405.678 --output yaml")
@incidents.command("show")
@click.argument("incident_id", metavar="ID", shell_complete=incident_ids)
@where_options("Show only this run.  [default: all runs]")
@watch_option
@output_option(*LISTS)
def show_incident(*, incident_id: str, watch: bool, output: str, **values: Any) -> None:
    """Show an incident and its timeline.

    ID is any part of an incident ID that is unique, such as the one that list prints.
    """
    where = taken(values)
    show(
        lambda: _find(incident_id, _cases(where)),
        lambda case: _describe(case, output),
        watch=watch,
    )


def _cases(where: Where) -> list[_Case]:
    with open_fleets(where, ended=True) as known:
        cases = [case for one in known for case in _cases_of(snapshot(one))]
    return sorted(cases, key=lambda case: case.incident.quarantined_at)


def _cases_of(fleet: FleetSnapshot) -> Iterator[_Case]:
    fleet_state = incident_state(fleet, attention([fleet], (), SystemClock().now()))
    phases = {
        node.remediation.incident_id: node.phase
        for node in fleet.nodes
        if node.remediation is not None and fleet.is_active
    }
    for incident in fleet.incidents:
        over = RELEASED if incident.released_at is not None else VANISHED
        if not incident.node:
            over = QUARANTINED
        state = phases.get(incident.id, OPEN) if incident.ended_at is None else over
        steps = next_steps(incident, fleet_state)
        yield _Case(run=fleet.name, state=state, incident=incident, next=steps)


def _find(text: str, cases: Sequence[_Case]) -> _Case:
    exact = [case for case in cases if case.incident.id == text]
    hits = exact or [case for case in cases if text in case.incident.id]
    if len(hits) > 1:
        names = ", ".join(case.incident.id for case in hits)
        raise NotFound(f"{text!r} is ambiguous ({names}); use a longer part of the ID")
    if not hits:
        raise NotFound(no_such("incident", text, [case.incident.id for case in cases]))
    return hits[0]


def _print(cases: Sequence[_Case], output: str, selection: Selection, *, headers: bool) -> None:
    if is_document(output):
        print_document([case.plain() for case in cases], output)
        return
    now = SystemClock().now()
    is_wide = output in (OutputFormat.WIDE, OutputFormat.NAME)
    columns: list[Column[_Case]] = [
        Column(title="id", cell=lambda case: case.incident.id if is_wide else case.short_id),
        Column(
            title="subject",
            cell=lambda case: case.incident.subject if is_wide else case.short_subject,
        ),
        Column(title="reason", cell=lambda case: case.incident.reason, whole=True),
        Column(title="remedy", cell=lambda case: case.incident.remedy, drop=1),
        Column(title="state", cell=lambda case: case.state_text),
        Column(
            title="detected",
            cell=lambda case: f"{age(case.incident.detected_at, now)} ago",
            drop=2,
        ),
        Column(
            title="jobs",
            cell=lambda case: ", ".join(case.incident.job_names),
            drop=4,
        ),
        Column(title="took", cell=lambda case: _seconds(case.took), drop=3),
        Column(title="successor", cell=lambda case: case.incident.successor, wide=True),
        Column(title="run", cell=lambda case: case.run, wide=True),
        Column(title="message", cell=lambda case: case.incident.message, wide=True),
    ]
    empty = "No incidents yet." if selection == Selection() else "No incident matches."
    print_rows(cases, columns, output=output, empty=empty, headers=headers)


def _describe(case: _Case, output: str) -> None:
    if is_document(output):
        print_document(case.plain(), output)
        return
    incident = case.incident
    if incident.checkpoint is not None:
        describe_checkpoint(incident, incident.checkpoint, case.run, case.next)
        return
    print_details(
        [
            ("Incident", incident.id),
            ("Run", case.run),
            ("Node", incident.node),
            ("Successor", incident.successor),
            ("Reason", incident.reason),
            ("Remedy", incident.remedy),
            ("State", case.state_text),
            ("Detected", incident.detected_at.astimezone().isoformat(" ", "milliseconds")),
            ("Took", _seconds(case.took)),
            ("Message", incident.message),
            *(("Next", step) for step in case.next),
        ]
    )
    points: list[Column[_Point]] = [
        Column(title="point", cell=lambda point: point.name),
        Column(title="at", cell=lambda point: _time(point.at)),
        Column(title="after", cell=lambda point: _seconds(point.after)),
        Column(
            title="since detected", cell=lambda point: _seconds(point.at - incident.detected_at)
        ),
    ]
    print_section("Timeline", list(_remediation(incident)), points, output=output)
    touches: list[Column[AffectedJob]] = [
        Column(title="job", cell=lambda touch: touch.job),
        Column(title="attempt", cell=lambda touch: touch.attempt),
        Column(title="step", cell=lambda touch: touch.step),
        Column(title="stopped", cell=lambda touch: _time(touch.stopped_at)),
        Column(title="resumed", cell=lambda touch: _time(touch.resumed_at)),
        Column(title="down", cell=_down),
    ]
    print_section("Jobs", incident.jobs, touches, output=output)


@dataclass(frozen=True, slots=True)
class _Point:
    name: str
    at: datetime
    after: timedelta | None
    """Time since the previous point; None for the first."""


def _remediation(incident: Incident) -> Iterator[_Point]:
    times = {
        "detected": incident.detected_at,
        "quarantined": incident.quarantined_at,
        "drained": incident.drained_at,
        "repaired": incident.repaired_at,
        "checked": incident.checked_at,
        "released": incident.released_at,
        "vanished": incident.vanished_at,
    }
    before = None
    for name, at in times.items():
        if at is not None:
            yield _Point(name, at, at - before if before is not None else None)
            before = at


def _down(touch: AffectedJob) -> str:
    return _seconds(touch.resumed_at - touch.stopped_at if touch.resumed_at is not None else None)


def _seconds(duration: timedelta | None) -> str:
    return "" if duration is None else format_duration(duration)


def _time(at: datetime | None) -> str:
    """Return the local time of day, to the millisecond."""
    return "" if at is None else at.astimezone().time().isoformat("milliseconds")
