"""``holdfast run`` verifies checkpoints before each attempt."""

import sys
from pathlib import Path

import pytest

RECORDINGS = Path(__file__).parents[1] / "checkpoints"

DAMAGE_AND_FAIL = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
print(*sorted(path.name for path in folder.iterdir()))
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    os.truncate(folder / "step_3/__1_0.distcp", 1000)
    sys.exit(1)
"""


@pytest.fixture
def unpack(monkeypatch):
    monkeypatch.syspath_prepend(str(RECORDINGS))
    from recorded import unpacked  # noqa: PLC0415 - from the folder of its tests

    return unpacked


def test_an_attempt_resumes_from_an_older_checkpoint_and_a_line_each_says_why(
    run, tmp_path, unpack
):
    folder = unpack("dcp", tmp_path / "recording") / "sync"

    ended = run.run("--checkpoint-dir", str(folder), "--", sys.executable, "-c", DAMAGE_AND_FAIL)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    texts = [run.dir.log(attempt, 0).read_text().split() for attempt in (1, 2)]
    assert texts == [["step_1", "step_2", "step_3"], ["step_1", "step_2"]]
    broken, chosen = [line for line in ended.stdout.splitlines() if "before attempt 2" in line]
    assert "step_3 is damaged: __1_0.distcp has 1000 bytes instead of" in broken
    assert broken.endswith("; moved to " + str(tmp_path / "recording/sync.set-aside/step_3"))
    assert "step_2 is complete (sizes only; checksums not compared, set jobs.check" in chosen
    assert (tmp_path / "recording/sync.set-aside/step_3").is_dir()


def test_checksums_are_compared_before_an_attempt_where_the_configuration_says_so(
    run, tmp_path, unpack
):
    folder = unpack("torch_save", tmp_path / "recording") / "zip"
    newest = max(folder.glob("checkpoint_*"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    config = tmp_path / "run.toml"
    config.write_text('[jobs]\ncheckpoint_depth = "hashes"\n')

    command = ["--config", str(config), "--checkpoint-dir", str(folder), "--", sys.executable]
    ended = run.run(*command, "-c", "")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{newest.name} is damaged: has a wrong checksum in record" in ended.stdout
    assert "is complete (sizes and checksums); the script should load it" in ended.stdout
    assert not newest.exists()


def test_what_is_not_recognised_is_left_alone(run, tmp_path):
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "step-1.npz").write_bytes(b"data")
    script = "import os, sys; sys.exit(os.environ['HOLDFAST_ATTEMPT'] == '1')"

    ended = run.run("--checkpoint-dir", str(folder), "--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "step-1.npz: no checkpoint of a known format; nothing was changed" in ended.stdout
    assert [path.name for path in folder.iterdir()] == ["step-1.npz"]
