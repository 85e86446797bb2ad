"""Exceptions of Holdfast.

HoldfastError
├── ConfigError          invalid input of a person: exit code 2
├── BackendError         a scheduler, store or machine could not be read or written: retry later
│   ├── StorageFull      no space is left on a device that Holdfast writes to
│   └── StateDamaged     a database of Holdfast is damaged; its owner restores it when it restarts
└── ProviderError        a provider refused an action
    ├── NodeGone         the machine does not exist; a remedy counts as done
    └── RetryLater       throttled or not ready; ``after`` is the delay
        └── InProgress   the action takes more calls

Catch ``HoldfastError`` at the edge of a process, the narrow classes anywhere else.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every process loads this module first
    from collections.abc import Iterable
    from datetime import timedelta


class HoldfastError(Exception):
    """Root of every error that Holdfast raises on purpose."""


class ConfigError(HoldfastError):
    """Invalid input of a person.

    ``problems`` holds one line for each mistake: the key, the value and what was expected.
    """

    def __init__(self, problems: "str | Iterable[str]") -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class BackendError(HoldfastError):
    """A scheduler, a store or a machine could not be read or written; retry later."""


class StorageFull(BackendError):
    """No space is left on a device that Holdfast writes to."""


class StateDamaged(BackendError):
    """A database of Holdfast is damaged; its owner restores it when it restarts."""


class ProviderError(HoldfastError):
    """A provider refused an action, for example for lack of permission."""

    is_outcome_unknown: bool = False
    """Whether the action may have been carried out anyway: its response was lost, or its effect is
    already under way."""


class NodeGone(ProviderError):
    """The machine no longer exists."""


class RetryLater(ProviderError):
    """The provider asks for a retry after a delay."""

    def __init__(
        self, message: str, *, after: "timedelta", is_outcome_unknown: bool = False
    ) -> None:
        super().__init__(message)
        self.after = after
        self.is_outcome_unknown = is_outcome_unknown


class InProgress(RetryLater):
    """The provider carries the action out in steps; call it again for the next step."""
