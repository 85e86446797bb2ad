"""Connects a controller to a Slurm cluster."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime

from holdfast.adapters.checkpoints.directory import saved_step
from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.providers.table import build_provider
from holdfast.adapters.slurm.commands.conf_file import CONF
from holdfast.adapters.slurm.jobs.backend import JobDependencies, SlurmJobs
from holdfast.adapters.slurm.nodes.cluster import SlurmCluster
from holdfast.adapters.slurm.nodes.dependencies import Dependencies
from holdfast.adapters.slurm.nodes.leadership import FileLock
from holdfast.adapters.slurm.nodes.munge import trust_of
from holdfast.adapters.slurm.nodes.signatures import Trust, directory_problem
from holdfast.adapters.slurm.nodes.state import FILE, Places, SlurmStore, recover_state
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import ControllerConfig
from holdfast.apps.controller.event_log import EventLog
from holdfast.apps.controller.platform import Platform
from holdfast.decisions.check_schedule import is_check_due
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.events import Event, StateRestored
from holdfast.model.nodes import NodeRecord
from holdfast.ports.events import EventSink


class _NoEvents:
    """An ``EventSink`` that drops events; Slurm stores none."""

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""


def connect(config: ControllerConfig, wake: Callable[[], None], *, acts: bool) -> Platform:
    """See ``Connect``."""
    settings, clock = _settings(config), SystemClock()
    provider = build_provider(config.provider, clock)
    with ExitStack() as opened:
        lock = _lock(settings, acts=acts)
        opened.callback(lock.close)
        events = EventLog(config.log, clock)
        store = _store(settings, lock, events, acts=acts)
        opened.callback(store.close)
        dependencies = Dependencies(
            clock=clock,
            events=events,
            changed=wake,
            trust=_trust(settings),
            may_act=lock.is_held,
            is_check_due=_due(config.nodes),
            stops_itself=lambda job: jobs.stops_itself(job),  # noqa: PLW0108 - see below
            displaces=lambda job, node: jobs.displaces(job, node),  # noqa: PLW0108 - see below
            left=lambda of: jobs.left(of),  # noqa: PLW0108 - see below
        )
        if acts:
            store.put_places(_places(settings))
        cluster = SlurmCluster(settings, store, dependencies)
        cluster.start()
        opened.callback(cluster.stop)
        jobs = SlurmJobs(settings, store, _job_dependencies(dependencies, cluster))
        jobs.open()
        opened.callback(jobs.close)
        return Platform(
            name=config.cluster or config.platform,
            cluster=cluster,
            provider=provider,
            incidents=store,
            events=_NoEvents(),
            jobs=jobs,
            stragglers=jobs.stragglers,
            leadership=lock,
            is_ready=lambda: cluster.synced,
            errors=lambda: cluster.errors,
            close=opened.pop_all().close,
        )


def _job_dependencies(shared: Dependencies, cluster: SlurmCluster) -> JobDependencies:
    return JobDependencies(
        clock=shared.clock,
        events=shared.events,
        changed=shared.changed,
        may_act=shared.may_act,
        nodes=cluster,
        step_of=saved_step,
        moved_from=lambda folder: read_history(folder).aside,
    )


def _due(policy: RemediationPolicy) -> Callable[[str, NodeRecord, datetime], bool] | None:
    """Return a predicate for nodes to check once they are idle; None without periodic checks."""
    if policy.deep_check_every is None:
        return None
    return lambda group, record, now: is_check_due(group, record, policy, now)


def _settings(config: ControllerConfig) -> SlurmSettings:
    settings = config.slurm
    if settings is None:
        raise ConfigError(
            "slurm: missing, expected a table with report_dir, the directory that the agents write"
            " their reports to"
        )
    if not settings.report_dir.is_dir():
        raise ConfigError(f"slurm.report_dir: {settings.report_dir} is not a directory")
    if settings.conf is not None:
        if not settings.conf.is_file():
            raise ConfigError(f"slurm.conf: {settings.conf} is not a file")
        os.environ[CONF] = str(settings.conf)  # for the commands of providers
    return settings


def _trust(settings: SlurmSettings) -> Trust:
    trust = trust_of(settings.conf)
    if problem := directory_problem(settings.report_dir, trust.users):
        raise ConfigError(f"slurm.report_dir: {problem}")
    return trust


def _lock(settings: SlurmSettings, *, acts: bool) -> FileLock:
    try:
        return FileLock(settings.state_dir, may_take=acts)
    except BackendError as error:
        raise ConfigError(f"slurm.state_dir: {error}") from error


def _store(settings: SlurmSettings, lock: FileLock, events: EventSink, *, acts: bool) -> SlurmStore:
    """Open the state; the controller that leads checks and restores it first."""
    path = settings.state_dir / FILE
    try:
        restored = recover_state(path) if lock.is_held() else ""
        store = SlurmStore(path if acts or path.is_file() else None)
    except BackendError as error:
        raise ConfigError(f"slurm.state_dir: {error}") from error
    if restored:
        events.emit(StateRestored(what=restored))
    if acts:
        store.keep_backup()
    return store


def _places(settings: SlurmSettings) -> Places:
    conf = "" if settings.conf is None else str(settings.conf)
    return Places(report_dir=str(settings.report_dir), conf=conf)
