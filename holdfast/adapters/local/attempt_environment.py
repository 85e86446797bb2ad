"""Environment of the ranks of an attempt, with their rendezvous and their files."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.local.attempt_files import AttemptFiles
from holdfast.adapters.local.job_launch import Launch
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.rank_environment import Rendezvous, rank_environment
from holdfast.decisions.flight_recorder import recorder_environment
from holdfast.decisions.loss_faults import skipped_steps
from holdfast.kit.free_ports import free_port
from holdfast.model.jobs import (
    ATTEMPT_VARIABLE,
    CHECKPOINTS_VARIABLE,
    EVIDENCE_VARIABLE,
    FENCED_VARIABLE,
    JOB_VARIABLE,
    LAUNCH_KEY_VARIABLE,
    PROGRESS_VARIABLE,
    RESTART_REASON_VARIABLE,
    SECTIONS_VARIABLE,
    SKIP_STEPS_VARIABLE,
    JobRecord,
    JobSpec,
)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Rendezvous of the ranks of a job, which later ranks join after an exchange of nodes."""

    attempt: int
    """Attempt in which all ranks were launched."""

    port: int
    key: str


class AttemptEnvironment:
    """Environment variables of the ranks that are launched on the machines of ``run``."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._meetings: dict[str, _Meeting] = {}

    def of_rank(
        self, spec: JobSpec, record: JobRecord, rank: int, launch: Launch
    ) -> Mapping[str, str]:
        """Return the environment of COMMAND on one node, and create the files that it names."""
        meeting, name = self._meeting(spec, record, launch), record.placement[rank]
        own, files = self._run.of_job(spec.name), self.files(spec, record, launch)
        with suppress(OSError):
            files.create(record.attempt)
        node = Rendezvous(
            node_rank=rank,
            nodes=spec.nodes,
            nproc_per_node=launch.nproc_per_node,
            master_addr="127.0.0.1",
            master_port=meeting.port,
        )
        return {
            **recorder_environment(launch.environment, str(files.dumps)),
            **rank_environment(launch.environment, node),
            "PYTHONUNBUFFERED": "1",
            "HOLDFAST_RUN": str(self._run.path),
            JOB_VARIABLE: spec.name,
            EVIDENCE_VARIABLE: str(files.evidence),
            LAUNCH_KEY_VARIABLE: meeting.key,
            FENCED_VARIABLE: "1",
            "HOLDFAST_NODE": name,
            "PET_NODE_REPORT": str(self._run.node(name).report),
            ATTEMPT_VARIABLE: str(meeting.attempt),
            RESTART_REASON_VARIABLE: "" if record.failure is None else record.failure.reason,
            SKIP_STEPS_VARIABLE: skipped_steps(record.attempts),
            CHECKPOINTS_VARIABLE: str(launch.checkpoint_dir),
            SECTIONS_VARIABLE: str(files.sections),
            PROGRESS_VARIABLE: str(files.progress),
            "TORCHELASTIC_ERROR_FILE": str(error_file(own.log(record.attempt, rank))),
        }

    def files(self, spec: JobSpec, record: JobRecord, launch: Launch) -> AttemptFiles:
        """Return the files that the ranks of the present attempt write."""
        return AttemptFiles(
            own=self._run.of_job(spec.name),
            launched_in=self._meeting(spec, record, launch).attempt,
            keeps_ranks=spec.keeps_ranks,
        )

    def _meeting(self, spec: JobSpec, record: JobRecord, launch: Launch) -> _Meeting:
        """Return the port and the key of an attempt, the same ones if its launch is repeated."""
        known = self._meetings.get(spec.name)
        if known is None or (known.attempt != record.attempt and not record.exchanged):
            port = free_port() if launch.master_port is None else launch.master_port
            known = _Meeting(record.attempt, port, secrets.token_hex())
            self._meetings[spec.name] = known
        return known


def error_file(log: Path) -> Path:
    """Return the file in which PyTorch's ``@record`` stores the exception of a rank."""
    return log.with_suffix(".error.json")
