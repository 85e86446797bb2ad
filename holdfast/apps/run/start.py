"""Starts a run from its settings, and returns its exit code."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from typing import Final, cast

from holdfast.adapters.local.layout import RunDir, run_dir
from holdfast.adapters.local.lock import locked
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.logs import Follow, RankLogs
from holdfast.apps.run.nonblocking_output import NonblockingOutput
from holdfast.apps.run.prepare import archive, check, sweep
from holdfast.apps.run.previous_jobs import (
    archived_jobs,
    last_with_checkpoints,
    report_resume,
    report_unused,
)
from holdfast.apps.run.screen import JsonScreen, PlainScreen, Screen
from holdfast.apps.run.session import RunSession
from holdfast.apps.run.settings import RunSettings
from holdfast.apps.run.summary import Summary
from holdfast.model.jobs import JobPhase

_LIVE: Final = ("holdfast.apps.run.live", "LiveScreen")


class Show(StrEnum):
    """Output format of a run."""

    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"


@contextlib.contextmanager
def started(
    settings: RunSettings, screen: Screen, follow: Follow
) -> Iterator[tuple[RunSession, RunDir]]:
    """Prepare a run; its name is locked until the end of the block.

    Raises:
        ConfigError: the settings are invalid; nothing was created.
        StorageFull: there is too little disk space; nothing was created.

    """
    check(settings)
    run = run_dir(settings.home, settings.name)
    with locked(run):
        sweep(settings.home)
        archived = archive(run)
        earlier = last_with_checkpoints(archived_jobs(run, archived))
        run.create()
        if settings.resume:
            report_resume(settings.name, earlier)
            if earlier is not None:
                settings = replace(settings, checkpoint_dir=earlier.checkpoints)
        elif settings.checkpoint_dir is None:
            report_unused(settings.name, earlier)
        checkpoints = settings.checkpoint_dir or run.checkpoints
        checkpoints.mkdir(parents=True, exist_ok=True)
        session = RunSession(settings, run, screen, RankLogs(lambda: run, settings.nodes, follow))
        try:
            yield session, run
        finally:
            session.close()


def exit_code(summary: Summary, stopped_by: int | None) -> ExitCode:
    """Return the exit code of ``holdfast run``."""
    if stopped_by is not None:
        return ExitCode.INTERRUPTED if stopped_by == signal.SIGINT else ExitCode.TERMINATED
    return ExitCode.OK if summary.outcome == JobPhase.SUCCEEDED else ExitCode.FAILED


@contextlib.contextmanager
def opened(show: Show) -> Iterator[Screen]:
    """Open the screen of that format, and close it at the end of the block."""
    screen: Screen
    now = SystemClock().now()
    out = NonblockingOutput(sys.stdout)
    if show is Show.LIVE:
        module, name = _LIVE
        screen = cast("Screen", getattr(import_module(module), name)(out, now))
    else:
        screen = JsonScreen(out) if show is Show.JSON else PlainScreen(out, now)
    try:
        yield screen
    finally:
        screen.close()
