"""A controller that is killed, and a slurmctld that crashes, at every step of a resume."""

import shutil

from final_states import FinalStates
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions
from training_at_work import Training

_TRAPPED = """\
#!/bin/sh
step=$(cat {folder}/step 2>/dev/null)
[ -n "$step" ] || exec {real} "$@"
case " $* " in *"$step"*) mv {folder}/step {folder}/taken 2>/dev/null && {{ {then}; }};; esac
exec {real} "$@"
"""
KILL_CONTROLLER = "kill -9 $PPID; exit 1"
CRASH_SLURMCTLD = '{real} "$@"; status=$?; kill -9 $(cat {pid}); touch {done}; exit $status'

STEPS = (
    " create reservation ",
    " requeue Incomplete ",
    " starttime=now+600 ",
    " starttime=now+2 ",
    " reservationname= ",
)
"""What the commands of a resume have in them, in their order."""


class Trap:
    """A ``scontrol`` that does something else, once, instead of one command."""

    def __init__(self, fleet: Fleet, then: str) -> None:
        self._folder = fleet.folder / "trap"
        self._folder.mkdir()
        real = shutil.which("scontrol", path=fleet.slurm.environment["PATH"])
        self._done = self._folder / "done"
        pid = fleet.slurm.folder / "slurmctld.pid"
        then = then.format(real=real, pid=pid, done=self._done)
        program = self._folder / "scontrol"
        text = _TRAPPED.format(real=real, folder=self._folder, then=then)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        fleet.tools = str(self._folder)

    def set(self, step: str) -> None:
        self._done.unlink(missing_ok=True)
        (self._folder / "step").write_text(step, encoding="utf-8")

    def is_done(self) -> bool:
        return self._done.exists()


@on_both_versions
def test_the_controller_may_be_killed_before_each_of_its_commands(
    fleet: Fleet, final: FinalStates
) -> None:
    trap = Trap(fleet, KILL_CONTROLLER)
    controller = fleet.control(provider=fleet.by_command())
    job = Training(fleet, steps=100_000)
    job.until_step(5)
    for number, step in enumerate(STEPS, 1):
        lost = job.nodes()[0]
        trap.set(step)

        fleet.machines[lost].log(REPLACE_XID)

        fleet.until(lambda process=controller.process: process.poll() is not None)
        controller = fleet.control(provider=fleet.by_command(), wait=False)
        _is_resumed(fleet, job, number, lost)
    record = job.memory.record
    assert record.hardware_retries == len(STEPS), [str(one) for one in record.attempts]
    job.check_laws()
    final.check(fleet, "controller-killed", node=lost, job=job.id)


@on_both_versions
def test_slurmctld_may_crash_and_forget_its_orders(fleet: Fleet, final: FinalStates) -> None:
    trap = Trap(fleet, CRASH_SLURMCTLD)
    fleet.control(provider=fleet.by_command())
    job = Training(fleet, steps=100_000)
    job.until_step(5)
    for number, step in enumerate((STEPS[0], STEPS[3]), 1):
        lost = job.nodes()[0]
        trap.set(step)

        fleet.machines[lost].log(REPLACE_XID)

        fleet.until(trap.is_done)
        fleet.slurm.crash_controller()
        fleet.slurm.start_controller()
        _is_resumed(fleet, job, number, lost)
    job.check_laws()
    final.check(fleet, "slurmctld-killed", node=lost, job=job.id, counts=False)


def _is_resumed(fleet: Fleet, job: Training, number: int, lost: str) -> None:
    job.until_attempt(number)
    fleet.until(lambda: "HOLDFAST" not in fleet.scontrol("show", "reservation"))
    assert lost not in job.nodes()
    fleet.machines[lost].renew()
    fleet.until(lambda: fleet.phase(lost) == "schedulable")
