"""What refers to Holdfast in Slurm itself: settings, nodes and reservations."""

from collections.abc import Collection, Iterator
from typing import Final

from holdfast.adapters.slurm.commands.checks import PREFIX
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.adapters.slurm.nodes.reservations import JOB, NEXT, SPARE

_SCRIPTS: Final = ("Prolog", "PrologSlurmctld", "Epilog", "HealthCheckProgram")
_RESERVATIONS: Final = (PREFIX, JOB, NEXT, SPARE)


def settings_in_use(slurm: JobCommands, files: Collection[str]) -> list[str]:
    """Lines of slurm.conf that name one of these files, which cannot go before.

    Without its script, slurmd drains a node at the next job.

    Raises:
        BackendError: slurmctld cannot be asked.

    """
    found = slurm.settings()
    return [f"{key}={found[key]}" for key in _SCRIPTS if found.get(key) in files]


def restoring_commands(slurm: JobCommands) -> Iterator[str]:
    """Commands that give back nodes and reservations which nobody looks after any more.

    Jobs that were held start by themselves within ten minutes.

    Raises:
        BackendError: slurmctld cannot be asked.

    """
    for name, node in sorted(slurm.nodes().items()):
        if node.reason.author is Author.HOLDFAST:
            yield f"scontrol update nodename={name} state=resume    # {node.reason.text}"
    for name in sorted(slurm.reservations()):
        if name.startswith(_RESERVATIONS):
            yield f"scontrol delete reservationname={name}"
