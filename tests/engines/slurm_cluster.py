"""A throw-away Slurm cluster: the real programs on loopback, ready in seconds.

munged, slurmctld and a slurmd for each node run as child processes on data in memory, as the user
who starts them; no root, no systemd, no cgroups. Each node is a machine whose plug can be pulled::

    with SlurmCluster(programs) as cluster:
        cluster.run("sbatch", "job.sh")
        cluster.machines["node1"].power_off()

``scontrol reboot`` and power saving act on the machines, too. Needs Linux and Slurm's programs.
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError
from tests.engines.ports import free_port
from tests.engines.slurm_conf import ConfiguredNode, gres_conf, slurm_conf
from tests.engines.slurm_machine import Command, Machine, carry_out, plugged, pulled
from tests.engines.waiting import POLL_S, Polling

_MEMORY: Final = Path("/dev/shm")
_TIMEOUT: Final = timedelta(minutes=3)
_CALL_S: Final = 60.0
_LOG_LINES: Final = 15
_PROGRAMS: Final = (
    "munged", "slurmctld", "slurmd", "slurmstepd", "scontrol", "sbatch", "sinfo", "squeue",
)  # fmt: skip

_ORDER: Final = """\
#!/bin/sh
echo {verb} "$1" >> {folder}/orders
"""
_FLAGGED: Final = """\
#!/bin/sh
[ ! -e {folder}/fail-{verb}-"$SLURMD_NODENAME" ]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPrograms:
    """One installed version of Slurm."""

    path: str
    """Folders with its programs, and with munge's, separated by colons."""

    plugins: Path

    def find(self, name: str) -> Path:
        """Where a program is.

        Raises:
            BackendError: it is not installed.

        """
        found = shutil.which(name, path=self.path)
        if found is None:
            raise BackendError(
                f"{name} is not installed; on Debian: apt-get install slurmctld slurmd"
                " slurm-client munge"
            )
        return Path(found)

    @property
    def version(self) -> str:
        """Such as ``22.05``."""
        text = subprocess.run(
            [self.find("slurmd"), "-V"], capture_output=True, check=True, encoding="utf-8"
        ).stdout
        return ".".join(text.split()[-1].split(".")[:2])

    @property
    def is_old(self) -> bool:
        """Whether its version is before 23."""
        return int(self.version.partition(".")[0]) < 23


def installed_slurm() -> SlurmPrograms:
    """The version that this machine has.

    Raises:
        BackendError: it has none; the message has the command to install it.

    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    folders = [*Path("/usr/lib").glob("*/slurm-wlm"), Path("/usr/lib64/slurm")]
    plugins = next((folder for folder in folders if folder.is_dir()), folders[-1])
    programs = SlurmPrograms(path=path, plugins=plugins)
    for name in _PROGRAMS:
        programs.find(name)
    return programs


class SlurmCluster:
    """One cluster; a context manager that leaves nothing behind.

    The programs end with the thread that started them, even if that is killed. Start and restart
    from the main thread.

    Args:
        programs: which Slurm.
        nodes: their names.
        cloud: those of them that are off until Slurm wants them.
        gpus: how many each node has; they are empty files.
        settings: more parameters of ``slurm.conf``, or other values.

    """

    def __init__(
        self,
        programs: SlurmPrograms,
        *,
        nodes: Sequence[str] = ("node1", "node2", "node3", "node4"),
        cloud: Collection[str] = (),
        gpus: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._programs = programs
        self.folder = Path(
            tempfile.mkdtemp(prefix="slurm-", dir=_MEMORY if _MEMORY.is_dir() else None)
        )
        self._settings = {
            "PluginDir": str(programs.plugins),
            "SlurmctldHost": f"{_host()}(127.0.0.1)",
            "SlurmctldPort": str(free_port()),
            "SlurmUser": str(os.getuid()),
            "SlurmdUser": str(os.getuid()),
            **{
                program: str(self._program(program, _ORDER))
                for program in ("RebootProgram", "ResumeProgram", "SuspendProgram")
            },
            **{part: str(self._program(part, _FLAGGED)) for part in ("Prolog", "Epilog")},
            **(settings or {}),
        }
        self._configured = [
            ConfiguredNode(
                name=name,
                port=free_port(),
                gpus=gpus,
                devices=self.folder / f"{name}-nvidia",
                is_cloud=name in cloud,
            )
            for name in nodes
        ]
        self._gpus = dict.fromkeys(nodes, gpus)
        self.carries_out = True
        """Whether what Slurm's programs for reboot and power saving order is done."""
        self.machines = {
            name: Machine(name, self.folder / name, self._slurmd(name)) for name in nodes
        }
        self._plugs: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self._owner = threading.Thread(target=self._own, name="owner", daemon=True)

    @property
    def conf(self) -> Path:
        """The ``slurm.conf``, for ``SLURM_CONF``."""
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """What clients of this cluster need."""
        return {**os.environ, "PATH": self._programs.path, "SLURM_CONF": str(self.conf)}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.close)
            self._configure()
            self._start_munged()
            self.start_controller()
            names = [node.name for node in self._configured if not node.is_cloud]
            for name in names:
                self.machines[name].boot(is_first=True)
            self._owner.start()
            self.until(lambda: all(self.state(name) == {"IDLE"} for name in names))
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, program: str, *arguments: str | Path) -> str:
        """Standard output of one of Slurm's programs.

        Raises:
            BackendError: it failed; with its output.

        """
        done = subprocess.run(
            [self._programs.find(program), *arguments],
            env=self.environment,
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=_CALL_S,
            cwd=self.folder,
        )
        if done.returncode:
            raise BackendError(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def node(self, name: str) -> dict[str, str]:
        """Fields in ``scontrol show node``; values with blanks but for ``Reason`` cut."""
        text = self.run("scontrol", "-o", "show", "node", name).strip()
        head, _, reason = text.partition(" Reason=")
        values = dict(pair.split("=", 1) for pair in head.split() if "=" in pair)
        return {**values, "Reason": reason.split(" Comment=")[0].rpartition(" [")[0].strip()}

    def state(self, name: str) -> set[str]:
        """The state of a node and its flags."""
        with suppress(BackendError):
            return set(self.node(name)["State"].split("+"))
        return set()

    def jobs(self) -> dict[str, str]:
        """``job id -> state`` of all jobs, also of those that ended a while ago."""
        lines = self.run("squeue", "-h", "-t", "all", "-o", "%A %T").splitlines()
        return dict(line.split() for line in lines)

    def submit(self, *options: str, script: str) -> str:
        """Submit a batch job; returns its id."""
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        return self.run("sbatch", "--parsable", *options, path).strip()

    def until(self, is_done: Callable[[], object], timeout: timedelta = _TIMEOUT) -> None:
        """Wait until ``is_done`` is true.

        Raises:
            BackendError: that took longer than ``timeout``; with the ends of Slurm's logs.

        """
        polling = Polling()
        while not is_done():
            if polling.pause() > timeout.total_seconds():
                names = sorted(path.stem for path in self.folder.glob("slurm*.log"))
                ends = "\n".join(f"{name}:\n{self.log(name)}" for name in names)
                raise BackendError(f"not so within {timeout}:\n{ends}")

    def log(self, program: str = "slurmctld", lines: int = _LOG_LINES) -> str:
        """The last lines that a program such as ``slurmd.node1`` wrote."""
        path = self.folder / f"{program}.log"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def start_controller(self) -> None:
        """Start slurmctld; returns when it answers."""
        self._plugs["slurmctld"] = plugged(
            self.folder / "slurmctld.out", [self._programs.find("slurmctld"), "-D", "-f", self.conf]
        )
        self.until(self._answers)

    def stop_controller(self) -> None:
        """End slurmctld as SIGTERM does: it saves its state."""
        self._plugs["slurmctld"].send_signal(signal.SIGSTOP)  # the plug is not to pull
        for pid in _pids(self._plugs["slurmctld"].pid):
            os.kill(pid, signal.SIGTERM)
        self._plugs["slurmctld"].send_signal(signal.SIGCONT)
        self._plugs.pop("slurmctld").wait()

    def crash_controller(self) -> None:
        """End slurmctld as SIGKILL does: what it had not saved yet is lost."""
        pulled(self._plugs.pop("slurmctld"))

    def fail_prolog(self, node: str, *, fails: bool = True) -> None:
        """Let the Prolog of a node fail from now on, or no longer."""
        self._flag("Prolog", node, fails=fails)

    def fail_epilog(self, node: str, *, fails: bool = True) -> None:
        """Let the Epilog of a node fail from now on, or no longer."""
        self._flag("Epilog", node, fails=fails)

    def lose_gpus(self, node: str, left: int) -> None:
        """Leave a node that many GPUs; its slurmd notices when it starts anew."""
        self._gpus[node] = left
        self._write_gres()
        self.machines[node].kill_slurmd()
        self.machines[node].start_slurmd()

    def close(self) -> None:
        """End everything and remove the data."""
        self._over.set()
        if self._owner.is_alive():
            self._owner.join()
        for machine in self.machines.values():
            machine.power_off()
        for plug in self._plugs.values():
            pulled(plug)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self) -> None:
        (self.folder / "state").mkdir()
        (self.folder / "plugstack.conf").touch()
        for node in self._configured:
            (self.folder / "spool" / node.name).mkdir(parents=True)
            for number in range(node.gpus):
                Path(f"{node.devices}{number}").touch()
        is_old = self._programs.is_old
        cgroups = "cgroup/v1" if is_old else "disabled"
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={cgroups}\n", encoding="utf-8")
        self._write_gres()
        text = slurm_conf(
            self.folder, self._configured, self._settings, host=_host(), is_old=is_old
        )
        write_atomically(self.conf, text)

    def _write_gres(self) -> None:
        write_atomically(self.folder / "gres.conf", gres_conf(self._configured, self._gpus))

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        files = {
            "socket": "munge.sock", "key-file": "munge.key", "pid-file": "munged.pid",
            "log-file": "munged.log", "seed-file": "munge.seed",
        }  # fmt: skip
        options = [f"--{option}={self.folder / file}" for option, file in files.items()]
        command: Command = [self._programs.find("munged"), "--foreground", "--force", *options]
        self._plugs["munged"] = plugged(self.folder / "munged.out", command)
        self.until((self.folder / "munge.sock").exists)

    def _slurmd(self, node: str) -> list[str]:
        slurmd, stepd = (str(self._programs.find(name)) for name in ("slurmd", "slurmstepd"))
        return [slurmd, "-D", "-f", str(self.conf), "-N", node, "-d", stepd]

    def _program(self, name: str, text: str) -> Path:
        path = self.folder / name
        verb = name.removesuffix("Program").lower()
        path.write_text(text.format(verb=verb, folder=self.folder), encoding="utf-8")
        path.chmod(0o755)
        return path

    def _flag(self, part: str, node: str, *, fails: bool) -> None:
        flag = self.folder / f"fail-{part.lower()}-{node}"
        flag.touch() if fails else flag.unlink(missing_ok=True)

    def _answers(self) -> bool:
        with suppress(BackendError):
            return "UP" in self.run("scontrol", "ping")
        return False

    def _own(self) -> None:
        """Do with the machines what Slurm's programs order."""
        done = 0
        while not self._over.wait(POLL_S):
            with suppress(FileNotFoundError):
                orders = (self.folder / "orders").read_text(encoding="utf-8").splitlines()
                for order in orders[done:] if self.carries_out else ():
                    verb, names = order.split()
                    known = self.run("scontrol", "show", "hostnames", names).split()
                    carry_out(verb, [self.machines[name] for name in known])
                    done += 1


@contextmanager
def running_munged(programs: SlurmPrograms) -> Iterator[Path]:
    """The socket of a munged of its own, without the rest of a cluster."""
    cluster = SlurmCluster(programs)
    try:
        cluster.folder.chmod(0o711)  # as /run/munge
        cluster._start_munged()
        yield cluster.folder / "munge.sock"
    finally:
        cluster.close()


def _host() -> str:
    return os.uname().nodename.split(".")[0]


def _pids(plug: int) -> list[int]:
    path = Path(f"/proc/{plug}/task/{plug}/children")
    return [int(pid) for pid in path.read_text(encoding="ascii").split()]
