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

from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.demo.faults import DAMAGE, FAULTS, HANG, FaultInjector, Injected, PlannedFault
from holdfast.apps.demo.outcome import DemoResult, recovered
from holdfast.apps.run.logs import Follow
from holdfast.apps.run.screen import Screen
from holdfast.apps.run.settings import LocalJobPolicy, MachineSettings, RunConfig, RunSettings
from holdfast.apps.run.start import started
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.jobs import JobPhase

NODES: Final = 2
SPARES: Final = 1

CONFIG: Final = RunConfig(
    machines=MachineSettings(boot_time=timedelta(seconds=1)),
    jobs=LocalJobPolicy(checkpoint_depth=Depth.HASHES),
)
"""Boot time of one second, so that a person sees a machine boot. Checkpoints are small, so that
their checksums can be compared."""

_HANG_TIMEOUT: Final = timedelta(seconds=5)
"""Shorter than the time after which the job itself gives up a silent rank; steps take
milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of the demo."""

    home: Path
    steps: int
    checkpoint_every: int
    seed: int
    use_torch: bool = False
    damage: bool = False
    """Whether the newest checkpoint is damaged and its node loses power, instead of four faults."""

    hang: bool = False
    """Whether a rank is stopped by SIGSTOP, so that the job hangs, instead of four faults."""

    @property
    def faults(self) -> tuple[PlannedFault, ...]:
        """Return the faults."""
        if self.hang:
            return HANG
        return DAMAGE if self.damage else FAULTS

    @property
    def fault_summary(self) -> str:
        """Return the faults for people to read."""
        if self.hang:
            return "a hang"
        return "a damaged checkpoint and a power failure" if self.damage else "four faults"


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
    """Run the job without faults, then with the planned faults, and compare.

    Args:
        settings: settings of the demo.
        screen: returns the screen of a run; called once per run.
        reported: prints messages of the demo itself.

    Raises:
        ConfigError: a library that the job needs is missing.
        DemoStopped: a person stopped it.

    """
    require("torch" if settings.use_torch else "numpy")
    begun = datetime.now(UTC)
    reported("1. The job without faults.")
    with _run(settings, "demo-reference", screen()) as (directory, _):
        reference = final_weights(directory.checkpoints)
    reported(f"   weights {reference or 'missing: the job failed'}")
    reported(f"2. The same job with {settings.fault_summary}.")
    with _run(settings, "demo", screen(), reported) as (directory, injected):
        final = final_weights(directory.checkpoints)
        store = LocalStore(directory.state)
        record = store.jobs()["demo"][1]
        recoveries = recovered(injected, record.attempts, store.list_incidents())
        store.close()
        damaged, resumed_from = _fallback(directory, injected)
        verdict = _verdict(directory, injected) if settings.hang else ""
    return DemoResult(
        ok=record.phase is JobPhase.SUCCEEDED
        and len(recoveries) == len(settings.faults)
        and final == reference != ""
        and (not settings.damage or "" != damaged > resumed_from > "")
        and bool(verdict) == settings.hang,
        steps=settings.steps,
        final_sha256=final,
        reference_sha256=reference,
        recoveries=recoveries,
        seconds=round((datetime.now(UTC) - begun).total_seconds(), 1),
        damaged=damaged,
        resumed_from=resumed_from,
        verdict=verdict,
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
        hang_timeout=_HANG_TIMEOUT if settings.hang else None,
    )
    directory = RunDir(settings.home / "runs" / name)
    delete_checkpoints(directory)
    with started(run_settings, screen, Follow.NONE) as (session, directory):
        injector = FaultInjector(
            run=directory,
            job=name,
            steps=settings.steps,
            planned=settings.faults if reported is not None else (),
            reported=lambda one: reported(_injected(one)) if reported is not None else None,
        )
        injector.start()
        try:
            session.run()
        finally:
            injector.stop()
        if session.stopped_by is not None:
            raise DemoStopped(session.stopped_by)
        yield directory, injector.injected


def _injected(one: Injected) -> str:
    text = f"   >>> {one.fault} on {one.node}"
    return f"{text}, one bit flipped in {one.damaged}" if one.damaged else text


def _fallback(directory: RunDir, injected: Sequence[Injected]) -> tuple[str, str]:
    """Return the damaged checkpoint, and the one that the next attempt resumed from."""
    one = next((one for one in injected if one.damaged), None)
    if one is None:
        return "", ""
    attempts = read_history(directory.checkpoints).attempts
    later = [each.checkpoint for each in attempts if each.attempt == one.attempt + 1]
    return one.damaged, later[-1] if later else ""


def _verdict(directory: RunDir, injected: Sequence[Injected]) -> str:
    """Return which rank the hung attempt waited for; empty if that was not found."""
    for one in injected:
        file = directory.evidence(one.attempt)
        if file.is_file():
            return str(json.loads(file.read_text(encoding="utf-8"))["verdict"]["text"])
    return ""


def delete_checkpoints(directory: RunDir) -> None:
    """Delete the checkpoints of an earlier demo, with which the job would end at once."""
    for path in sorted(directory.checkpoints.glob("*")):
        path.unlink()


def final_weights(checkpoints: Path) -> str:
    """Return the SHA-256 of the final weights; empty if the job did not finish."""
    try:
        text = (checkpoints / "final.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    return str(json.loads(text)["sha256"])


def require(library: str) -> None:
    """Raise ``ConfigError`` if a library is not installed."""
    if importlib.util.find_spec(library) is None:
        extra = "torch" if library == "torch" else "demo"
        raise ConfigError(
            f"the demo needs {library}, which is not installed; install it with: "
            f"pip install 'holdfast[{extra}]'"
        )
