"""Messages about copies of checkpoints."""

import shlex

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome
from holdfast.decisions.checkpoint_restore import RestorePlan
from holdfast.kit.units import counted


def no_copy(plan: RestorePlan, location: str) -> str:
    """Return why no copy is restored without a person, and how a person restores one."""
    found = plan.too_old or plan.suspected
    if not found:
        return f"no copy in {location} is newer than what the directory has"
    why = "older than the limit of a rollback" if plan.too_old else "suspected"
    subject = counted(len(found), "copy", "copies") + (" is " if len(found) == 1 else " are ")
    command = ["holdfast", "checkpoint", "restore", location, "DIRECTORY", "--name", found[0].name]
    return f"{subject}{why}; to restore the newest one, run: {shlex.join(command)}"


def restored_because(choice: Choice) -> str:
    """Return why a copy was restored."""
    if choice.outcome is ResumeOutcome.ASK and choice.resume is not None:
        return f"{choice.resume.name} is older than the limit of a rollback"
    if choice.resume is not None:
        return f"{choice.resume.name} is suspected, and no other checkpoint was complete"
    return "no good checkpoint was left"
