"""Hangs, steps and losses of running jobs, from pod logs and heartbeat files."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.adapters.host.log_rule_text import ParsedRules, rules_of
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import ApiError
from holdfast.adapters.kubernetes.jobs.attempt_findings import Findings
from holdfast.adapters.kubernetes.jobs.heartbeat_file import HeartbeatFile
from holdfast.adapters.kubernetes.jobs.heartbeat_settings import Heartbeat
from holdfast.adapters.kubernetes.jobs.log_monitor import LogMonitor
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.adapters.kubernetes.jobs.pod_logs import PodLog
from holdfast.adapters.kubernetes.jobs.requests import JobRequests
from holdfast.adapters.kubernetes.jobs.stacks import AttemptStacks
from holdfast.decisions.hangs import Hang
from holdfast.decisions.log_rules import JobLogRule
from holdfast.decisions.logged_steps import LoggedSteps
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.step_progress import StepProgress
from holdfast.kit.rejections import Rejection
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import HEARTBEAT_FILE, LOG_MONITORING_CONFIG_MAP, PodPhase
from holdfast.ports.clock import Clock

RULES_KEY: Final = "log-monitoring"
"""Key of the rules in a ConfigMap."""

FIRST_RANKS: Final = 8
LAST_RANKS: Final = 8
"""Ranks at the end whose logs are read. In a larger job the logs of ranks between these and the
first are not read: frameworks print progress on the first rank or, like Megatron, on the last."""

MOST_LOGS: Final = 512
"""Maximum number of logs followed at once; each takes a thread, a connection and 0.12 MiB."""

_TICK_S: Final = 1.0
"""Interval of checks in seconds, as in HyperPod's agent."""

_LEARNED_LIMIT: Final = 1024
"""Maximum number of jobs between two attempts of which the steps are remembered."""

_AGAIN: Final = timedelta(seconds=30)
"""Retry delay after a ConfigMap could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Attempt to watch for hangs."""

    job: JobState
    attempt: int
    started_at: datetime
    rules: tuple[JobLogRule, ...]
    rules_from: str
    """Name of the ConfigMap with the rules; empty if ``rules`` has them."""

    heartbeat: Heartbeat | None = None
    loss_limits: LossLimits | None = None
    """When a loss is a fault. None: the defaults, if the logs are read for ``rules``."""

    pods: tuple[PodState, ...]
    """Running pods, in the order of their ranks."""

    @property
    def followed(self) -> Sequence[PodState]:
        """Pods whose logs and heartbeats are read."""
        if len(self.pods) <= FIRST_RANKS + LAST_RANKS:
            return self.pods
        return self.pods[:FIRST_RANKS] + self.pods[-LAST_RANKS:]

    def is_same(self, other: "Watched | None") -> bool:
        """Whether the state collected for one is valid for the other."""
        return other is not None and (
            (self.attempt, self.rules, self.rules_from, self.heartbeat, self.loss_limits)
            == (other.attempt, other.rules, other.rules_from, other.heartbeat, other.loss_limits)
        )


def watched(
    state: JobState, requests: JobRequests, record: JobRecord | None, pods: Iterable[PodState]
) -> Watched | None:
    """Return the attempt to watch; None unless the job runs and asks for that."""
    asks = (
        requests.log_rules
        or requests.log_rules_from
        or requests.heartbeat
        or requests.loss_limits is not None
    )
    if record is None or record.phase is not JobPhase.RUNNING or not asks:
        return None
    running = [pod for pod in pods if pod.phase == PodPhase.RUNNING and not pod.is_terminating]
    return Watched(
        job=state,
        attempt=record.attempt,
        started_at=record.phase_since,
        rules=requests.log_rules,
        rules_from=requests.log_rules_from,
        heartbeat=requests.heartbeat,
        loss_limits=requests.loss_limits,
        pods=tuple(sorted(running, key=lambda pod: pod.member.rank)),
    )


def logs_known_until(known: Sequence[datetime | None], expected: int) -> datetime | None:
    """Time until which the logs of a job are complete; None if any log has not been read.

    Args:
        known: that time of each followed log.
        expected: number of logs to follow.

    """
    times = [at for at in known if at is not None]
    return min(times) if times and len(times) == expected else None


@dataclass(slots=True)
class _Attempt:
    """Hang detection state of one attempt."""

    requested: Watched
    monitor: LogMonitor | None = None
    """None until the rules are available."""

    again_at: datetime | None = None
    """Time of the next attempt to read rules that were unavailable."""

    rejected: tuple[Rejection, ...] = ()
    logs: dict[str, PodLog] = field(default_factory=dict)
    """Followed logs by UID of the pod."""

    heartbeats: HeartbeatFile | None = None
    findings: Findings = Findings()
    learned: StepProgress = StepProgress()
    """What was learned in earlier attempts of the job."""

    stacks: AttemptStacks | None = None
    reported: int = 0
    """Number of rejections already reported."""

    @property
    def state(self) -> tuple[object, ...]:
        """What a change of wakes the reconciler."""
        steps = LoggedSteps(fault=self.findings.steps.fault)
        return replace(self.findings, steps=steps), self.reported


class HangWatch:
    """Follows logs and heartbeats of running jobs from ``start`` to ``stop``, in its own threads.

    Silence is a hang only after every followed log was read again without new lines. If stack
    capture is enabled, a hang is reported only after the stacks of the ranks were captured.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        changed: Callable[[], None],
        *,
        captures_stacks: bool,
        reads_heartbeats: bool,
    ) -> None:
        self._api = api
        self._clock = clock
        self._changed = changed
        self._captures_stacks = captures_stacks
        self._reads_heartbeats = reads_heartbeats
        self._matcher = PatternMatcher()
        self._lock = threading.Lock()
        self._attempts: dict[str, _Attempt] = {}
        self._learned: dict[str, StepProgress] = {}
        """What ended attempts have taught, by UID of the job, until the next one is watched."""

        self._ended: list[PodLog] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hangs", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop all threads."""
        self._over.set()
        self._thread.join()
        asking = [one.heartbeats for one in self._attempts.values() if one.heartbeats is not None]
        self.follow(())
        for log in self._ended:
            log.join()
        for heartbeats in asking:
            heartbeats.join()
        self._matcher.close()

    def follow(self, expected: Iterable[Watched]) -> None:
        """Set the attempts to watch; stops watching all others."""
        requested = {one.job.uid: one for one in expected}
        with self._lock:
            for uid, attempt in tuple(self._attempts.items()):
                if not attempt.requested.is_same(requested.get(uid)):
                    self._end(attempt, attempt.logs)
                    self._keep(uid, attempt)
                    del self._attempts[uid]
            for uid, one in requested.items():
                if uid not in self._attempts:
                    self._attempts[uid] = self._begun(one, self._learned.pop(uid, StepProgress()))
                self._attempts[uid].requested = one

    def _keep(self, uid: str, attempt: _Attempt) -> None:
        """Keep what an attempt has taught for the next one of the job."""
        monitor = attempt.monitor
        self._learned[uid] = attempt.learned if monitor is None else monitor.progress
        for oldest in [*self._learned][:-_LEARNED_LIMIT]:
            del self._learned[oldest]

    def hang(self, uid: str) -> Hang | None:
        """Return the hang of a job by its UID; None if it does not hang."""
        attempt = self._attempts.get(uid)
        return attempt.findings.hang if attempt is not None else None

    def findings(self, uid: str) -> Findings:
        """Return what is known of the present attempt of a job, by its UID."""
        attempt = self._attempts.get(uid)
        return attempt.findings if attempt is not None else Findings()

    def rejected(self, uid: str) -> tuple[Rejection, ...]:
        """Invalid rules of a job in addition to the errors in its annotations."""
        attempt = self._attempts.get(uid)
        if attempt is None:
            return ()
        monitor, heartbeat = attempt.monitor, attempt.requested.heartbeat
        found = attempt.rejected + (monitor.rejected if monitor is not None else ())
        if heartbeat is None or self._reads_heartbeats:
            return found
        expected = (
            "no value, because the controller's kubernetes.read_heartbeats is false; use a probe"
        )
        return (*found, Rejection(key=HEARTBEAT_FILE, value=heartbeat.path, expected=expected))

    @property
    def errors(self) -> tuple[str, ...]:
        """First reason why logs or heartbeats are not being read; empty if there is none."""
        with self._lock:
            attempts = tuple(self._attempts.values())
            errors = [log.error for one in attempts for log in one.logs.values() if log.error]
        errors += [one.heartbeats.error for one in attempts if one.heartbeats is not None]
        expected = sum(len(one.requested.followed) for one in attempts)
        if expected > MOST_LOGS:
            errors.insert(0, f"{expected} logs to follow, but at most {MOST_LOGS} are followed")
        return tuple([error for error in errors if error][:1])

    def _run(self) -> None:
        while not self._over.wait(_TICK_S):
            for uid in tuple(self._attempts):
                attempt = self._attempts.get(uid)
                if attempt is not None:
                    self._check_attempt(attempt)

    def _check_attempt(self, attempt: _Attempt) -> None:
        now = self._clock.now()
        if attempt.monitor is None and (attempt.again_at is None or now >= attempt.again_at):
            self._prepare(attempt, now)
        monitor, before = attempt.monitor, attempt.state
        found = Findings()
        if monitor is not None:
            with self._lock:
                self._open_logs(attempt, monitor)
            found = self._shown_by_logs(attempt, monitor, now)
        hang = found.hang
        if attempt.heartbeats is not None:
            attempt.heartbeats.request_read(attempt.requested.followed)
            hang = hang or attempt.heartbeats.hang()
            found = replace(found, unwatched=attempt.heartbeats.unwatched)
        attempt.findings = self._with_stacks(attempt, replace(found, hang=hang), now)
        attempt.reported = len(self.rejected(attempt.requested.job.uid))
        if attempt.state != before:
            self._changed()

    def _with_stacks(self, attempt: _Attempt, found: Findings, now: datetime) -> Findings:
        if not self._captures_stacks:
            return found
        requested = attempt.requested
        if attempt.stacks is None:
            attempt.stacks = AttemptStacks(self._api, requested.job, requested.attempt)
        return attempt.stacks.added_to(found, requested.followed, now)

    def _begun(self, requested: Watched, learned: StepProgress) -> _Attempt:
        attempt = _Attempt(requested, learned=learned)
        heartbeat = requested.heartbeat
        if heartbeat is not None and self._reads_heartbeats:
            attempt.heartbeats = HeartbeatFile(
                self._api, self._clock, heartbeat, requested.started_at
            )
        return attempt

    def _prepare(self, attempt: _Attempt, now: datetime) -> None:
        """Read and validate the rules of an attempt."""
        requested = attempt.requested
        try:
            rules, attempt.rejected = self._rules(requested)
            limits = requested.loss_limits
            if rules or (limits is not None and not requested.rules_from):
                attempt.monitor = LogMonitor(
                    self._matcher,
                    self._clock,
                    rules,
                    requested.started_at,
                    limits or LossLimits(),
                    attempt.learned,
                )
        except BackendError:
            pass
        attempt.again_at = now + _AGAIN

    def _rules(self, requested: Watched) -> ParsedRules:
        name = requested.rules_from
        if not name:
            return requested.rules, ()
        try:
            found = self._api.get(f"/api/v1/namespaces/{requested.job.namespace}/configmaps/{name}")
        except ApiError as error:
            return (), (_unusable(name, f"a ConfigMap that can be read: {error}"),)
        text = (found.get("data") or {}).get(RULES_KEY)
        if text is None:
            return (), (_unusable(name, f"a ConfigMap with the key {RULES_KEY}"),)
        return rules_of(text, f"{RULES_KEY} of ConfigMap {name}")

    def _open_logs(self, attempt: _Attempt, monitor: LogMonitor) -> None:
        """Follow the logs of the attempt's running pods, and stop following others."""
        if self._attempts.get(attempt.requested.job.uid) is not attempt:
            return  # the attempt is no longer watched
        expected = {pod.uid: pod for pod in attempt.requested.followed}
        self._end(attempt, attempt.logs.keys() - expected.keys())
        room = MOST_LOGS - sum(len(one.logs) for one in self._attempts.values())
        for uid in [uid for uid in expected if uid not in attempt.logs][: max(room, 0)]:
            pod = expected[uid]
            attempt.logs[uid] = log = PodLog(
                self._api, self._clock, pod, partial(monitor.take, pod.member.rank, node=pod.node)
            )
            log.start()

    def _shown_by_logs(self, attempt: _Attempt, monitor: LogMonitor, now: datetime) -> Findings:
        times = [at for at in (monitor.due, monitor.suspicious_at) if at is not None]
        due = min(times, default=None)
        logs = tuple(attempt.logs.values())
        known_until = logs_known_until(
            [log.known_until for log in logs], len(attempt.requested.followed)
        )
        if due is not None and now >= due:
            for log in logs:
                if log.known_until is None or log.known_until < due:
                    log.check()
        return Findings(
            hang=monitor.hang(known_until),
            suspected=monitor.suspected(known_until),
            notices=monitor.notices,
            moved=monitor.moved,
            steps=monitor.steps,
        )

    def _end(self, attempt: _Attempt, pods: Iterable[str]) -> None:
        for uid in tuple(pods):
            log = attempt.logs.pop(uid)
            log.stop()
            self._ended.append(log)
        self._ended = [log for log in self._ended if log.is_alive]


def _unusable(config_map: str, expected: str) -> Rejection:
    return Rejection(key=LOG_MONITORING_CONFIG_MAP, value=config_map, expected=expected)
