"""Random disturbances: ``python -m tests.chaos --schedules 200 --seed 1 --minutes 30``.

Needs root. Prints a table, and ends with exit code 1 if a law was broken, after the schedule that
broke it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import click

TESTS: Final = Path(__file__).parents[1]
sys.path[:0] = [
    str(TESTS / name) for name in ("slurm", "local", "kubernetes", "apps", "realnodes")
]  # as pytest does for their own tests

from tests.chaos.on_cluster import ClusterUnderChaos  # noqa: E402
from tests.chaos.on_kubernetes import NEEDED, KubernetesUnderChaos  # noqa: E402
from tests.chaos.on_local import LocalUnderChaos  # noqa: E402
from tests.chaos.on_nodes import NEEDED as NEEDED_FOR_NODES  # noqa: E402
from tests.chaos.on_nodes import NodesUnderChaos  # noqa: E402
from tests.chaos.on_slurm import SlurmUnderChaos  # noqa: E402
from tests.chaos.results import MINUTES, Results, continued, table, write_results  # noqa: E402
from tests.chaos.schedules import Broken, Subject, schedule  # noqa: E402
from tests.engines.slurm_cluster import installed_slurm  # noqa: E402
from tools.control_plane import provide  # noqa: E402

_INSIDE: Final = "HOLDFAST_CHAOS_INSIDE"
_EACH: Final = 20
"""Schedules of one cluster, after which a node breaks for real and the job ends."""


@contextmanager
def _local(folder: Path) -> Iterator[Subject]:
    with LocalUnderChaos(folder) as subject:
        yield subject


@contextmanager
def _cluster(folder: Path) -> Iterator[Subject]:
    with ClusterUnderChaos(folder) as subject:
        yield subject


@contextmanager
def _slurm(folder: Path) -> Iterator[Subject]:
    with SlurmUnderChaos(installed_slurm(), folder) as subject:
        yield subject


@contextmanager
def _kubernetes(folder: Path) -> Iterator[Subject]:
    with KubernetesUnderChaos(provide(*NEEDED), folder) as subject:
        yield subject


@contextmanager
def _nodes(folder: Path) -> Iterator[Subject]:
    with NodesUnderChaos(provide(*NEEDED_FOR_NODES), folder) as subject:
        yield subject


PLATFORMS: Final[dict[str, Callable[[Path], AbstractContextManager[Subject]]]] = {
    "local": _local,
    "cluster": _cluster,
    "slurm": _slurm,
    "kubernetes": _kubernetes,
    "nodes": _nodes,
}


def run_some(platform: str, seeds: list[int], deadline: float, results: Results) -> bool:
    """Run schedules on one cluster; returns whether all laws held."""
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{platform}-"))
    seed, steps, began = None, (), time.monotonic()
    try:
        with PLATFORMS[platform](folder) as subject:
            for seed in seeds:
                if time.monotonic() > deadline:
                    break
                steps = schedule(seed, subject.kinds)
                for one in steps:
                    subject.apply(one)
                subject.check()
                results[platform, "schedules"] += 1
                results.update((platform, one.kind) for one in steps)
            subject.finish()
            results[platform, "real faults repaired"] += 1
    except (Broken, AssertionError) as error:
        results[platform, "broken"] += 1
        click.echo(f"{platform}, seed {seed}: {error}")
        for one in steps:
            click.echo(f"  {one}")
        return False
    finally:
        results[platform, MINUTES] += round((time.monotonic() - began) / 60)
        shutil.rmtree(folder, ignore_errors=True)
    return True


@click.command()
@click.option("--schedules", default=200, help="Number of schedules, over all platforms.")
@click.option("--seed", default=1, help="Seed of the first schedule.")
@click.option("--minutes", default=60.0, help="No schedule begins later than that.")
@click.option("--platform", "platforms", type=click.Choice(list(PLATFORMS)), multiple=True)
@click.option("--record", is_flag=True, help="Write the results to the file that the docs show.")
@click.option("--add", is_flag=True, help="With --record: add them to those in the file.")
def main(
    schedules: int,
    seed: int,
    minutes: float,
    platforms: tuple[str, ...],
    record: bool,
    add: bool,
) -> None:
    """Disturb Holdfast at random, and check that nothing healthy is repaired and no job lost."""
    if os.geteuid() != 0:
        raise click.ClickException("run this as root: it mounts file systems")
    if _INSIDE not in os.environ:  # a mount namespace of its own, which ends with it
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m"]
        inside = {**os.environ, _INSIDE: "1"}
        done = subprocess.run([*command, "tests.chaos", *sys.argv[1:]], env=inside, check=False)
        sys.exit(done.returncode)
    deadline = time.monotonic() + minutes * 60
    names = platforms or tuple(PLATFORMS)
    results: Results = continued(names) if add else Counter()
    seeds = [range(seed + n, seed + schedules, len(names)) for n in range(len(names))]
    all_held = True
    for first in range(0, max(map(len, seeds)), _EACH):
        for name, own in zip(names, seeds, strict=True):
            some = list(own[first : first + _EACH])
            if some and time.monotonic() < deadline:
                all_held &= run_some(name, some, deadline, results)
                click.echo(table(results, names))
                if record:
                    write_results(results, names)
    sys.exit(0 if all_held else 1)


if __name__ == "__main__":
    main()
