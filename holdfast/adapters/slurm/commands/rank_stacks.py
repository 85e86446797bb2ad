"""Looks at the ranks of a running job, by a step of its own beside theirs."""

import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.host.dump_command import dump_command
from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.decisions.flight_recorder import RankFindings
from holdfast.decisions.recorder_dumps import distinct, printed_traces, split_traces
from holdfast.decisions.stack_dumps import COMMAND, findings_of
from holdfast.model.errors import BackendError

_LABELLED: Final = re.compile(r"^ *(\d{1,6}): (.*)$")
_NODE: Final = "node "
_ALL: Final = "for p in /proc/[0-9]*; do "
_OWN: Final = (
    "tr '\\0' '\\n' <$p/environ 2>/dev/null | grep -qx SLURM_JOB_ID=$SLURM_JOB_ID || continue; "
)
_DUMPS: Final = COMMAND[2].replace(_ALL, _ALL + _OWN)
"""Dumps the processes of the job alone: those of others may end meanwhile, or be many."""

_SCRIPT: Final = (
    'echo "{node}$SLURMD_NODENAME"; if t=$(mktemp); then {traces} >$t & fi; ({dumps}); '
    'wait; [ "$t" ] && cat $t && rm -f $t; exit 0'
)
"""Reads the flight recorders meanwhile, whose lines come after those of the stacks."""

_STEP: Final = timedelta(seconds=6)
"""Time that is left to start the step, and for what it prints."""


class RankStacks(Slurm):
    """Commands on one cluster; methods raise ``BackendError`` if Slurm refuses the step."""

    def look(self, job: str, nodes: int) -> RankFindings:
        """Return what the ranks of a job do, in rank order, and the nodes' kernel logs.

        The step shares the resources of the others, and may be refused to people who do not own the
        job. Files that the job names are opened with its own rights.

        Args:
            job: ID of the job.
            nodes: number of its nodes.

        """
        traces = shlex.join(dump_command(self._timeout - _STEP))
        script = _SCRIPT.format(node=_NODE, dumps=_DUMPS, traces=traces)
        step = (f"--jobid={job}", "--overlap", f"--nodes={nodes}", "--ntasks-per-node=1")
        text = self._call("srun", *step, "--label", "--mem=0", *COMMAND[:2], script)
        now = datetime.now(UTC)
        found = [_findings(lines, job, now) for lines in _by_task(text)]
        seen = (snapshot for one in found for snapshot in one.snapshots)
        return RankFindings(
            snapshots=tuple(sorted(seen, key=lambda one: one.rank)),
            traces=distinct([trace for one in found for trace in one.traces]),
            kernel=tuple(log for one in found for log in one.kernel),
        )


def nodes_of(slurm: Slurm, job: str) -> int:
    """Return the number of nodes of a running job.

    Raises:
        BackendError: there is none with this ID, or slurmctld does not respond.

    """
    for one in slurm.jobs():
        if one.id == job:
            return len(one.nodes)
    raise BackendError(f"job {job} is not running; see: squeue --states=running")


def _by_task(text: str) -> list[list[str]]:
    tasks: dict[str, list[str]] = {}
    for line in text.splitlines():
        found = _LABELLED.match(line)
        if found is not None:
            tasks.setdefault(found[1], []).append(found[2])
    return list(tasks.values())


def _findings(lines: list[str], job: str, now: datetime) -> RankFindings:
    node = next((one.removeprefix(_NODE) for one in lines if one.startswith(_NODE)), "")
    text, traces = split_traces("\n".join(lines))
    return replace(findings_of(text, node, now, job), traces=printed_traces(traces))


TIMEOUT: Final = timedelta(seconds=30)
"""Timeout of the step, which starts within seconds."""
