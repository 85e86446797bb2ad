"""Finds what still refers to Holdfast in Slurm: settings, nodes and reservations."""

from collections.abc import Collection, Iterator
from typing import Final

from holdfast.adapters.slurm.commands.checks import PREFIX
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.adapters.slurm.nodes.reservations import JOB, NEXT, SPARE

_SCRIPTS: Final = ("Prolog", "PrologSlurmctld", "Epilog", "HealthCheckProgram")
_RESERVATIONS: Final = (PREFIX, JOB, NEXT, SPARE)


def settings_in_use(slurm: JobCommands, files: Collection[str]) -> list[str]:
    """Return the lines of slurm.conf that name one of these files; remove those lines first.

    If its script is missing, slurmd drains a node at the next job.

    Raises:
        BackendError: slurmctld does not respond.

    """
    found = slurm.settings()
    scripts = ((key, script) for key in _SCRIPTS for script in found.get(key, "").split(","))
    return [f"{key}={script}" for key, script in scripts if script in files]


def restoring_commands(slurm: JobCommands) -> Iterator[str]:
    """Yield commands that release nodes and reservations which Holdfast no longer manages.

    Jobs that were held start by themselves within ten minutes.

    Raises:
        BackendError: slurmctld does not respond.

    """
    for name, node in sorted(slurm.nodes().items()):
        if node.reason.author is Author.HOLDFAST:
            yield f"scontrol update nodename={name} state=resume    # {node.reason.text}"
    for name in sorted(slurm.reservations()):
        if name.startswith(_RESERVATIONS):
            yield f"scontrol delete reservationname={name}"
