"""Supervisor process of one cluster on this machine: its nodes and its jobs.

Its machines start and end with it. When it restarts, as after a power cut, the same machines boot
again, and jobs that ran on them resume from their last checkpoints.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final

from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.cluster import POLL, LocalCluster
from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.first_boot import SCRIPT_TIMEOUT_S, prepare
from holdfast.adapters.local.groups import archive_deleted
from holdfast.adapters.local.job_launch import Launch
from holdfast.adapters.local.jobs import LocalJobs
from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.adapters.local.lock import guarded, locked
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import recover_state
from holdfast.apps.clock import SystemClock
from holdfast.apps.launch.checkpoint_watch import start_mirror
from holdfast.apps.run import checkpoints as attempt_checkpoints
from holdfast.apps.run.cluster_state import creation_failure
from holdfast.apps.run.prepare import sweep
from holdfast.apps.run.reconcilers import agent_command, reconcilers
from holdfast.apps.run.save_watches import SaveWatches
from holdfast.apps.run.settings import LocalNodePolicy, RunConfig
from holdfast.apps.run.waiting import Waiting
from holdfast.decisions.hangs import HangLimits
from holdfast.decisions.mirror_location import mirror_location
from holdfast.decisions.policy import RecoveryMode
from holdfast.engine.job_reconciler import JobReconciler
from holdfast.engine.node_reconciler import NodeReconciler
from holdfast.engine.repeats import RepeatLimiter
from holdfast.kit.processes import become_subreaper, die_with_parent, reap_all
from holdfast.model.clusters import MachineGroup
from holdfast.model.errors import BackendError, HoldfastError
from holdfast.model.events import CheckpointChosen, Event, StateRestored
from holdfast.model.jobs import Ending, JobPhase
from holdfast.model.names import DeepCheck
from holdfast.model.set_aside import SetAside

_LAST_COPY: Final = timedelta(minutes=10)
"""Time to copy the last checkpoints of a job after its end."""

_SCRIPTS: Final = timedelta(seconds=SCRIPT_TIMEOUT_S)

_STOP_SIGNALS: Final = 2
"""Signals in one stop of the API server: for the end of the thread that started this process, and
as the request to end. A further one ends the jobs at once."""

WIND_DOWN: Final = timedelta(seconds=20)
"""Time for jobs to stop when the process is asked to end; after that they are killed."""


class ClusterSupervisor:
    """Keeps the groups of one cluster at their sizes, repairs its nodes, runs its jobs."""

    def __init__(self, run: RunDir, config: RunConfig, mirror: str) -> None:
        """Use a cluster; ``mirror`` is the location for copies of checkpoints, or empty."""
        self._run = run
        self._config = config
        self._mirror = mirror
        self._clock = SystemClock()
        with guarded(run):  # others find the state damaged or restored, but not missing
            restored = recover_state(run.state)
        self._store = ClusterStore(run.state)
        if restored:
            self.emit(StateRestored(what=restored))
            print(restored, file=sys.stderr)  # noqa: T201 - the log of this process
        delays = Delays(boot=config.machines.boot_time, replace=config.machines.boot_time)
        self._machines = LocalMachines(run, self._store, self._clock, delays, self._agent)
        checks = LocalChecks(self._machines, self._clock)
        self._cluster = LocalCluster(self._machines, self._store, checks, self._clock, self)
        self._jobs = LocalJobs(
            run,
            self._machines,
            self._store,
            self._launch,
            self._clock,
            self._ending,
            self._prepare,
        )
        self._waiting = Waiting(run, self._machines, self._clock, WIND_DOWN, _STOP_SIGNALS)
        self._watches = SaveWatches(run.watch_log, self._clock.now())
        self._mirrors = SaveWatches(
            run.mirror_log, self._clock.now(), self._start_mirror, is_restarted=True
        )
        self._mirrored: dict[Path, datetime] = {}
        self._leaving_since: dict[str, datetime] = {}

    def run(self) -> bool:
        """Manage the cluster until it is deleted or a signal asks to end; whether it is deleted."""
        become_subreaper()
        self._machines.restore()
        self._restart_waits()
        policy = self._policy()
        nodes, jobs = self._reconcilers(policy)
        repeats = RepeatLimiter(self)
        try:
            with self._waiting.signals() as woken:
                while not self._waiting.stop_signals:
                    try:
                        if self._policy() != policy:
                            policy = self._policy()
                            nodes, jobs = self._reconcilers(policy)
                        if not self._follow():
                            return True
                        self._round(nodes, jobs, woken)
                    except BackendError as error:
                        self._waiting.after_error(error, repeats, woken)
                try:
                    self._wind_down(jobs, woken)
                except BackendError as error:
                    self._waiting.after_error(error, repeats, woken)
            return False
        finally:
            self._watches.close()
            self._jobs.close()
            self._mirrors.close()
            self._machines.shut_down()
            reap_all()
            self._waiting.close()
            self._store.close()

    def _round(self, nodes: NodeReconciler, jobs: JobReconciler, woken: int) -> None:
        self._process_saves()
        self._store.back_up_changes()
        boot_at = self._machines.boot_due()
        wakes = [nodes.step(), jobs.step(), self._clock.now() + POLL]
        self._waiting.until(min([*wakes, *([boot_at] if boot_at else [])]), woken)

    def emit(self, event: Event) -> None:
        """Store an event: this object is the engine's ``EventSink``."""
        with contextlib.suppress(BackendError):
            self._store.add_event(self._clock.now(), event)

    def _prepare(self, job: str, attempt: int, folder: Path) -> tuple[SetAside, ...]:
        """Verify the checkpoint from which the attempt resumes; returns what was moved for it."""

        def report(why: str) -> None:
            self.emit(CheckpointChosen(job=job, attempt=attempt, why=why))

        prepared = attempt_checkpoints.prepare(
            folder,
            self._config.jobs.checkpoint_depth,
            policy=self._config.checkpoints,
            copies=self._copies_of(folder),
            attempt=attempt_checkpoints.attempt_of(job, self._store.job(job)[1]),
            is_named=False,
            report=report,
        )
        for why in prepared.lines:
            report(why)
        return prepared.moved

    def _process_saves(self) -> None:
        """Verify what the jobs save, and copy it if the cluster has a second location."""
        now = self._clock.now()
        folders = [self._launch(job).checkpoint_dir for job in self._store.active_jobs()]
        if self._config.checkpoints.watch:
            self._watches.advance(folders, now)
        self._mirrored |= dict.fromkeys(folders, now)
        self._mirrored = {
            folder: at
            for folder, at in self._mirrored.items()
            if now - at < _LAST_COPY and self._copies_of(folder)
        }
        self._mirrors.advance(self._mirrored.keys(), now)

    def _copies_of(self, folder: Path) -> str:
        """Return the location of the copies of a checkpoint directory; empty for none."""
        uid = self._store.uid()
        groups = self._store.groups().values()
        is_enabled = bool(groups) and all(one.made_of.mirrors_checkpoints for one in groups)
        if not (self._mirror and uid and is_enabled):
            return self._config.checkpoints.restore_from
        return mirror_location(self._mirror, uid, str(folder))

    def _start_mirror(self, folder: str, log: IO[bytes] | None) -> subprocess.Popen[bytes]:
        return start_mirror(folder, self._copies_of(Path(folder)), log)

    def _follow(self) -> bool:
        """Scale to the requested machines. Returns whether there is anything to manage."""
        for node in self._store.leaving():
            if not self._is_occupied(node):
                self._cluster.retire(node)
                self._leaving_since.pop(node, None)
        groups, nodes = self._store.groups(), self._store.nodes()
        members = self._store.node_groups()
        for name, group in groups.items():
            present = sum(
                members[node] == name and old not in nodes for node, (_, old, _) in nodes.items()
            )
            for _ in range(group.count - present):
                self._machines.add(group=name)
        return bool(groups or nodes or self._store.active_jobs())

    def _is_occupied(self, node: str) -> bool:
        """Whether a job is still being stopped on a node that is being removed."""
        now = self._clock.now()
        since = self._leaving_since.setdefault(node, now)
        return node in self._jobs.occupied() and now < since + self._config.nodes.drain_timeout

    def _wind_down(self, jobs: JobReconciler, woken: int) -> None:
        """Stop the jobs before their machines end, so that they can save and lose no retry."""
        self._cluster.stopping = "holdfast api, which manages the cluster, was stopped"
        deadline = self._clock.elapsed() + WIND_DOWN
        requested = max(len(self._waiting.stop_signals), _STOP_SIGNALS)
        while len(self._waiting.stop_signals) <= requested:
            wake_at = jobs.step()
            if not self._is_stopping() or self._clock.elapsed() >= deadline:
                return
            self._waiting.until(wake_at, woken)

    def _is_stopping(self) -> bool:
        """Whether an attempt has not ended, or its end is not recorded yet."""
        phases = {record.phase for _, record, _ in self._store.active_jobs().values()}
        return bool(phases - {JobPhase.WAITING})

    def _restart_waits(self) -> None:
        """Restart the wait of jobs for nodes: there were none while this process did not run."""
        now = self._clock.now()
        for name, (_, record, _) in self._store.active_jobs().items():
            if record.phase is JobPhase.WAITING:
                self._store.put_job(name, replace(record, phase_since=now))

    def _ending(self) -> Ending | None:
        """Return how jobs end whose cluster no longer exists; None if it does."""
        if self._store.groups():
            return None
        home, name = self._run.path.parent.parent, self._run.name
        failure = creation_failure(home, name, self._store.uid() or "")
        why = f"the cluster {name} was deleted"
        if failure is not None:
            why = f"the creation of the cluster {name} failed: {failure}"
        return Ending(outcome=JobPhase.CANCELLED, reason=why)

    def _policy(self) -> LocalNodePolicy:
        """Return the node policy for the groups; a machine with scripts may take long to join."""
        groups = [one.made_of for one in self._store.groups().values()]
        checked = tuple(one.name for one in groups if one.deep_checks)
        more = _SCRIPTS if any(one.scripts for one in groups) else timedelta(0)
        policy = self._config.nodes
        repairs = all(one.repairs for one in groups)
        return replace(
            policy,
            node_recovery=RecoveryMode.AUTOMATIC if repairs else RecoveryMode.NONE,
            deep_check_on_start=bool(checked),
            deep_check_groups=checked,
            deep_check_pairs=any(DeepCheck.CONNECTIVITY in one.deep_checks for one in groups),
            join_timeout=policy.join_timeout + more,
            replace_timeout=policy.replace_timeout + more,
        )

    def _reconcilers(self, policy: LocalNodePolicy) -> tuple[NodeReconciler, JobReconciler]:
        return reconcilers(
            self._cluster,
            self._machines,
            self._jobs,
            self._store,
            events=self,
            clock=self._clock,
            node_policy=policy,
            job_policy=self._config.jobs,
        )

    def _launch(self, job: str) -> Launch:
        requested = self._store.job_launch(job)
        return Launch(
            argv=requested.argv,
            nproc_per_node=requested.nproc_per_node,
            checkpoint_dir=Path(requested.checkpoint_dir),
            master_port=requested.master_port,
            hang_limits=HangLimits(
                startup=_span(requested.startup_timeout_s), pause=_span(requested.hang_timeout_s)
            ),
            log_rules=requested.log_rules,
            stall_limits=self._config.jobs.stall_limits,
            straggler_factor=self._config.jobs.straggler_factor,
            loss_limits=self._config.jobs.loss_limits,
            directory=Path(requested.directory),
            environment=requested.environment,
        )

    def _agent(self, name: str, directory: NodeDir) -> Sequence[str]:
        agent = agent_command(name, directory, self._config.machines)
        groups = self._store.groups()
        group = groups.get(self._store.node_groups().get(name, ""))
        if group is None or group.made_of.scripts is None:
            return agent
        made_of = [one.made_of for one in groups.values()]
        prepare(directory, group.made_of.scripts, self._resources(made_of))
        return [
            sys.executable, "-m", "holdfast.adapters.local.first_boot",
            "--dir", str(directory.path), "--timeout", str(SCRIPT_TIMEOUT_S), *agent,
        ]  # fmt: skip

    def _resources(self, groups: Sequence[MachineGroup]) -> Mapping[str, Any]:
        """Return ``resource_config.json``: all instances of all groups, in HyperPod's format."""
        members = self._store.node_groups()
        ids = {node: machine for node, (machine, _, _) in self._store.nodes().items()}
        return {
            "ClusterConfig": {"ClusterName": self._run.name},
            "InstanceGroups": [
                {
                    "Name": group.name,
                    "InstanceType": group.instance_type,
                    "Instances": [
                        {
                            "InstanceName": node,
                            "AgentIpAddress": "127.0.0.1",
                            "CustomerIpAddress": "127.0.0.1",
                            "InstanceId": machine,
                        }
                        for node, machine in ids.items()
                        if members.get(node) == group.name
                    ],
                }
                for group in groups
            ],
        }


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def main(argv: list[str]) -> int:
    """Manage one cluster; ends with the process that started it."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.apps.run.cluster_supervisor", description=__doc__
    )
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--checkpoint-mirror", default="")
    options = parser.parse_args(argv)
    die_with_parent(options.parent, signal.SIGTERM)
    run = RunDir(options.dir)
    sweep(run.path.parent.parent)  # also processes of this cluster, if it was killed
    try:
        with locked(run):
            if ClusterSupervisor(run, RunConfig(), options.checkpoint_mirror).run():
                archive_deleted(run)
    except HoldfastError as error:  # holdfast api starts this process again
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:]))
