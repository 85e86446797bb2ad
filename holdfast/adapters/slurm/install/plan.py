"""Plans the installation on one machine of a Slurm cluster, without side effects."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Final

PLUGIN: Final = "holdfast_auto_resume"
"""Name of the SPANK plugin: its source is package data, and is compiled on the machine that uses
it."""

SAGEMAKER: Final = "opt/sagemaker_cluster"
"""Directory by which scripts of HyperPod's guide detect that ``--auto-resume`` is available."""

_PACKAGE: Final = "holdfast.adapters.slurm.install"
_COMPILE: Final = ("-std=gnu11", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")


class MachineRole(StrEnum):
    """Role of a machine in its cluster."""

    HEAD = "head"
    """Runs slurmctld and the controller."""

    COMPUTE = "compute"
    """Runs slurmd and an agent."""

    LOGIN = "login"
    """Jobs are submitted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A file to write."""

    path: Path
    text: str
    is_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A directory that must exist."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """The SPANK plugin, to be compiled."""

    path: Path
    source: str
    command: tuple[str, ...]
    """Compiler with its options; the output and the source are appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    """A line in a file that others may have written."""

    path: Path
    text: str
    key: str
    """A word that identifies the line in its file."""


Part = Text | Folder | Plugin | FileLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Choices of the operator, or detected values."""

    role: MachineRole
    holdfast: Path
    """Path of the program, the same on every machine."""

    plugstack: Path
    prefix: Path = Path("/")
    report_dir: Path | None = None
    """Report directory, required by the configurations of controller and agents."""

    user: str = "slurm"
    """User that runs the controller."""

    headers: Path = Path("/usr/include")
    compiler: str = "gcc"
    sagemaker_dir: bool = False
    prolog: bool = False
    """Whether nodes are checked before each job."""

    @property
    def etc(self) -> Path:
        """Return the directory of the configurations."""
        return self.prefix / "etc/holdfast"

    @property
    def manifest(self) -> Path:
        """Return the path of the manifest."""
        return self.etc / "slurm-install.json"


def plan(choices: Choices) -> Iterator[Part]:
    """Yield the parts of an installation, in the order in which they are written."""
    if choices.role is MachineRole.COMPUTE:
        yield _config(choices, "agent.toml", _AGENT)
        yield _unit(choices, "holdfast-agent.service")
    if choices.role is MachineRole.HEAD:
        yield _config(choices, "controller.toml", _CONTROLLER)
        yield _unit(choices, "holdfast-controller.service")
    if choices.prolog and choices.role in _PROLOGS:
        name, text = _PROLOGS[choices.role]
        yield replace(_config(choices, name, text), is_program=True)
    if choices.sagemaker_dir:
        yield Folder(path=choices.prefix / SAGEMAKER)
    library = choices.prefix / f"usr/local/lib/holdfast/{PLUGIN}.so"
    yield Plugin(
        path=library,
        source=files(_PACKAGE).joinpath(f"spank/{PLUGIN}.c").read_text(encoding="utf-8"),
        command=(choices.compiler, *_COMPILE, f"-I{choices.headers}"),
    )
    # optional: a plugin that cannot be loaded, as after an upgrade of Slurm, must stop no job
    line = f"optional {library} supervisor={choices.holdfast}"
    yield FileLine(path=choices.plugstack, text=line, key=str(library))


def next_steps(choices: Choices) -> Iterator[str]:
    """Yield the commands that the operator runs next."""
    units = {MachineRole.HEAD: "holdfast-controller", MachineRole.COMPUTE: "holdfast-agent"}
    unit = units.get(choices.role)
    if unit is not None:
        yield f"systemctl daemon-reload && systemctl enable --now {unit}"
    if choices.prolog and choices.role in _PROLOGS:
        name, _ = _PROLOGS[choices.role]
        setting, follow = _SETTINGS[name]
        yield f"add to slurm.conf, and {follow}: {setting}={choices.etc / name}"
        if choices.role is MachineRole.COMPUTE:
            yield "add to slurm.conf: PrologFlags=Alloc; without it, a failed check fails the job"
    if choices.role is MachineRole.COMPUTE:
        yield "scontrol reconfigure    # slurmd reads plugstack.conf again"
    yield "holdfast slurm doctor"


def _config(choices: Choices, name: str, text: str) -> Text:
    return Text(path=choices.etc / name, text=_filled(choices, text))


def _unit(choices: Choices, name: str) -> Text:
    text = files(_PACKAGE).joinpath(f"units/{name}").read_text(encoding="utf-8")
    path = choices.prefix / "etc/systemd/system" / name
    return Text(path=path, text=_filled(choices, text))


def _filled(choices: Choices, text: str) -> str:
    values = {
        "HOLDFAST": choices.holdfast, "ETC": choices.etc, "USER": choices.user,
        "REPORT_DIR": choices.report_dir, "STATE_DIR": choices.prefix / "var/lib/holdfast",
        "SLURM_CONF": choices.plugstack.with_name("slurm.conf"),
    }  # fmt: skip
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


_AGENT: Final = """\
# Every key: docs/reference/agent-config.md

[slurm]
report_dir = "@REPORT_DIR@"
"""

_PROLOG: Final = """\
#!/bin/sh
# Prolog of slurm.conf: checks the GPUs of a job on its nodes before it begins. With it, set
# PrologFlags=Alloc, SchedulerParameters=nohold_on_prolog_fail, and PrologEpilogTimeout above 10
# minutes.
@HOLDFAST@ check prolog --report-dir @REPORT_DIR@
[ $? -ne 1 ]    # 1: broken; a check that cannot run at all must not drain every node
"""

_HEAD_PROLOG: Final = """\
#!/bin/sh
# PrologSlurmctld of slurm.conf: no job begins where a fault is known. Where SlurmUser may log in to
# the nodes, --through ssh --gpus all puts their GPUs under load, too.
export SLURM_CONF="${SLURM_CONF:-@SLURM_CONF@}"
@HOLDFAST@ check prolog --state-dir @STATE_DIR@
[ $? -ne 1 ]    # 1: broken; a check that cannot run at all must not keep every job waiting
"""

_PROLOGS: Final = {
    MachineRole.COMPUTE: ("prolog", _PROLOG), MachineRole.HEAD: ("prolog-slurmctld", _HEAD_PROLOG),
}  # fmt: skip
_SETTINGS: Final = {
    "prolog": ("Prolog", "scontrol reconfigure"),
    # after a reconfigure, 22.05 shows a new value but does not run it
    "prolog-slurmctld": ("PrologSlurmctld", "systemctl restart slurmctld"),
}

_CONTROLLER: Final = """\
# Every key: docs/reference/controller-config.md

platform = "slurm"

[slurm]
report_dir = "@REPORT_DIR@"
state_dir = "@STATE_DIR@"

# Who reboots and replaces machines: docs/howto/choose-a-provider.md
# [provider]
# replace = "ec2-autoscaling"
# reboot = "slurm-reboot"
"""
