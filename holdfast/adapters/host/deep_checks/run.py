"""Making the parts of a check, one after the other."""

import tempfile
import time
from pathlib import Path

from holdfast.adapters.host.commands import Result, run_command
from holdfast.adapters.host.deep_checks.contract import Plan, Skip, Target, Verdict
from holdfast.detectors.judgement import LONGEST_MESSAGE, is_fault
from holdfast.detectors.thresholds import Floors, shortfalls
from holdfast.model.deep_checks import Outcome, PartResult
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock


def make_part(name: str, plan: Plan | Skip, target: Target, clock: Clock) -> PartResult:
    """Make one part and judge it; nothing that its tool does is an error."""
    if isinstance(plan, Skip):
        return PartResult(name=name, outcome=Outcome.SKIPPED, detail=plan.why)
    began = time.monotonic()
    try:
        result = _run(plan)
    except (BackendError, OSError) as error:  # OSError: of the folder that it is run in
        took_s = time.monotonic() - began
        is_fault_then = bool(plan.if_hung) and took_s >= plan.timeout.total_seconds()
        return PartResult(
            name=name,
            outcome=Outcome.FAILED if is_fault_then else Outcome.UNKNOWN,
            detail=plan.if_hung if is_fault_then else str(error),
            command=plan.argv,
            took_s=took_s,
        )
    took_s = time.monotonic() - began
    verdict = plan.judge(result, clock.now())
    outcome, detail = _outcome(verdict, target.floors)
    if outcome is Outcome.UNKNOWN and result.status < 0:
        detail = f"signal {-result.status} ended it; {detail}"
    return PartResult(
        name=name,
        outcome=outcome,
        detail=detail[:LONGEST_MESSAGE],
        command=plan.argv,
        took_s=took_s,
        measured=verdict.measured,
        facts=verdict.facts,
        findings=verdict.judgement.findings,
    )


def _run(plan: Plan) -> Result:
    """Run it; what a tool that was killed leaves in its folder goes with the folder."""
    if plan.directory is None:
        return run_command(plan.argv, timeout=plan.timeout)
    folder = tempfile.TemporaryDirectory(
        dir=plan.directory, prefix=".holdfast-check-", ignore_cleanup_errors=True
    )
    with folder as path:
        return run_command(plan.argv, timeout=plan.timeout, directory=Path(path))


def _outcome(verdict: Verdict, floors: Floors) -> tuple[Outcome, str]:
    judgement = verdict.judgement
    faults = [finding.message for finding in judgement.findings if is_fault(finding)]
    if faults:
        return Outcome.FAILED, "; ".join(faults)
    if judgement.undecided:
        return Outcome.UNKNOWN, judgement.undecided
    short = shortfalls(verdict.measured, floors)
    if short:
        return Outcome.FAILED, "; ".join(short)
    return Outcome.PASSED, "; ".join(finding.message for finding in judgement.findings)
