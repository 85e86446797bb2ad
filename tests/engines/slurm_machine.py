"""A machine of a throw-away Slurm cluster: its files, its programs and its plug."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.kit.processes import descendants, send

Command = Sequence[str | Path]

_PLUG = Path(__file__).with_name("plug.py")


def plugged(log: Path, command: Command) -> subprocess.Popen[bytes]:
    """Start a program with a plug; ``pulled`` ends all that has come of it."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _PLUG, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the test, which then ends them
        )


def pulled(plug: subprocess.Popen[bytes]) -> None:
    """End a program and everything that has come of it, at once."""
    plug.send_signal(signal.SIGCONT)
    plug.terminate()
    plug.wait()


class Machine:
    """One machine. ``root`` has what an agent reads of it, as it would lie below ``/``."""

    def __init__(self, name: str, folder: Path, slurmd: Command) -> None:
        self.name = name
        self.root = folder
        self._slurmd = slurmd
        self._plugs: dict[str, subprocess.Popen[bytes]] = {}
        self._lines = 0
        self.on_boot: dict[str, Callable[[Machine], Command]] = {}
        """Programs beside slurmd that every boot starts."""
        for part in ("proc/sys/kernel/random", "etc", "dev"):
            (folder / part).mkdir(parents=True)
        self._become_another()

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return bool(self._plugs)

    def boot(self, *, is_first: bool = False) -> None:
        """Switch it on; its kernel's log is empty, and it has a new boot id.

        With ``is_first`` it does not report to Slurm that it was off before.
        """
        self._lines = 0
        (self.root / "dev/kmsg").write_bytes(b"")
        boot_id = self.root / "proc/sys/kernel/random/boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self.start_slurmd(is_new_boot=not is_first)
        for name, command in self.on_boot.items():
            self.start(name, command(self))

    def start(self, name: str, command: Command) -> None:
        """Start a program on it that ends with its power."""
        self._plugs[name] = plugged(self.root / f"{name}.out", command)

    def kill(self, name: str) -> None:
        """SIGKILL to a program that ``start`` has started."""
        pulled(self._plugs.pop(name))

    def start_slurmd(self, *, is_new_boot: bool = False) -> None:
        """Start its slurmd; ``is_new_boot`` lets that report a new boot time."""
        self.start("slurmd", [*self._slurmd, *(["-b"] if is_new_boot else [])])

    def kill_slurmd(self) -> None:
        """SIGKILL to slurmd alone: the steps of jobs run on."""
        plug = self._plugs.pop("slurmd")
        self._plugs[f"orphans-{plug.pid}"] = plug
        send(descendants(plug.pid)[0], signal.SIGKILL)

    def power_off(self) -> None:
        """Pull the plug."""
        for name in list(self._plugs):
            pulled(self._plugs.pop(name))

    def reboot(self) -> None:
        """Off and on again."""
        self.power_off()
        self.boot()

    def renew(self, *, clock_is_behind: bool = False) -> None:
        """Another machine in its place, switched on.

        With ``clock_is_behind`` it reports to Slurm a boot before it was switched on.
        """
        self.power_off()
        self._become_another()
        self.boot(is_first=clock_is_behind)

    def cut_off(self) -> None:
        """Its network fails: slurmd neither receives nor sends, and ranks keep running."""
        self._signal_slurm(signal.SIGSTOP)

    def reconnect(self) -> None:
        """Its network is back."""
        self._signal_slurm(signal.SIGCONT)

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """A program on it does nothing meanwhile."""
        pids = descendants(self._plugs[name].pid)
        for pid in pids:
            send(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                send(pid, signal.SIGCONT)

    def log(self, message: str) -> None:
        """Its kernel writes a line into its log."""
        self._lines += 1
        with (self.root / "dev/kmsg").open("a", encoding="utf-8") as kmsg:
            kmsg.write(f"4,{self._lines},{self._lines},-;{message}\n")

    def _become_another(self) -> None:
        (self.root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")

    def _signal_slurm(self, signum: int) -> None:
        for plug in self._plugs.values():
            for pid in descendants(plug.pid):
                if _name(pid) in ("slurmd", "slurmstepd"):
                    send(pid, signum)


def carry_out(verb: str, machines: Sequence[Machine]) -> None:
    """Do what Slurm's program for ``suspend``, ``resume`` or ``reboot`` orders."""
    for machine in machines:
        machine.power_off()
    if verb == "suspend":
        return
    # The kernel counts the seconds of its uptime at other moments than the clock, so slurmd may
    # report a boot in the second before its start. slurmctld ignores one before its order.
    time.sleep(1 - time.time() % 1)
    for machine in machines:
        machine.boot() if verb == "reboot" else machine.renew()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
