"""Deep health checks of local machines: a process on the machine, watched like a rank."""

import os
import sys
from typing import Final

from holdfast.adapters.local.machine import Machine
from holdfast.adapters.local.machines import LocalMachines
from holdfast.model.nodes import CheckResult, NodeRecord, Phase
from holdfast.ports.clock import Clock

_TASK: Final = "check/"


class LocalChecks:
    """Starts checks and reads how they ended."""

    def __init__(self, machines: LocalMachines, clock: Clock) -> None:
        self._machines = machines
        self._clock = clock

    def begin(self, machine: Machine, check_id: str) -> None:
        """Start the check of that name, unless it was started already."""
        task = _TASK + check_id
        log = machine.directory.path / "check.log"
        if machine.task is None or machine.task.name != task:
            machine.kill_task(self._clock.now())
            log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "holdfast.adapters.local.node_check", str(log.parent)]
        machine.launch(task, argv, dict(os.environ), log)

    def result(self, node: str, record: NodeRecord) -> CheckResult | None:
        """How the check that began in the present phase of the node ended; None before."""
        machine = self._machines.get(node)
        if record.phase is not Phase.CHECKING or machine is None or machine.task is None:
            return None
        task = machine.task
        if task.name != _TASK + record.phase_since.isoformat() or task.exit_code is None:
            return None
        log = machine.directory.path / "check.log"
        said = (
            log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        )
        return CheckResult(
            passed=task.exit_code == 0,
            ended_at=task.ended_at or self._clock.now(),
            detail=said[-1] if said else f"the check ended with exit code {task.exit_code}",
        )
