"""The exception tree.

HoldfastError
├── ConfigError          bad input of a person: exit code 2
├── BackendError         a scheduler, store or machine could not be read or written: try again later
│   └── StorageFull      there is no space left on a device that Holdfast writes to
└── ProviderError        a provider refused an action
    ├── NodeGone         the machine no longer exists; a remedy counts as done
    └── RetryLater       throttled or not ready; ``after`` says how long to wait
        └── InProgress   the action takes more than one call, and another is due

Catch ``HoldfastError`` at the edge of a process, the narrow classes anywhere else.
"""

from collections.abc import Iterable
from datetime import timedelta


class HoldfastError(Exception):
    """Root of every error that Holdfast raises on purpose."""


class ConfigError(HoldfastError):
    """Input of a person that cannot be used.

    ``problems`` holds one line for each mistake: the key, the value and what was expected.
    """

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class BackendError(HoldfastError):
    """A scheduler, a store or a machine could not be read or written just now."""


class StorageFull(BackendError):
    """No space is left on a device that Holdfast writes to."""


class ProviderError(HoldfastError):
    """A provider refused an action, for example for want of permission."""

    is_outcome_unknown: bool = False
    """Whether the action may have been carried out all the same: its response was lost, or what it
    is to bring about is under way without it."""


class NodeGone(ProviderError):
    """The machine no longer exists."""


class RetryLater(ProviderError):
    """The provider asks to be called again later."""

    def __init__(self, message: str, *, after: timedelta, is_outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.after = after
        self.is_outcome_unknown = is_outcome_unknown


class InProgress(RetryLater):
    """The provider carries the action out in steps and has to be called again for the next."""
