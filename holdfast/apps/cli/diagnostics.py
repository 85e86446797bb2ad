"""Output and exit codes of the ``doctor`` commands."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from holdfast.apps.cli.output import Column, print_rows
from holdfast.apps.exit_codes import ExitCode
from holdfast.decisions.doctor import Diagnostic, is_failure

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS: Final = [
    Column[Diagnostic](title="severity", cell=lambda one: one.severity),
    Column[Diagnostic](title="rule", cell=lambda one: one.rule),
    Column[Diagnostic](title="found", cell=lambda one: one.found, minor=True),
    Column[Diagnostic](title="why", cell=lambda one: one.why, wide=True),
    Column[Diagnostic](title="remedy", cell=lambda one: one.remedy, minor=True),
]


def strict_option(command: F) -> F:
    """Add the option ``--strict``."""
    text = "Treat warnings as errors: exit with code 1."
    return click.option("--strict", is_flag=True, help=text)(command)


def print_diagnostics(found: Sequence[Diagnostic], output: str) -> None:
    """Print diagnostics as a table, or as a JSON or YAML document."""
    print_rows(found, _COLUMNS, output=output, empty="No problems found.")


def exit_code(found: Sequence[Diagnostic], *, strict: bool) -> ExitCode:
    """Return FAILED if jobs would not be resumed; with ``strict``, also for a warning."""
    return ExitCode.FAILED if is_failure(found, strict=strict) else ExitCode.OK
