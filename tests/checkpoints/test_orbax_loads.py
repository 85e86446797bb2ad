"""What Orbax does with changed JSON files, beside what ``holdfast checkpoint verify`` reports."""

import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from effort import is_quick
from installed import skip_without
from orbax_changes import FILES, changes
from recorded import content, verified

from holdfast.model.checkpoints import CheckpointState, Depth
from tests.engines.framework_environments import environment_of

SCRIPT = Path(__file__).parent / "frameworks" / "load_orbax_changed.py"

UNKNOWN = re.compile(
    r"_sharding .*/(device_str text|mesh/\d/\d/id number)"  # devices of another machine
    r"|.*/(sharding_type|value_type|random_key_impl) text"  # a kind of a later release
    r"|_METADATA tree_metadata/\('(numbers|step|nothing|empty)',\) gone"  # no array of JAX
    r"|_METADATA use_zarr3 other"
)
"""Changes that are not visible in the files, although Orbax fails on them or loads other values."""

ABORTED = -signal.SIGABRT

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def orbax(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Checkpoints that Orbax wrote, and what it made of changes to the newest one."""
    skip_without("torch")  # the environments of frameworks have the same release
    folder = tmp_path_factory.mktemp("orbax") / "run"
    python, every = environment_of("orbax") / "bin/python", 40 if is_quick() else 1
    outcomes: dict[str, str] = {}
    first, code = 0, ABORTED
    while code == ABORTED:
        command = [str(python), str(SCRIPT), str(folder), str(every), str(first)]
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        outcomes |= {name: made for _, name, made in lines}
        code = done.returncode
        first = lines[-1][0] + every
    assert code == 0, done.stderr
    return folder, outcomes


def test_what_orbax_does_not_load_is_reported(orbax: tuple[Path, dict[str, str]]) -> None:
    folder, outcomes = orbax
    wrong, seen = [], Counter()
    for file in FILES:
        path = folder / "2/default" / file
        whole = path.read_text()
        for name, text in changes(file, whole):
            if name in outcomes:
                path.write_text(text)
                is_seen = verified(folder, "2", Depth.HASHES).is_broken
                seen[outcomes[name], is_seen] += 1
                if outcomes[name] != "loaded" and not is_seen and not UNKNOWN.fullmatch(name):
                    wrong.append((name, outcomes[name]))
        path.write_text(whole)

    assert not wrong, (len(wrong), wrong[:20])
    assert sum(seen.values()) == len(outcomes) > 30
    assert seen["fails", True] > seen["fails", False]


@pytest.mark.parametrize("step", ["1", "2"])
def test_what_orbax_saves_is_complete(orbax: tuple[Path, dict[str, str]], step: str) -> None:
    """Also arrays on several devices, random keys, and values that are only a type."""
    before = content(orbax[0])

    one = verified(orbax[0], step, Depth.HASHES)
    assert (one.state, one.problems) == (CheckpointState.COMPLETE, ())
    assert content(orbax[0]) == before


def test_a_first_checkpoint_is_verified_without_another(
    orbax: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    shutil.copytree(orbax[0] / "1", tmp_path / "run/1")
    assert verified(tmp_path / "run", "1").problems == ()
    path = tmp_path / "run/1/default/_sharding"
    shardings = json.loads(path.read_text())
    names = list(shardings)
    shardings["bGF5ZXIudg=="] = shardings.pop(names[0])
    path.write_text(json.dumps(shardings))

    [text] = verified(tmp_path / "run", "1").problems
    assert text == "default/_sharding names layer.v, which is not in _METADATA"
