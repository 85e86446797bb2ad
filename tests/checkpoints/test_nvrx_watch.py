"""``holdfast checkpoint watch`` while NVRx saves and deletes local checkpoints."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from effort import is_quick
from installed import skip_without
from recorded import content

from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.apps.run.checkpoint_watch import watch_of
from tests.engines.framework_environments import ROOT, environment_of

SCRIPT = Path(__file__).parent / "frameworks" / "save_nvrx.py"
ITERATIONS, DEADLINE_S = 400, 600


def started(what: str, folder: Path) -> subprocess.Popen[str]:
    python = str(environment_of("nvrx") / "bin/python")
    return subprocess.Popen(
        [python, str(SCRIPT), what, str(folder), str(ITERATIONS)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


if not is_quick():  # builds an environment

    @pytest.mark.frameworks
    def test_the_watch_has_a_manifest_of_what_nvrx_keeps(tmp_path: Path) -> None:
        skip_without("torch")  # the environments of frameworks have the same release
        folder = tmp_path / "session"
        folder.mkdir()
        watch, last = watch_of(folder, None), f"iter_{ITERATIONS:07d}"
        saving = started("save", folder)
        rounds, found = 0, None
        end = time.monotonic() + DEADLINE_S
        while saving.poll() is None or found is None or found.name != last:
            done = watch.run_once()
            rounds, found = rounds + 1, done.verified or found
            assert done.damaged == ()
            assert time.monotonic() < end, found
            time.sleep(0.01)
        _, errors = saving.communicate()
        assert saving.returncode == 0, errors
        assert rounds > 1
        assert found.is_good
        assert DirectoryManifests(folder).names() == {last}
        assert [file.path for file in found.files] == sorted(content(folder).keys() - {"0", "1"})

        loading = started("load", folder)
        _, errors = loading.communicate(timeout=DEADLINE_S)
        assert loading.returncode == 0, errors
