"""Deep health checks of local machines: a process on the machine, monitored like a rank."""

import json
import os
import sys
from pathlib import Path
from typing import Final

from holdfast.adapters.local.machine import LocalMachine
from holdfast.adapters.local.machines import LocalMachines
from holdfast.adapters.local.node_check import NOT_TESTED
from holdfast.kit.free_ports import free_port
from holdfast.model.deep_checks import KindResult, Outcome
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import CheckResult, NodeRecord, PairOutcome, Phase
from holdfast.ports.clock import Clock

_OUTCOMES: Final = {0: Outcome.PASSED, NOT_TESTED: Outcome.UNKNOWN}
"""Outcome by exit code of the check; others are a failure."""

_TASK: Final = "check/"
_PAIR: Final = "pair/"


class LocalChecks:
    """Starts checks and reads their results."""

    def __init__(self, machines: LocalMachines, clock: Clock) -> None:
        self._machines = machines
        self._clock = clock

    def begin(self, machine: LocalMachine, check_id: str) -> None:
        """Start the check with that ID, unless it was started before."""
        task = _TASK + check_id
        log = machine.directory.path / "check.log"
        if machine.task is None or machine.task.name != task:
            machine.kill_task(self._clock.now())
            log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "holdfast.adapters.local.node_check", str(log.parent)]
        machine.launch(task, argv, dict(os.environ), log)

    def result(self, node: str, record: NodeRecord) -> CheckResult | None:
        """Return the result of the check in the node's current phase; None until it ends."""
        machine = self._machines.get(node)
        if record.phase is not Phase.CHECKING or machine is None or machine.task is None:
            return None
        task = machine.task
        if task.name != _TASK + record.phase_since.isoformat() or task.exit_code is None:
            return None
        log = machine.directory.path / "check.log"
        output = _lines(log)
        outcome = _OUTCOMES.get(task.exit_code, Outcome.FAILED)
        has_passed = outcome is Outcome.PASSED
        is_requested = not record.kinds or DeepCheck.STRESS in record.kinds
        stress = KindResult(kind=DeepCheck.STRESS, outcome=outcome)
        return CheckResult(
            kinds=(stress,) if is_requested else (),
            passed=outcome is not Outcome.FAILED,
            ended_at=task.ended_at or self._clock.now(),
            detail="" if has_passed else output[-1] if output else f"exit code {task.exit_code}",
        )

    def start_pair(self, machine: LocalMachine, partner: LocalMachine, test_id: str) -> None:
        """Start the test with that ID, unless it was started before."""
        task = _PAIR + test_id
        if machine.task is not None and machine.task.name == task:
            return
        port = str(free_port())
        for one, role in ((partner, "serve"), (machine, "query")):
            log = one.directory.path / "pair.log"
            one.kill_task(self._clock.now())
            log.unlink(missing_ok=True)
            argv = [sys.executable, "-m", "holdfast.adapters.local.pair_check", role, port]
            one.launch(task, argv, dict(os.environ), log)

    def pair_outcome(self, node: str, record: NodeRecord) -> PairOutcome | None:
        """Return the result of the pair test in the node's record; None until it ends."""
        machine, pairing = self._machines.get(node), record.pairing
        if machine is None or machine.task is None or pairing is None or pairing.began_at is None:
            return None
        task = machine.task
        if task.name != _PAIR + pairing.began_at.isoformat() or task.exit_code is None:
            return None
        output = _lines(machine.directory.path / "pair.log")[-1:]
        has_passed = task.exit_code == 0 and bool(output)
        return PairOutcome(
            partner=pairing.partner,
            passed=has_passed,
            ended_at=task.ended_at or self._clock.now(),
            detail="" if has_passed else "".join(output) or f"exited with {task.exit_code}",
            measured=json.loads(output[0]) if has_passed else {},
        )


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
