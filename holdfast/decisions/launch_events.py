"""Events that launchers report to the coordinator of their job: pure."""

from dataclasses import dataclass

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.flight_recorder import RankTrace
from holdfast.decisions.hang_verdict import Verdict
from holdfast.decisions.kernel_lines import NodeKernelLog
from holdfast.decisions.rank_snapshots import RankSamples, RankSnapshot
from holdfast.decisions.restart_rungs import RestartHistory
from holdfast.model.jobs import LossFault


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """Fault of a node, as its agent reports it."""

    text: str
    is_urgent: bool
    """Whether its repair begins at once; otherwise it waits until the job has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A launcher that takes part in the job."""

    name: str
    """Unique to the process."""

    address: str
    """Address at which ranks of other nodes reach its ranks."""

    port: int
    """TCP port for the rendezvous of the next round, if this node has node rank 0."""

    slots: int
    """Number of its ranks."""

    order: int = 0
    """Preferred node rank; launchers with a lower number are chosen first."""

    fault: NodeFault | None = None
    """Fault of its node that needs a repair of the node; None if none is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A launcher joined. None of its ranks is alive."""

    member: Member
    round: int = 0
    """Number of the last round that it knows of; 0 if there was none."""

    history: RestartHistory = RestartHistory()
    """Restarts that it knows of: a coordinator that was restarted continues with their budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The connection to a launcher ended, or it has been silent for longer than its lease."""

    launcher: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported:
    """The agent on the node of a launcher reports another fault than before, or none any more."""

    launcher: str
    fault: NodeFault | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A rank of a round failed."""

    launcher: str
    round: int
    rank: int
    code: int
    """Exit code; the negative number of the signal that ended the rank."""

    meaning: ExitMeaning
    text: str
    has_timed_out: bool = False
    """Whether a collective timed out in which it waited for another rank."""

    is_consequence: bool = False
    """Whether it only reports that another rank is late or gone."""

    cause: str = ""
    """Root cause; empty if it is not known."""

    has_progress: bool = False
    """Whether a rank of this launcher had reported a step in the round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReported:
    """The losses of ranks of a round are not finite, or have spiked, at the same step."""

    launcher: str
    round: int
    ranks: tuple[int, ...]
    """Ranks that reported it, at least one; others may follow."""

    fault: LossFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspected:
    """A rank of a round has reported no new step for too long."""

    launcher: str
    round: int
    rank: int
    """-1 if no single rank is suspected."""

    text: str
    restart: bool
    """Whether the ranks are restarted if they hang."""

    stalled_s: float | None = None
    """Seconds since its last step, or since the start of the round; None if unknown."""

    is_proven: bool = False
    """Whether it holds although the rank may report new steps, as by a log rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What the ranks of a launcher do, as the inspection of a suspected hang asks."""

    launcher: str
    round: int
    number: int
    """Number of the inspection in its round, from 1."""

    is_stalled: bool
    """Whether the rank that the launcher suspected has still reported no new step; True if it
    suspected none."""

    snapshots: tuple[RankSnapshot, ...]
    omitted: int = 0
    """Number of ranks without a snapshot, because the report would have been too large."""

    traces: tuple[RankTrace, ...] = ()
    """Of the ranks that have dumped their flight recorders."""

    ras: Verdict | None = None
    """What NCCL's RAS reports on this node of all ranks; None if it shows nothing."""

    kernel: tuple[NodeKernelLog, ...] = ()
    """Kernel log of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRuleReport:
    """What the logs of the ranks of one launcher show by one log rule."""

    matched_s: float | None = None
    """Seconds since the last matching line that shows progress; None if there was none."""

    not_finite: str = ""
    """Last line with NaN or infinity, if none has shown progress since."""

    is_over: bool = False
    """Whether a line has ended the rule."""

    is_evaluated: bool = True
    """False once lines were not matched, because the pattern is invalid or the matching failed."""

    hang_s: float | None = None
    """Seconds since a line proved a hang; None if none did."""

    hang_rank: int = 0
    hang: str = ""
    """Rank that printed that line, and what it printed; without a meaning if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRead:
    """What the logs of the ranks of a launcher show up to now."""

    launcher: str
    round: int
    digest: str
    """Identifies the log rules of the launcher: those of all launchers must be the same."""

    rules: tuple[LogRuleReport, ...]
    """One for each rule, in their order."""

    known_s: float | None
    """Seconds since all lines were read; None if they never were."""

    is_complete: bool = False
    """Whether the ranks have ended and all of their lines were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the ranks of a launcher did in one window, for the search for stragglers."""

    launcher: str
    round: int
    window: int
    """Number of the window in its round, from 0: those of all launchers begin at about the same
    time."""

    ranks: tuple[RankSamples, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What slows the GPU and the CPU of a straggler down."""

    launcher: str
    round: int
    rank: int
    text: str
    """Empty if nothing does, or if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """All ranks of a launcher exited with 0."""

    launcher: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """No process of a launcher's ranks of a round is left."""

    launcher: str
    round: int
    port: int
    """TCP port for the rendezvous of the next round."""

    waited_s: float = 0.0
    """Seconds until the memory of its accelerators was free, or the wait for it timed out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowed:
    """A rank of a round slows the others down."""

    launcher: str
    round: int
    rank: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The job is to stop, for example because a launcher received SIGTERM."""

    signal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsVerified:
    """The checkpoints for the next round are verified, or cannot be."""

    restarts: int
    """Number of restarts for which they were, see ``RestartHistory.total``."""

    obstacle: str = ""
    """Why the ranks must not restart; empty if they may."""


Reported = (
    Joined
    | NodeReported
    | Failed
    | LossReported
    | Suspected
    | Inspected
    | LogsRead
    | Sampled
    | Examined
    | Succeeded
    | Stopped
)
"""Events that a launcher reports itself."""

Event = Reported | Lost | Slowed | StopRequested | CheckpointsVerified
