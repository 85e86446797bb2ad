"""Holdfast keeps training jobs running through hardware failure.

The names of ``__all__`` are the stable API for extensions; all other modules may change in any
release. Each name is imported when it is first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_SOURCES = {
    "Condition": "holdfast.model.names",
    "Detector": "holdfast.detectors.contract",
    "Finding": "holdfast.model.health",
    "LogLine": "holdfast.detectors.contract",
    "LogRule": "holdfast.detectors.log_rules",
    "Profile": "holdfast.detectors.contract",
    "Readings": "holdfast.detectors.contract",
    "Remedy": "holdfast.model.health",
    "Sample": "holdfast.detectors.contract",
    "Severity": "holdfast.model.health",
    "Urgency": "holdfast.model.health",
    "log_detector": "holdfast.detectors.log_rules",
    "NodeGone": "holdfast.model.errors",
    "NodeProvider": "holdfast.ports.provider",
    "NodeView": "holdfast.model.nodes",
    "ProviderError": "holdfast.model.errors",
    "RetryLater": "holdfast.model.errors",
    "CannotVerify": "holdfast.adapters.checkpoints.contract",
    "Checkpoint": "holdfast.model.checkpoints",
    "CheckpointFormat": "holdfast.adapters.checkpoints.contract",
    "Depth": "holdfast.model.checkpoints",
    "Entry": "holdfast.adapters.checkpoints.plain_files",
    "Found": "holdfast.adapters.checkpoints.contract",
    "Pointer": "holdfast.model.checkpoints",
    "Problem": "holdfast.model.checkpoints",
    "candidate": "holdfast.adapters.checkpoints.contract",
    "damaged": "holdfast.adapters.checkpoints.contract",
    "incomplete": "holdfast.adapters.checkpoints.contract",
}
"""Module of each public name."""

_MODULES = ("training",)

__all__ = [  # noqa: PLE0604 - names of the table
    "__version__",
    *_SOURCES,
    *_MODULES,
]


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that light processes load only what they need."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_SOURCES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
