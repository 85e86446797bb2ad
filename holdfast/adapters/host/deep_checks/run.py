"""Runs the parts of a deep health check."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.host.commands import Result, run_command
from holdfast.adapters.host.deep_checks.contract import (
    CheckCommand,
    CommandResult,
    Series,
    Skip,
    Target,
    Work,
)
from holdfast.detectors.judgement import LONGEST_MESSAGE, is_fault
from holdfast.detectors.thresholds import Thresholds, shortfalls
from holdfast.kit.units import one_line
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from holdfast.model.node_checks import PartResult
from holdfast.ports.clock import Clock


def make_part(name: str, plan: Work | Skip, target: Target, clock: Clock) -> PartResult:
    """Run one part and evaluate it; failures of its tool are results, not exceptions."""
    if isinstance(plan, Skip):
        return PartResult(name=name, outcome=Outcome.SKIPPED, detail=plan.why)
    began = time.monotonic()
    try:
        output = plan.make(clock.now()) if isinstance(plan, Series) else _run_command(plan, clock)
    except (BackendError, OSError) as error:  # OSError: of its working directory
        took_s = time.monotonic() - began
        is_fault_then = (
            isinstance(plan, CheckCommand)
            and bool(plan.if_hung)
            and took_s >= plan.timeout.total_seconds()
        )
        return PartResult(
            name=name,
            outcome=Outcome.FAILED if is_fault_then else Outcome.UNKNOWN,
            detail=plan.if_hung
            if isinstance(plan, CheckCommand) and is_fault_then
            else _why(error),
            command=plan.argv,
            took_s=took_s,
        )
    took_s = time.monotonic() - began
    outcome, detail = _outcome(output, target.thresholds)
    return PartResult(
        name=name,
        outcome=outcome,
        detail=one_line(detail, LONGEST_MESSAGE),
        command=plan.argv,
        took_s=took_s,
        measured=output.measured,
        bounds={
            name: bound
            for name, bound in target.thresholds.given.items()
            if bound and name in output.measured
        },
        facts=output.facts,
        findings=output.judgement.findings,
    )


def _why(error: BackendError | OSError) -> str:
    """Return why a tool gave no result."""
    if isinstance(error, BackendError):
        return one_line(str(error), LONGEST_MESSAGE)
    return f"cannot create a directory in {Path(error.filename or '').parent}: {error.strerror}"


def _run_command(plan: CheckCommand, clock: Clock) -> CommandResult:
    result = _run(plan)
    output = plan.judge(result, clock.now())
    judgement = output.judgement
    if judgement.undecided and result.status:
        why = f"{_end_of(result)}; {judgement.undecided}"
        output = replace(output, judgement=replace(judgement, undecided=why))
    return output


def _end_of(result: Result) -> str:
    """Return how a tool without usable output ended, with its last output."""
    if result.status < 0:
        return f"terminated by signal {-result.status}"
    words = result.stderr.strip().rpartition("\n")[2]
    return f"exited with {result.status}" + (f": {words}" if words else "")


def _run(plan: CheckCommand) -> Result:
    """Run the command in a temporary directory, so that files of a killed tool are removed."""
    if plan.directory is None:
        return run_command(plan.argv, timeout=plan.timeout, is_over=plan.is_over)
    folder = tempfile.TemporaryDirectory(
        dir=plan.directory, prefix=".holdfast-check-", ignore_cleanup_errors=True
    )
    with folder as path:
        return run_command(plan.argv, timeout=plan.timeout, directory=Path(path))


def _outcome(output: CommandResult, thresholds: Thresholds) -> tuple[Outcome, str]:
    judgement = output.judgement
    faults = [finding.message for finding in judgement.findings if is_fault(finding)]
    if faults:
        return Outcome.FAILED, "; ".join(faults)
    if judgement.undecided:
        return Outcome.UNKNOWN, judgement.undecided
    short = shortfalls(output.measured, thresholds)
    if short:
        return Outcome.FAILED, "; ".join(short)
    return Outcome.PASSED, "; ".join(finding.message for finding in judgement.findings)
