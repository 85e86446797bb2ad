"""Types of the names that ``__init__.py`` imports on first use."""

from holdfast import training as training
from holdfast.adapters.checkpoints.contract import CannotVerify as CannotVerify
from holdfast.adapters.checkpoints.contract import CheckpointFormat as CheckpointFormat
from holdfast.adapters.checkpoints.contract import Found as Found
from holdfast.adapters.checkpoints.contract import candidate as candidate
from holdfast.adapters.checkpoints.contract import damaged as damaged
from holdfast.adapters.checkpoints.contract import incomplete as incomplete
from holdfast.adapters.checkpoints.plain_files import Entry as Entry
from holdfast.detectors.contract import Detector as Detector
from holdfast.detectors.contract import LogLine as LogLine
from holdfast.detectors.contract import Profile as Profile
from holdfast.detectors.contract import Readings as Readings
from holdfast.detectors.contract import Sample as Sample
from holdfast.detectors.log_rules import LogRule as LogRule
from holdfast.detectors.log_rules import log_detector as log_detector
from holdfast.model.checkpoints import Checkpoint as Checkpoint
from holdfast.model.checkpoints import Depth as Depth
from holdfast.model.checkpoints import Pointer as Pointer
from holdfast.model.checkpoints import Problem as Problem
from holdfast.model.errors import NodeGone as NodeGone
from holdfast.model.errors import ProviderError as ProviderError
from holdfast.model.errors import RetryLater as RetryLater
from holdfast.model.health import Finding as Finding
from holdfast.model.health import Remedy as Remedy
from holdfast.model.health import Severity as Severity
from holdfast.model.health import Urgency as Urgency
from holdfast.model.names import Condition as Condition
from holdfast.model.nodes import NodeView as NodeView
from holdfast.ports.provider import NodeProvider as NodeProvider

__version__: str
