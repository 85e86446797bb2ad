"""Names a run and validates it, before it begins and before any file is created."""

import errno
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.local.layout import RunDir, runs
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.machine import MARK
from holdfast.apps.run.settings import RunSettings
from holdfast.kit.free_ports import is_free
from holdfast.kit.processes import kill_marked
from holdfast.model.errors import ConfigError, StorageFull
from holdfast.model.names import NODE_NAME_PREFIX

_JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_ID_BYTES: Final = 4
"""Random bytes of an ID. Two of 1,000 jobs with one name get the same ID with probability 1 in
8,600, and the store refuses it."""

_MIN_FREE_BYTES: Final = 1 << 20
"""Minimum free disk space in bytes, for the state and a log."""

_LAUNCHERS: Final = re.compile(
    r"(^| )-m ?(torch\.distributed\.|holdfast launch|accelerate|deepspeed|lightning)"
)
"""Modules that start worker processes themselves."""

MOST_NODES: Final = 1000
"""Maximum number of nodes of a run: each takes two processes or more, and 20 MiB of memory."""


def check(settings: RunSettings) -> None:
    """Report all mistakes at once.

    Raises:
        ConfigError: there are mistakes; with a line for each.
        StorageFull: there is too little disk space for the run.

    """
    problems = list(_problems(settings))
    if problems:
        raise ConfigError(problems)
    for directory in (settings.home, settings.checkpoint_dir):
        if directory is not None and _free_bytes(directory) < _MIN_FREE_BYTES:
            raise StorageFull(
                f"{directory}: no space left on device; free some, or choose another directory "
                "with --checkpoint-dir or HOLDFAST_HOME"
            )


def sweep(home: Path) -> int:
    """End processes that killed runs have left behind; return how many.

    Such a run was killed together with all its node processes.
    """
    found = [(run, _machines(run)) for run in runs(home)]
    # Only now: a run that begins since has machines that were not there before.
    dead = [machines for run, machines in found if machines and not is_held(run)]
    return kill_marked(MARK, frozenset().union(*dead))


def _machines(run: RunDir) -> frozenset[str]:
    """Return the instance IDs of the machines of a run, which may be archived meanwhile."""
    try:
        nodes = os.listdir(run.nodes)
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    return frozenset(name.removeprefix(NODE_NAME_PREFIX) for name in nodes)


def archive(run: RunDir) -> Path | None:
    """Move the directory of an earlier run of the same name.

    Returns:
        The new path; None if there was no earlier run.

    """
    if not run.state.exists():
        return None
    number = 1
    while (archived := run.path.with_name(f"{run.name}.{number}")).exists():
        number += 1
    run.path.rename(archived)
    return archived


def _problems(settings: RunSettings) -> Iterator[str]:
    if settings.spares < 0:
        yield f"--spares: expected 0 or more, got {settings.spares}"
    if settings.nodes + max(settings.spares, 0) > MOST_NODES:
        yield f"--nodes, --spares: expected {MOST_NODES} nodes at most, together"
    yield from job_problems(settings)
    yield from _directory_problems(settings.home, "HOLDFAST_HOME")


def job_problems(settings: RunSettings) -> Iterator[str]:
    """Yield the errors in the settings of a job, on any nodes of this machine."""
    if not _JOB_NAME.fullmatch(settings.name):
        yield (
            f"--name: {settings.name!r} is not a valid name; expected up to 63 letters, digits, "
            "'.', '_' and '-', beginning with a letter or a digit"
        )
    if settings.resume and settings.checkpoint_dir is not None:
        yield "--resume, --checkpoint-dir: both select the checkpoints to resume; give one"
    least = (("--nodes", settings.nodes, 1),
             ("--nproc-per-node", settings.nproc_per_node, 1),
             ("--max-retries", settings.max_retries, 0),
             ("--max-app-retries", settings.max_app_retries, 0))  # fmt: skip
    for option, value, minimum in least:
        if value < minimum:
            yield f"{option}: expected {minimum} or more, got {value}"
    limits = (("--hang-timeout", settings.hang_timeout),
              ("--startup-timeout", settings.startup_timeout))  # fmt: skip
    for option, limit in limits:
        if limit is not None and limit <= timedelta(0):
            yield f"{option}: expected more than 0s, got {limit}; omit it for no limit"
    yield from _command_problems(settings.command)
    try:
        Path.cwd()
    except FileNotFoundError:
        yield "the current directory was deleted; change to another directory"
    if settings.checkpoint_dir is not None:
        yield from _directory_problems(settings.checkpoint_dir, "--checkpoint-dir")
    port = settings.master_port
    if port is not None and not 1 <= port <= 65535:
        yield f"--master-port: expected a TCP port from 1 to 65535, got {port}"
    elif port is not None and not is_free(port):
        yield (
            f"--master-port: port {port} is used by another program; omit the option to choose a "
            "free port"
        )


def launcher_warning(settings: RunSettings) -> str:
    """Return a warning if a command seems to start too few processes; else empty."""
    count, command = settings.nproc_per_node, settings.command
    is_python = re.fullmatch(r"python[0-9.]*", Path(command[0]).name if command else "") is not None
    if count == 1 or not is_python or _LAUNCHERS.search(" ".join(command[1:])):
        return ""
    return (
        f"--nproc-per-node: COMMAND is started once on each node, and has to start {count} "
        f"processes itself, as torchrun and Lightning's Trainer(devices={count}) do: RANK and "
        f"LOCAL_RANK are not set; for a script that starts none, use: torchrun "
        f"{shlex.join(command[1:])}"
    )


def _command_problems(command: Sequence[str]) -> Iterator[str]:
    """Yield the reasons why a command cannot be run."""
    if not command:
        yield "COMMAND: missing; give it after two dashes: holdfast run -- python \
train.py"
        return
    program = command[0]
    if shutil.which(program) is not None:
        return
    path = Path(program)
    if "/" not in program:
        yield (
            f"COMMAND: {program!r} not found in PATH; activate the environment that has it, or "
            "give its absolute path"
        )
    elif path.is_dir():
        yield f"COMMAND: {program!r} is a directory, expected a program"
    elif path.exists():
        yield f"COMMAND: {program!r} is not executable; run: chmod +x {program}"
    else:
        yield f"COMMAND: {program!r} does not exist"


def _directory_problems(directory: Path, option: str) -> Iterator[str]:
    existing = _nearest(directory)
    if not existing.is_dir():
        yield f"{option}: {existing} is a file, expected a directory"
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield f"{option}: {directory} cannot be written: {existing} is not writable by this user"
    elif not _takes_files(existing):
        yield f"{option}: {directory} cannot be written: {existing} is on a read-only file system"


def _takes_files(directory: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)  # reported apart: another remedy


def _free_bytes(directory: Path) -> int:
    free = os.statvfs(_nearest(directory))
    return free.f_bavail * free.f_frsize


def _nearest(directory: Path) -> Path:
    """Return the directory, or its nearest parent that exists."""
    path = directory.absolute()
    while not path.exists():
        path = path.parent
    return path


def default_name(taken: Collection[str], command: Sequence[str]) -> str:
    """Return ``<script>-<n>``, with the smallest n for which it is not in ``taken``."""
    scripts = [word for word in command if word.endswith(".py")] or list(command[:1])
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(scripts[0]).stem if scripts else "").strip("-")
    stem = stem[:50] or "run"
    return next(name for n in range(1, len(taken) + 2) if (name := f"{stem}-{n}") not in taken)


def new_job_id(name: str) -> str:
    """Return an ID for a job: its name, and random hexadecimal digits."""
    return f"{name}-{secrets.token_hex(_ID_BYTES)}"
