"""Details of an incident of a checkpoint, for ``holdfast incidents show``."""

from collections.abc import Iterable
from datetime import datetime

from holdfast.apps.cli.output import format_size, print_details
from holdfast.model.checkpoints import Depth
from holdfast.model.incidents import Incident
from holdfast.model.set_aside import SetAside

_DEPTHS = {Depth.SIZES.value: "names and sizes", Depth.HASHES.value: "names, sizes and checksums"}


def describe_checkpoint(incident: Incident, one: SetAside, run: str, steps: Iterable[str]) -> None:
    """Print which checkpoint was moved, the evidence, its consequences, and what to do next."""
    before = "" if one.attempt is None else f" before attempt {one.attempt}"
    print_details(
        [
            ("Incident", incident.id),
            ("Run", run),
            ("Job", incident.job),
            ("Checkpoint", one.name),
            ("Step", one.step),
            ("Size", None if one.size is None else format_size(one.size)),
            ("Saved", _time(one.saved_at)),
            ("Reason", incident.reason),
            ("State", one.state),
            ("Verified", _DEPTHS.get(one.depth, one.depth)),
            *(("Problem", problem) for problem in one.problems),
            ("Attempts", ", ".join(map(str, one.attempts)) or "none had resumed from it"),
            ("Quarantined", f"{_time(incident.quarantined_at)}{before}"),
            ("Moved to", one.path),
            ("Resumed from", one.resumed or "nothing: the job started over"),
            *(("Next", step) for step in steps),
        ]
    )


def _time(at: datetime | None) -> str:
    return "" if at is None else at.astimezone().isoformat(" ", "milliseconds")
