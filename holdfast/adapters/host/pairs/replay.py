"""The same deterministic steps on two nodes, compared bit by bit, to find silent corruption."""

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from holdfast.adapters.host.commands import run_command
from holdfast.adapters.host.deep_checks.contract import CommandResult, ReplayPlan, Series, Target
from holdfast.adapters.host.pairs.channel import PairConnection
from holdfast.adapters.host.pairs.contract import FAMILY, Peer
from holdfast.decisions.replay_results import Replay, compared, parse_replay
from holdfast.detectors.judgement import LONGEST_MESSAGE, undecided, whole
from holdfast.kit.serial import checked_value, to_plain
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.jobs import REPLAY_VARIABLE
from holdfast.model.names import Condition, Reason

NAME: Final = "replay"

_BUILT_IN: Final = "holdfast.adapters.host.replay_steps"
_MARGIN: Final = timedelta(seconds=30)
"""Time for the messages, beyond the steps."""


def measure(target: Target, peer: Peer) -> Series:
    """Replay on the client side, and compare."""
    plan = target.replay
    return Series(
        argv=plan.command or (NAME, peer.host),
        takes=timedelta(minutes=1),
        make=partial(_make, plan, peer.channel),
    )


def serve(target: Target, channel: PairConnection, message: Mapping[str, Any]) -> None:  # noqa: ARG001 - the node's own plan counts
    """Replay on the server side: what the node's own configuration names."""
    limit = target.replay.timeout + _MARGIN
    channel.allow(limit, stall=limit)
    try:
        answer: dict[str, Any] = {"replay": to_plain(_replayed(target.replay))}
    except BackendError as error:
        answer = {"error": str(error)}
    channel.send(answer)


def _make(plan: ReplayPlan, channel: PairConnection, now: datetime) -> CommandResult:
    limit = plan.timeout + _MARGIN
    channel.allow(limit, stall=limit)
    channel.send({"do": NAME})
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit(_replayed, plan)
        answer = channel.receive()
        here = own.result()
    if "replay" not in answer:
        return CommandResult(judgement=undecided(f"the other node: {answer.get('error')}"))
    try:
        there = checked_value(Replay, answer["replay"])
    except ValueError as error:
        raise BackendError(f"the other node's results cannot be read: {error}") from error
    found = compared(here, there)
    if found.is_equal is None:
        return CommandResult(judgement=undecided(found.text))
    findings = [] if found.is_equal else [_finding(found.text, now)]
    return CommandResult(judgement=whole(findings), facts={"replayed on": here.kind})


def _replayed(plan: ReplayPlan) -> Replay:
    """Return the results of this node.

    Raises:
        BackendError: the command failed, or did not end in time.

    """
    argv = plan.command or (sys.executable, "-m", _BUILT_IN, str(plan.steps))
    result = run_command(argv, timeout=plan.timeout, environment={REPLAY_VARIABLE: str(plan.steps)})
    if result.status:
        words = (result.stderr.strip() or result.stdout.strip()).rpartition("\n")[2]
        raise BackendError(f"{argv[0]} exited with {result.status}: {words}"[:300])
    return parse_replay(result.stdout)


def _finding(text: str, now: datetime) -> Finding:
    """Return the finding on a pair, of which either node may be the one that computes wrongly."""
    return Finding(
        family=FAMILY,
        condition=Condition.DEEP_CHECK,
        reason=Reason.PAIR_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.NONE,
        message=f"silent data corruption: {text}"[:LONGEST_MESSAGE],
        observed_at=now,
    )
