"""Request for a training job, and its validation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.model.errors import ConfigError

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
SCHEDULERS: Final = ("SageMaker", "Kueue", "None")
ON_FAILURE: Final = "OnFailure"

_NEEDS_RETRIES: Final = "Please enable 'auto_resume' with 'max_retry' option."
_NEEDS_ON_FAILURE: Final = (
    "To enable 'auto_resume', please ensure the 'restart-policy' is 'OnFailure'."
)
_LONGEST_NAME: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVolume:
    """Directory of the nodes to mount in the containers (hostPath)."""

    name: str
    host_path: str
    mount_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """PersistentVolumeClaim to mount in the containers."""

    name: str
    mount_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Training job. Raises ``ConfigError`` with all of its problems."""

    name: str
    image: str
    entry_script: str
    instance_type: str
    nodes: int
    namespace: str = ""
    """Namespace; empty for that of the context."""

    command: str = "torchrun"
    script_args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    tasks_per_node: int | None = None
    """Processes per node; None for torchrun's default, one per GPU."""

    pull_policy: str = "IfNotPresent"
    restart_policy: str = ON_FAILURE
    auto_resume: bool = False
    max_retry: int | None = None
    """Maximum number of restarts; None for 1 with ``auto_resume``."""

    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Required node labels and their allowed values."""

    preferred: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    """Weight of each preferred label, from 1 to 100; empty for 100."""

    scheduler: str = "SageMaker"
    queue: str = ""
    priority: str = ""
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[HostVolume, ...] = ()
    claims: tuple[Claim, ...] = ()
    service_account: str = ""

    def __post_init__(self) -> None:
        if problems := tuple(self._problems()):
            raise ConfigError(problems)

    def _problems(self) -> Iterator[str]:
        yield from self._unfit_values()
        if self.max_retry is not None and not self.auto_resume:
            yield f"max_retry: {_NEEDS_RETRIES}"
        if self.auto_resume and self.restart_policy != ON_FAILURE:
            yield f"restart_policy: {self.restart_policy!r}: {_NEEDS_ON_FAILURE}"
        if self.weights and len(self.weights) != len(self.preferred):
            yield (
                f"weights: {len(self.weights)} of them for {len(self.preferred)} preferred labels; "
                "give one weight per label"
            )

    def _unfit_values(self) -> Iterator[str]:
        for key in ("name", "image", "entry_script", "instance_type"):
            if not getattr(self, key):
                yield f"{key}: missing, expected some text"
        if len(self.name) > _LONGEST_NAME:
            yield f"name: {self.name!r} is longer than {_LONGEST_NAME} characters"
        least = (
            ("node_count", self.nodes, 1),
            ("tasks_per_node", self.tasks_per_node, 1),
            ("max_retry", self.max_retry, 0),
        )
        for key, value, limit in least:
            if value is not None and value < limit:
                yield f"{key}: must be {limit} or more, got {value}"
        choices = (
            ("pull_policy", self.pull_policy, PULL_POLICIES),
            ("restart_policy", self.restart_policy, RESTART_POLICIES),
            ("scheduler_type", self.scheduler, SCHEDULERS),
        )
        for key, chosen, known in choices:
            if chosen not in known:
                yield f"{key}: {chosen!r} is none of {', '.join(known)}"
        for weight in self.weights:
            if not 1 <= weight <= 100:
                yield f"weights: must be from 1 to 100, got {weight}"
