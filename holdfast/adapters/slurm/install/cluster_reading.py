"""Reads the facts of a Slurm cluster from this host, for ``holdfast slurm doctor``."""

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.conf_file import conf_settings, munge_socket
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.node_text import SHOW_NODES
from holdfast.adapters.slurm.install.cluster_facts import AgentFacts, ClusterFacts
from holdfast.adapters.slurm.install.plan import PLUGIN
from holdfast.adapters.slurm.nodes.leadership import FILE as LOCK
from holdfast.adapters.slurm.nodes.munge import Munge, trust_of
from holdfast.adapters.slurm.nodes.reports import Reports
from holdfast.adapters.slurm.nodes.signatures import directory_problem
from holdfast.model.errors import BackendError, HoldfastError

_CALL: Final = timedelta(seconds=15)
DEFAULT_CONF: Final = "/etc/slurm/slurm.conf"
_FIRST_LINE: Final = 256  # bytes; the kernel reads no more of it
_DEPTH: Final = 4
"""Depth of nested includes in plugstack.conf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Directories and settings of the controller that the doctor uses."""

    conf: Path | None = None
    report_dir: Path | None = None
    state_dir: Path | None = None
    max_retries: int | None = None
    join_timeout: timedelta | None = None
    replace: str = ""
    reboot: str = ""


class _ClusterCommands(JobCommands):
    def node_fields(self) -> dict[str, dict[str, str]]:
        """Return all ``key=value`` fields of all nodes, by node name."""
        lines = self._call(*SHOW_NODES).splitlines()
        reported = (dict(_pairs(line)) for line in lines)
        return {node["NodeName"]: node for node in reported if "NodeName" in node}

    def has_option(self) -> bool:
        """Whether srun has the option ``--auto-resume``."""
        return "--auto-resume" in self._call("srun", "--help")


def read_cluster(sources: Sources, now: datetime) -> ClusterFacts:
    """Return the facts of the cluster, as far as this host can read them."""
    slurm = _ClusterCommands(sources.conf, _CALL)
    try:
        settings = slurm.settings()
        nodes = slurm.node_fields()
        reservations = tuple(slurm.reservations())
        has_option = slurm.has_option()
    except BackendError as error:
        return ClusterFacts(problem=str(error), has_munge=_has_munge(conf_settings(sources.conf)))
    lines = [*_lines(Path(settings.get("PlugStackConfig", "")), _DEPTH)]
    plugin = next((line for line in lines if f"/{PLUGIN}.so" in line), "")
    return ClusterFacts(
        settings=settings,
        nodes=nodes,
        reservations=reservations,
        has_plugstack=os.access(settings.get("PlugStackConfig", ""), os.R_OK),
        plugin=plugin,
        has_option=has_option,
        has_supervisor=_has_supervisor(plugin),
        supervisor_closed=next(filter(None, map(closed_to_others, _supervisors(plugin))), ""),
        has_munge=_has_munge(settings),
        agents=_agents(sources, now),
        open_reports=_directory_problem(sources),
        is_controlled=None if sources.state_dir is None else _is_controlled(sources.state_dir),
        max_retries=sources.max_retries,
        join_timeout=sources.join_timeout,
        replace=sources.replace,
        reboot=sources.reboot,
    )


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            yield key, value


def _lines(path: Path, depth: int) -> Iterator[str]:
    """Yield the lines of a plugstack.conf and of the files that it includes."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["include"] and len(words) > 1 and depth:
            pattern = Path(words[1])
            folder = pattern.parent if pattern.is_absolute() else path.parent
            for one in sorted(folder.glob(pattern.name)):
                yield from _lines(one, depth - 1)
        elif words:
            yield " ".join(words)


def _supervisors(plugin: str) -> list[str]:
    given = (word.partition("=") for word in plugin.split()[2:])
    return [value for key, _, value in given if key == "supervisor"]


def _has_supervisor(plugin: str) -> bool:
    return not plugin or any(os.access(value, os.X_OK) for value in _supervisors(plugin))


def closed_to_others(program: str) -> str:
    """Return the path that prevents users who neither own a program nor are in its group from it.

    Checks the file, its link target, the interpreter in its first line, and all directories of
    their paths, but no access control lists. Empty if other users can execute the program.
    """
    path = Path(program)
    for one in (path, _interpreter(path)):
        if one is None:
            continue
        for part in (*reversed(one.parents), *reversed(one.resolve().parents), one.resolve()):
            try:
                mode = part.stat().st_mode
            except OSError:
                continue  # reported by another rule, as a missing program
            if not mode & stat.S_IXOTH:
                return f"{part} ({stat.filemode(mode)})"
    return ""


def _interpreter(path: Path) -> Path | None:
    try:
        with path.open("rb") as file:
            first = file.readline(_FIRST_LINE)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])) if words else None


def _has_munge(settings: Mapping[str, str]) -> bool:
    try:
        munge = Munge(munge_socket(settings))
        return munge.decode(munge.encode(b"doctor")).payload == b"doctor"
    except (HoldfastError, ValueError):
        return False


def _directory_problem(sources: Sources) -> str:
    if sources.report_dir is None:
        return ""
    try:
        return directory_problem(sources.report_dir, trust_of(sources.conf).users)
    except (HoldfastError, OSError):  # reported by other rules
        return ""


def _agents(sources: Sources, now: datetime) -> Mapping[str, AgentFacts] | None:
    folder = sources.report_dir
    if folder is None:
        return None
    try:
        reports = Reports(folder, trust_of(sources.conf))
        reports.refresh(now)
    except HoldfastError:
        return {}
    found = {}
    for name, received in reports.received().items():
        try:
            written = (folder / f"{name}.json").stat().st_mtime
        except OSError:
            continue
        at = datetime.fromtimestamp(written, UTC)
        found[name] = AgentFacts(age=now - at, skew=received.report.reported_at - at)
    return found


def _is_controlled(state_dir: Path) -> bool | None:
    """Whether a controller holds the lock file; None if the file cannot be read."""
    try:
        with (state_dir / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
