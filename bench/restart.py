"""From a killed rank or a lost node to the next step of training, for several launchers.

The same script, a small GPT under DDP on gloo, runs under each launcher: two ranks on one node, or
two nodes of one rank each and a third node. It needs no change for any of them.
"""

import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from bench.disturbed_run import percentile
from bench.figure import Figure
from bench.restart_launchers import LAUNCHERS, Launcher, install, uv
from bench.training_job import JobEnded, TrainingJob

BY_NAME_ONLY = "it installs other launchers and takes minutes"
SAMPLES = 3
_COLD_SHARE: Final = 0.5
_WARM_SHARE: Final = 0.15
_BLOCK: Final = 5
"""Faults of one launcher in a row. They take turns, so that the load of the machine hits all."""

_REST_S: Final = 5.0
_FAULTS: Final = {"killed rank": TrainingJob.kill_rank, "lost node": TrainingJob.lose_node}

Samples = dict[tuple[str, str], list[float]]


def lacks() -> str:
    """What is missing."""
    try:
        import torch  # noqa: F401, PLC0415
        import transformers  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        return f"the Python package {error.name} is not installed: make frameworks"
    return "" if uv() else "uv is not installed: make frameworks"


def run(*, quick: bool = False, samples: int = 0) -> list[Figure]:
    """Cause each fault ``samples`` times under each launcher."""
    total = samples or (1 if quick else SAMPLES)
    seconds: Samples = defaultdict(list)
    rest: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        launchers = []
        for one in LAUNCHERS:
            try:
                launchers.append(install(one, Path(folder)))
            except RuntimeError as error:
                print(f"not measured: {error}", file=sys.stderr)
        for fault in _FAULTS:
            for done in range(0, total, _BLOCK):
                for launcher in launchers:
                    count = min(_BLOCK, total - done)
                    _measure(launcher, fault, count, seconds, rest)
    load = os.getloadavg()[2]
    print(f"load average of the last 15 minutes: {load:.1f} on {os.cpu_count()} CPUs")
    return [*_times(seconds), *_at_rest(rest)]


def _measure(launcher: Launcher, fault: str, count: int, seconds: Samples, rest: Samples) -> None:
    if fault == "lost node" and not launcher.has_spare:
        return
    with tempfile.TemporaryDirectory() as folder:
        job = TrainingJob(launcher, Path(folder), has_nodes=fault == "lost node")
        try:
            job.start()
            if fault == "killed rank":
                memory, cpu = job.at_rest(_REST_S)
                rest[launcher.name, "memory"].append(memory)
                rest[launcher.name, "CPU"].append(100 * cpu)
            for _ in range(count):
                seconds[launcher.name, fault].append(_FAULTS[fault](job))
                print(
                    f"{launcher.name}, {fault}: {seconds[launcher.name, fault][-1]:.2f} s",
                    file=sys.stderr,
                )
                job.settle()
        except JobEnded as error:
            print(f"not measured: {fault}: {error}", file=sys.stderr)
        finally:
            job.close()


def _times(seconds: Samples) -> list[Figure]:
    figures = []
    for fault in _FAULTS:
        peers = [
            statistics.median(seconds[one.name, fault])
            for one in LAUNCHERS
            if one.is_peer and seconds[one.name, fault]
        ]
        for launcher in LAUNCHERS:
            values = seconds[launcher.name, fault]
            if not values:
                continue
            share = {"holdfast launch": _COLD_SHARE, "holdfast launch --warm": _WARM_SHARE}.get(
                launcher.name
            )
            goal = share * min(peers) if share and peers else None
            name = f"{launcher.name}, {fault}"
            count = len(values)
            median, high = statistics.median(values), percentile(values, 0.95)
            figures += [
                Figure(name=f"{name}, median of {count}", value=median, unit="s", goal=goal),
                Figure(name=f"{name}, p95", value=high, unit="s", goal=None),
            ]
    return figures


def _at_rest(rest: Samples) -> list[Figure]:
    units = {"memory": "MiB", "CPU": "%"}
    return [
        Figure(
            name=f"{name}, {what} at rest", value=statistics.median(values), unit=units[what],
            goal=None,
        )
        for (name, what), values in rest.items()
    ]  # fmt: skip
