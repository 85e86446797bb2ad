"""The demo: runs the same job twice, once without faults and once with four faults."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.demo.outcome import DemoResult, recovered
from holdfast.apps.demo.story import STORY, Injected, Storyteller
from holdfast.apps.run.logs import Follow
from holdfast.apps.run.screen import Screen
from holdfast.apps.run.settings import MachineSettings, RunConfig, RunSettings
from holdfast.apps.run.start import started
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.jobs import JobPhase

NODES: Final = 2
SPARES: Final = 1

CONFIG: Final = RunConfig(machines=MachineSettings(boot_time=timedelta(seconds=1)))
"""Boot time of one second, so that a person sees a machine boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of the demo."""

    home: Path
    steps: int
    checkpoint_every: int
    seed: int
    use_torch: bool = False


class DemoStopped(HoldfastError):
    """A person stopped the demo."""

    def __init__(self, signum: int) -> None:
        super().__init__("the demo was stopped")
        self.signum = signum


def play(
    settings: DemoSettings,
    screen: Callable[[], Screen],
    reported: Callable[[str], None],
) -> DemoResult:
    """Run the job without faults, then with the faults of the story, and compare.

    Args:
        settings: settings of the demo.
        screen: returns the screen of a run; called once per run.
        reported: prints messages of the demo itself.

    Raises:
        ConfigError: a library that the job needs is missing.
        DemoStopped: a person stopped it.

    """
    _require("torch" if settings.use_torch else "numpy")
    begun = datetime.now(UTC)
    reported("1. The job, undisturbed.")
    with _run(settings, "demo-undisturbed", screen()) as (directory, _):
        undisturbed = _final(directory)
    reported(f"   weights {undisturbed or 'missing: the job failed'}")
    reported("2. The same job through four faults.")
    with _run(settings, "demo", screen(), reported) as (directory, injected):
        final = _final(directory)
        store = LocalStore(directory.state)
        record = store.jobs()["demo"][1]
        recoveries = recovered(injected, record.attempts, store.list_incidents())
        store.close()
    return DemoResult(
        ok=record.phase is JobPhase.SUCCEEDED
        and len(recoveries) == len(STORY)
        and final == undisturbed != "",
        steps=settings.steps,
        final_sha256=final,
        undisturbed_sha256=undisturbed,
        recoveries=recoveries,
        seconds=round((datetime.now(UTC) - begun).total_seconds(), 1),
    )


def command(settings: DemoSettings) -> Sequence[str]:
    """Return the command line of the job."""
    options = [
        "--steps", str(settings.steps),
        "--checkpoint-every", str(settings.checkpoint_every),
        "--seed", str(settings.seed),
    ]  # fmt: skip
    if not settings.use_torch:
        return [sys.executable, "-m", "holdfast.apps.demo.train_numpy", *options]
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return [*torchrun, "-m", "holdfast.apps.demo.train_torch", *options]


@contextmanager
def _run(
    settings: DemoSettings, name: str, screen: Screen, reported: Callable[[str], None] | None = None
) -> Iterator[tuple[RunDir, list[Injected]]]:
    run_settings = RunSettings(
        name=name,
        home=settings.home,
        command=command(settings),
        nodes=NODES,
        spares=SPARES if reported is not None else 0,
        config=CONFIG,
    )
    directory = RunDir(settings.home / "runs" / name)
    _forget(directory)
    with started(run_settings, screen, Follow.NONE) as (session, directory):
        story = Storyteller(
            run=directory,
            job=name,
            steps=settings.steps,
            acts=STORY if reported is not None else (),
            reported=lambda one: (
                reported(f"   >>> {one.fault} on {one.node}") if reported is not None else None
            ),
        )
        story.start()
        try:
            session.run()
        finally:
            story.stop()
        if session.stopped_by is not None:
            raise DemoStopped(session.stopped_by)
        yield directory, story.injected


def _forget(directory: RunDir) -> None:
    """Delete the checkpoints of an earlier demo, with which the job would end at once."""
    for path in sorted(directory.checkpoints.glob("*")):
        path.unlink()


def _final(directory: RunDir) -> str:
    """Return the SHA-256 of the final weights; empty if the job did not finish."""
    try:
        text = (directory.checkpoints / "final.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    return str(json.loads(text)["sha256"])


def _require(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        extra = "torch" if library == "torch" else "demo"
        raise ConfigError(
            f"the demo needs {library}, which is not installed; install it with: "
            f"pip install 'holdfast[{extra}]'"
        )
