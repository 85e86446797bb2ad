"""Whether the server can copy checkpoints of the jobs of created clusters."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.copies.table import open_copies
from holdfast.api.tiered_storage import TIERED_STORAGE, mirrors_checkpoints
from holdfast.apps.target import TargetPlatform, Where
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import CHECKPOINT_MIRROR_VARIABLE
from holdfast.ports.cluster_records import StoredCluster

_KEY: Final = "checkpoint_mirror"
_NOT_IN_URLS: Final = frozenset("?#")
"""Characters that would end the path of a URL, to which names of directories are added."""

_IN_THE_JOB: Final = {
    TargetPlatform.KUBERNETES: (
        "the environment of pods is that of their template, which the server does not change; set "
        f"{CHECKPOINT_MIRROR_VARIABLE} there, for holdfast checkpoint guard"
    ),
    TargetPlatform.SLURM: (
        "the environment of jobs is that of their users, which the server does not change; set "
        f"{CHECKPOINT_MIRROR_VARIABLE} in batch scripts, for srun --auto-resume=1"
    ),
}


def mirror_problem(
    location: str,
    where: Where,
    clusters: Callable[[], Sequence[StoredCluster]],
    report: Callable[[str], None],
) -> str:
    """Return why checkpoints cannot be copied; empty if they can.

    Clusters whose checkpoints should be copied and are not are reported.

    Args:
        location: of the copies, as configured.
        where: platform of the nodes.
        clusters: reads the created clusters.
        report: prints a message.

    Raises:
        ConfigError: the location is not valid.

    """
    _check(location)
    problem = _problem(location, where)
    for one in clusters() if problem else ():
        if mirrors_checkpoints(one.cluster.requested):
            what = f"cluster {one.cluster.name}: checkpoints of jobs are not copied"
            report(f"{what}: {TIERED_STORAGE}: {problem}")
    return problem


def _problem(location: str, where: Where) -> str:
    if where.place in _IN_THE_JOB:
        return (
            f"--platform of the server is {where.place}: {_IN_THE_JOB[where.place]}. Omit it, or "
            "set Mode to Disable"
        )
    if not location:
        return (
            f"{_KEY} is not set in the configuration of the server; set it to the location of the "
            f"copies, omit {TIERED_STORAGE}, or set Mode to Disable"
        )
    return ""


def _check(location: str) -> None:
    """Check that copies can be stored in a location, without access to it.

    Raises:
        ConfigError: it is neither an absolute path nor a valid URL, or a package for it is missing.

    """
    if not location:
        return
    is_url = "://" in location
    is_usable = not set(location) & _NOT_IN_URLS if is_url else Path(location).is_absolute()
    if not (is_usable and location.isprintable()):
        raise ConfigError(
            f"{_KEY}: expected an absolute path, s3://BUCKET/PREFIX or another URL without ? and "
            f"#, got {location!r}"
        )
    try:
        open_copies(location)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}: {error}") from error
