"""Deep health checks on Slurm: exclusive jobs on one node, or on a pair of nodes.

No job can run on a node that is in FAIL, not even ours. So the node is reserved for the check, the
check is submitted, and then the node is opened; as soon as the check has begun, the node is set to
FAIL again, which leaves the check alone, and the reservation ends. Whenever slurmctld or the
controller dies, the node is in FAIL, reserved, or fully allocated.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.checks import PREFIX, CheckCommands, CheckJob
from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.adapters.telemetry.check_summary import read_summary
from holdfast.kit.bounded_files import read_end
from holdfast.model.deep_checks import KINDS_VARIABLE, RESULT_VARIABLE, TOKEN_VARIABLE, Outcome
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.node_checks import CheckSummary
from holdfast.model.nodes import CheckResult, NodeRecord, PairOutcome, Phase
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink

FOLDER: Final = "checks"
"""Directory below that of the reports: output of the last check of each node, ``NODE.log``."""

_RUNNER: Final = Path(__file__).with_name("run_check.sh")
_END: Final = re.compile(r"(\S+) ended with exit status (\d+)\n\Z")
_INCONCLUSIVE: Final = frozenset((2, 70, 126, 127))
"""Exit codes that are no verdict on the node: of a program with wrong arguments or a bug, and of
the shell if it cannot run the program; from 128 on, a signal ended it."""

_SIGNAL: Final = 128

_PAUSE_S: Final = 60.0
"""Seconds before a check without a verdict is repeated, and before one that does not begin is
reported."""

_FOREIGN: Final = (Author.OTHER, Author.REQUEST)
_BEGINS: Final = timedelta(minutes=5)
"""How long a test between nodes may take to begin. After that it has no verdict: Slurm does not
allocate its nodes, or somebody else has closed one."""

_TOKEN_BYTES: Final = 32
_STEP_ERROR: Final = "srun: error: "
_TASK_ENDED: Final = "Exited with"
"""Part of an srun error that reports how a task ended; other errors mean that no task ran."""

_TAIL: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCheck:
    """A pending or running check: of one node, or of a pair of nodes."""

    nodes: tuple[str, ...]
    """Names of the nodes; the record of the first one names the check."""

    began_at: datetime
    kinds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of its job and of its reservation."""
        parts = "\0".join((*self.nodes, self.began_at.isoformat()))
        return PREFIX + hashlib.sha256(parts.encode()).hexdigest()[:16]

    @property
    def files(self) -> str:
        """Return the prefix of the names of its files."""
        return self.nodes[0] if len(self.nodes) == 1 else f"{self.nodes[0]}.pair"

    def __str__(self) -> str:
        """Return the description for messages."""
        if len(self.nodes) == 1:
            return f"the deep health check of {self.nodes[0]}"
        return f"the test between {' and '.join(self.nodes)}"


def requested_of(node: str, record: NodeRecord) -> RequestedCheck | None:
    """Return the check that the record of a node waits for; None if it waits for none."""
    if record.phase is not Phase.CHECKING:
        return None
    pairing = record.pairing
    if pairing is None:
        return RequestedCheck(nodes=(node,), began_at=record.phase_since, kinds=record.kinds)
    if pairing.began_at is None:
        return None
    return RequestedCheck(nodes=(node, pairing.partner), began_at=pairing.began_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How the job of a check ended."""

    status: int
    at: datetime
    result: CheckSummary
    is_lost: bool = False
    """Whether it ended without a verdict."""


class DeepChecks:
    """Starts checks, reads their results and cleans up; methods raise ``BackendError``."""

    def __init__(self, settings: SlurmSettings, clock: Clock, events: EventSink) -> None:
        self._slurm = CheckCommands(settings.conf, settings.timeout)
        self._settings = settings.check
        self._folder = settings.report_dir / FOLDER
        self._clock = clock
        self._events = events
        self._jobs: dict[str, CheckJob] = {}
        self._reserved: frozenset[str] = frozenset()
        self._ended: dict[str, _Ended] = {}
        self._began: dict[str, datetime] = {}
        """When checks began. One that was cut short counts on, unless it could not be run."""
        self._tried_at: dict[str, float] = {}
        self._reported: set[CallFailed] = set()
        self._may_be_left = True

    def refresh(self, expected: Iterable[RequestedCheck]) -> None:
        """Update the state of the expected checks, and end all others."""
        requested = {one.name: one for one in expected}
        if not requested and not self._may_be_left:
            return
        self._jobs, self._reserved = self._slurm.check_jobs(), self._slurm.check_reservations()
        self._may_be_left = bool(requested) or bool(self._jobs) or bool(self._reserved)
        for name in self._jobs.keys() - requested.keys():
            self._slurm.end_check_job(self._jobs[name].id)
        for name in self._reserved - requested.keys() - self._jobs.keys():
            self._slurm.end_check_reservation(name)
        self._ended = {name: one for name, one in self._ended.items() if name in requested}
        self._began = {name: at for name, at in self._began.items() if name in requested}
        for name, job in self._jobs.items():
            if job.began_at is not None and not job.is_waiting:
                self._began.setdefault(name, job.began_at)
        self._tried_at = {name: at for name, at in self._tried_at.items() if name in requested}
        for name in requested.keys() - self._ended.keys() - self._jobs.keys():
            try:
                ended = self._read(requested[name])
            except BackendError as error:  # affects one node only
                self._report(requested[name], str(error))
                continue
            if ended is not None:
                self._ended[name] = ended

    def result(self, node: str, record: NodeRecord) -> CheckResult | None:
        """Return the result of the current check of a single node; None until it ends."""
        requested = requested_of(node, record)
        ended = self._ended.get(requested.name) if requested is not None else None
        if requested is None or ended is None or len(requested.nodes) > 1:
            return None
        return CheckResult(
            passed=ended.status == 0,
            ended_at=ended.at,
            detail="" if ended.status == 0 else ended.result.summary,
            measured=ended.result.measured,
            bounds=ended.result.bounds,
            kinds=ended.result.kinds,
        )

    def began_at(self, node: str, record: NodeRecord) -> datetime | None:
        """Return when the current check of a single node began; None if it has not."""
        requested = requested_of(node, record)
        return None if requested is None else self._began.get(requested.name)

    def pending(self, node: str, record: NodeRecord) -> str:
        """Return why the current check of a single node has not begun; empty if it has."""
        requested = requested_of(node, record)
        if requested is None or requested.name in self._began or requested.name in self._ended:
            return ""
        return self._not_begun(requested)

    def pair_outcome(self, node: str, record: NodeRecord) -> PairOutcome | None:
        """Return the result of the pair test in the record of a node; None until it ends."""
        requested = requested_of(node, record)
        if requested is None or len(requested.nodes) == 1:
            return None
        ended = self._ended.get(requested.name)
        if ended is None:
            return self._never_begun(requested)
        passed = None if ended.is_lost else ended.status == 0
        return PairOutcome(
            partner=requested.nodes[1],
            passed=passed,
            ended_at=ended.at,
            detail="" if passed else ended.result.summary,
            measured=ended.result.measured,
            bounds=ended.result.bounds,
        )

    def _never_begun(self, requested: RequestedCheck) -> PairOutcome | None:
        now, job = self._clock.now(), self._jobs.get(requested.name)
        if now - requested.began_at < _BEGINS or (job is not None and not job.is_waiting):
            return None
        detail = f"it did not begin: {self._not_begun(requested)}"
        return PairOutcome(partner=requested.nodes[1], passed=None, ended_at=now, detail=detail)

    def _not_begun(self, requested: RequestedCheck) -> str:
        job = self._jobs.get(requested.name)
        return f"its job waits ({job.waits_for})" if job is not None else "its job was not found"

    def opened(self, expected: Iterable[RequestedCheck]) -> frozenset[str]:
        """Return the nodes that must not be set to FAIL, as their check is about to begin."""
        return frozenset(
            node
            for one in expected
            if one.name in self._jobs and self._jobs[one.name].is_waiting
            for node in one.nodes
        )

    def begin(self, requested: RequestedCheck, facts: Sequence[NodeFacts]) -> None:
        """Advance the start of a check, as the module docstring describes; called in every round.

        A node that somebody else has closed meanwhile is left alone; its check waits.
        """
        if any(one.is_closed and one.reason.author in _FOREIGN for one in facts):
            return
        name = requested.name
        job = self._jobs.get(name)
        if job is not None:
            self._follow(requested, facts, job)
        elif name not in self._ended and self._is_due(name):
            self._submit(requested, facts)

    def _follow(self, requested: RequestedCheck, facts: Sequence[NodeFacts], job: CheckJob) -> None:
        name = requested.name
        if not job.is_waiting:
            if name in self._reserved and all("FAIL" in one.state for one in facts):
                self._slurm.leave_reservation(job.id)
                self._slurm.end_check_reservation(name)
            return
        self._open(facts)
        if self._is_due(name):
            self._report(requested, f"its job {job.id} has not begun ({job.waits_for})")

    def _submit(self, requested: RequestedCheck, facts: Sequence[NodeFacts]) -> None:
        name = requested.name
        if name not in self._reserved:
            self._slurm.reserve_for_check(name, requested.nodes)
        result = self._file(requested, "json")
        try:
            self._folder.mkdir(exist_ok=True)
            result.unlink(missing_ok=True)
        except OSError as error:
            raise BackendError(f"cannot clear {self._folder}: {error.strerror}") from error
        is_pair = len(requested.nodes) > 1
        command = self._settings.pair_command if is_pair else self._settings.command
        self._slurm.submit_check(
            name,
            requested.nodes,
            (*self._settings.options, str(_RUNNER), name, *command),
            log=self._file(requested, "log"),
            variables={RESULT_VARIABLE: str(result), **_variables(requested)},
        )
        self._tried_at[name] = time.monotonic()
        self._open(facts)

    def _open(self, facts: Sequence[NodeFacts]) -> None:
        for one in facts:
            if one.is_closed:
                self._slurm.open_node(one.name)

    def _is_due(self, name: str) -> bool:
        """Whether the pause since the last attempt is over."""
        at = self._tried_at.get(name)
        return at is None or time.monotonic() - at >= _PAUSE_S

    def _read(self, requested: RequestedCheck) -> _Ended | None:
        """Return how a check ended, by the files that it wrote; None if there is no verdict."""
        text = self._text(self._file(requested, "log"))
        end = _END.search(text)
        if end is None or end[1] != requested.name:
            return None
        status, output = int(end[2]), text[: end.start()]
        last = output.strip().splitlines()[-1:]
        written = self._text(self._file(requested, "json"))
        result = read_summary(written or output)
        is_lost = status in _INCONCLUSIVE or status >= _SIGNAL
        if len(requested.nodes) > 1:
            is_lost = status not in (0, 1) or result.outcome in (Outcome.UNKNOWN, Outcome.SKIPPED)
            is_lost = is_lost or (not written and _ran_nothing(output))
        elif is_lost:
            self._report(requested, " ".join((f"exited with {status}:", *last)))
            self._began.pop(requested.name, None)
            return None
        return _Ended(status=status, at=self._clock.now(), result=result, is_lost=is_lost)

    def _file(self, requested: RequestedCheck, kind: str) -> Path:
        return self._folder / f"{requested.files}.{kind}"

    def _text(self, path: Path) -> str:
        """Return the end of a file; empty if there is none."""
        try:
            return read_end(path, _TAIL).decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise BackendError(f"cannot read {path}: {error.strerror}") from error

    def _report(self, requested: RequestedCheck, problem: str) -> None:
        """Report once why there is no verdict."""
        event = CallFailed(what=str(requested), error=problem)
        if event not in self._reported:
            self._events.emit(event)
        self._reported.add(event)


def _variables(requested: RequestedCheck) -> dict[str, str]:
    """Return the environment variables of a check; of a pair test, for both nodes."""
    if len(requested.nodes) > 1:
        return {TOKEN_VARIABLE: secrets.token_hex(_TOKEN_BYTES)}
    kinds = {KINDS_VARIABLE: " ".join(requested.kinds)} if requested.kinds else {}
    return {"NODE_NAME": requested.nodes[0], **kinds}


def _ran_nothing(output: str) -> bool:
    """Whether the output of srun reports that no task could be started."""
    errors = [line for line in output.splitlines() if line.startswith(_STEP_ERROR)]
    return bool(errors) and not any(_TASK_ENDED in line for line in errors)
