"""Runs tests of pairs from another host: by Slurm, by MPI, or by servers on both nodes."""

import json
import math
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.host.commands import NotStarted, Result, never, run_command
from holdfast.adapters.host.deep_checks.run import make_part
from holdfast.adapters.host.pairs.channel import PORT
from holdfast.adapters.host.pairs.launched import LAUNCHED, TestLaunch
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import target_of
from holdfast.apps.checks.pair import Other, session
from holdfast.apps.checks.pair_server import PAIR
from holdfast.apps.checks.pair_tests import PairResponse
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress
from holdfast.decisions.pairing import Pair
from holdfast.kit.serial import from_plain
from holdfast.model.deep_checks import TOKEN_VARIABLE, Outcome
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.node_checks import Level, NodeCheck, PartResult

_ADDRESS: Final = re.compile(r"\bNodeAddr=(\S+)")
_SHORT: Final = timedelta(seconds=30)
_WAIT: Final = timedelta(seconds=2)
"""How long to wait until a node listens or is free: its last request was in an earlier round."""

_CANNOT_WAIT: Final = timedelta(seconds=60)
"""Time limit of a step that gets no nodes, or half of a test's time limit if that is less: a busy
node must not look like a bad one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTestOptions:
    """What to test of each pair, and how."""

    tests: tuple[str, ...]
    config: CheckConfig
    config_file: Path | None
    timeout: timedelta
    options: tuple[str, ...] = ()
    """More options for srun or mpirun."""

    is_over: Callable[[], bool] = never
    """Whether a running test must be aborted; called while it runs."""


class _NoResult(BackendError):
    """The test has no result."""


class _TestHangs(BackendError):
    """The test has begun and hangs."""


class Launcher:
    """Starts both sides of a test as tasks of one ``srun`` or ``mpirun``."""

    def __init__(self, options: PairTestOptions, kind: str) -> None:
        """Use ``kind``, which is "slurm" or "mpi".

        Raises:
            ConfigError: its program is not installed here.

        """
        self._options = options
        self._kind = kind
        program = "srun" if kind == "slurm" else "mpirun"
        if shutil.which(program) is None:
            raise ConfigError(
                f"{program} not found; run this command on a node where {kind} jobs start"
            )

    def __call__(self, pair: Pair) -> PairResponse:
        """Test a pair."""
        parts: list[PartResult] = []
        both = [test for test in self._options.tests if test not in LAUNCHED]
        try:
            if both:
                result = run_command(
                    self._two_ends(pair, both),
                    timeout=self._options.timeout,
                    # A token per test, so that tests of other pairs are rejected.
                    environment={TOKEN_VARIABLE: secrets.token_hex(32)},
                    is_over=self._options.is_over,
                )
                parts += _parts_of(result)
        except (_NoResult, NotStarted) as error:
            return PairResponse(passed=None, why=str(error))
        except BackendError as error:
            return PairResponse(passed=False, why=str(error))
        parts += [self._launch(test, pair) for test in self._options.tests if test in LAUNCHED]
        return answer_of(parts)

    def _launch(self, test: str, pair: Pair) -> PartResult:
        config = self._options.config
        target = target_of(config, config.instance_type or "", Level.QUICK)
        launch = TestLaunch(
            launcher=self._tasks, timeout=self._options.timeout, is_over=self._options.is_over
        )
        plan = LAUNCHED[test](target.equipment, pair, launch)
        return make_part(test, plan, target, SystemClock())

    def _two_ends(self, pair: Pair, tests: Sequence[str]) -> list[str]:
        only = [word for test in tests for word in ("--only", test)]
        config = self._options.config_file
        return [
            *self._tasks(pair, 1),
            sys.executable, "-m", "holdfast", "check", "pair", "--rank-from", self._kind,
            "--with", self._address(pair[0]), *only, "--output", "json",
            *(["--config", str(config)] if config is not None else []),
        ]  # fmt: skip

    def _tasks(self, nodes: tuple[str, ...], each: int) -> tuple[str, ...]:
        if self._kind == "slurm":
            # Otherwise the job of a killed srun would stay.
            minutes = math.ceil(self._options.timeout / timedelta(minutes=1)) + 1
            seconds = max(1, min(_CANNOT_WAIT, self._options.timeout / 2) // timedelta(seconds=1))
            return (
                "srun", f"--time={minutes}", f"--nodes={len(nodes)}", f"--ntasks-per-node={each}",
                f"--nodelist={','.join(nodes)}", f"--immediate={seconds}", *self._options.options,
            )  # fmt: skip
        hosts = ",".join(f"{node}:{each}" for node in nodes)
        return (
            "mpirun", "-np", str(each * len(nodes)), "--host", hosts, "-x", TOKEN_VARIABLE,
            *self._options.options,
        )  # fmt: skip

    def _address(self, node: str) -> str:
        if self._kind != "slurm":
            return node
        try:
            return slurm_address(node)
        except BackendError as error:
            raise _NoResult(str(error)) from error


class Served:
    """Requests tests from ``holdfast check serve`` on one node of each pair."""

    def __init__(self, options: PairTestOptions, token: str) -> None:
        """Use the token that all nodes share."""
        self._options = options
        self._token = token

    def __call__(self, pair: Pair) -> PairResponse:
        """Test a pair, from its second node if the first one does not respond."""
        first, second = (with_port(name) for name in pair)
        reasons: list[str] = []
        for requested, other in ((first, second), (second, first)):
            try:
                return answer_of(self._ask(requested, other).parts)
            except _TestHangs as error:
                return PairResponse(passed=False, why=str(error))
            except BackendError as error:
                reasons.append(str(error))
        return PairResponse(passed=None, why="; ".join(reasons))

    def _ask(self, requested: ListenAddress, other: ListenAddress) -> NodeCheck:
        limit = self._options.timeout
        message = {
            "do": PAIR,
            "with": str(other),
            "tests": self._options.tests,
            "wait_s": _WAIT.total_seconds(),
        }
        there = Other(address=requested, token=self._token, wait=_WAIT)
        with session(there) as (channel, _):
            channel.allow(limit, stall=limit)
            channel.send(message)
            began = time.monotonic()
            try:
                channel.await_message(self._options.is_over)
            except BackendError as error:
                if time.monotonic() - began < limit.total_seconds():
                    raise
                seconds = f"{limit.total_seconds():g} s"
                raise _TestHangs(f"{requested}: the test did not end within {seconds}") from error
            answer = channel.receive()
            channel.send({"do": "bye"})
        if "check" not in answer:
            raise BackendError(f"{requested}: {answer.get('error')}")
        return _read(answer["check"])


def slurm_address(node: str) -> str:
    """Return the address at which Slurm reaches a node, as only Slurm may know its name.

    Raises:
        BackendError: Slurm does not know the node, or does not respond.

    """
    shown = run_command(("scontrol", "--oneliner", "show", "node", node), timeout=_SHORT)
    found = _ADDRESS.search(shown.stdout)
    if found is None:
        raise BackendError(f"node {node} not found in Slurm: {shown.stdout or shown.stderr}"[:300])
    return found[1]


def answer_of(parts: Sequence[PartResult]) -> PairResponse:
    """Return failed if a part failed, passed if none did and one passed, else no result."""
    outcomes = {part.outcome for part in parts}
    passed = None
    if Outcome.FAILED in outcomes:
        passed = False
    elif Outcome.PASSED in outcomes:
        passed = True
    why = "; ".join(f"{part.name}: {part.detail}" for part in parts if part.detail)
    return PairResponse(
        passed=passed,
        why=why if parts else "the node supports none of these tests",
        parts=tuple(parts),
    )


def with_port(name: str) -> ListenAddress:
    """Return the address of a host, with the default port if none is given.

    Raises:
        ValueError: the name is invalid.

    """
    has_port = name.rpartition(":")[2].isdecimal() and (name.count(":") == 1 or "]" in name)
    return ListenAddress.parse(name if has_port else f"{name}:{PORT}")


def _parts_of(result: Result) -> tuple[PartResult, ...]:
    """Return the parts in the document that the testing side printed."""
    start = result.stdout.find("{")
    if start < 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise _NoResult(lines[-1][:300] if lines else f"it exited with {result.status}")
    try:
        return _read(json.loads(result.stdout[start:])).parts
    except ValueError as error:
        raise _NoResult(f"its result cannot be read: {error}") from error


def _read(document: Any) -> NodeCheck:
    try:
        return from_plain(NodeCheck, document)
    except ValueError as error:
        raise _NoResult(f"its result has an incompatible version: {error}") from error
