"""What an operator does next about an incident; commands and the console show the same. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.decisions import checkpoint_incidents
from holdfast.decisions.attention import Attention
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Phase

_GONE: Final = (
    "the node disappeared before its repair ended; unless somebody removed it, check its machine "
    "at the provider"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """State of a fleet that decides about its open incidents."""

    is_active: bool
    """Whether a controller repairs its nodes."""

    is_breaker_open: bool = False
    phases: Mapping[str, Phase] = field(default_factory=dict)
    """``node -> phase``."""

    pauses: Mapping[str, str] = field(default_factory=dict)
    """``node -> why its repairs are paused``, of nodes whose repairs are."""

    attention: Iterable[Attention] = ()
    """What needs a person, of this fleet or of all."""


def next_steps(incident: Incident, fleet: FleetState) -> tuple[str, ...]:
    """Return what an operator does about an incident, with commands; one step or more."""
    if incident.checkpoint is not None:
        return checkpoint_incidents.next_steps(incident.checkpoint)
    if not incident.node:
        return ("read the evidence",)
    if incident.released_at is not None:
        remarks = incident.check_remarks
        skipped = (f"parts of its check did not run: {remarks}",) if remarks else ()
        return (f"no action required: {incident.back} is schedulable", *skipped)
    if incident.vanished_at is not None:
        return (_GONE,)
    if not fleet.is_active:
        return ("its run has ended, so nothing repairs the node",)
    return _of_open(incident, fleet)


def _of_open(incident: Incident, fleet: FleetState) -> tuple[str, ...]:
    nodes = [name for name in (incident.successor, incident.node) if name]
    items = [one for one in fleet.attention if one.node in nodes]
    if items:
        return tuple(f"{one.what}; {one.next}" for one in items)
    paused = next((name for name in nodes if name in fleet.pauses), None)
    if paused is not None:
        return (
            f"repairs on {paused} are paused: {fleet.pauses[paused]}; to resume them, run: "
            f"holdfast nodes unhold {paused}",
        )
    if fleet.is_breaker_open:
        return (
            "the circuit breaker has paused all repairs: inspect the nodes, then run: holdfast "
            "nodes reset-breaker",
        )
    known = next((name for name in nodes if name in fleet.phases), None)
    state = f"{known} is {fleet.phases[known]}" if known else f"waiting for {incident.back}"
    return (f"no action required yet: {state}",)
