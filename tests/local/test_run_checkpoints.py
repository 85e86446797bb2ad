"""``holdfast run`` verifies checkpoints before each attempt."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from holdfast.apps.main import run as main
from tests.engines.matrix import outcome_of
from tools.fault_matrix import LOCAL

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
    run, tmp_path, unpack, matrix
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
    [incident] = incidents(run)
    evidence = incident["checkpoint"]
    assert (incident["node"], incident["job"], incident["state"]) == ("", "job", "quarantined")
    assert (evidence["name"], evidence["step"], evidence["state"]) == ("step_3", 3, "damaged")
    assert (evidence["resumed"], evidence["attempt"], evidence["attempts"]) == ("step_2", 2, [1])
    assert evidence["problems"][0].startswith("__1_0.distcp has 1000 bytes instead of")
    shown = run.holdfast("incidents", "show", incident["id"]).stdout
    assert "__1_0.distcp has 1000 bytes" in shown
    [release] = [line for line in shown.splitlines() if " put it back if it is good: " in line]
    done = run.holdfast(*shlex.split(release.rpartition(": holdfast ")[2]))
    assert done.returncode == 0, done.stderr
    assert (folder / "step_3").is_dir()
    matrix.record("damaged-checkpoint", f"{LOCAL}/processes", outcome_of(run.record()))


def incidents(run) -> list[dict]:
    """The incidents of the run, as the command prints them."""
    return json.loads(run.holdfast("incidents", "list", "--output", "json").stdout)


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


LOAD_NEWEST = """
import os, pathlib, zipfile
newest = max(pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]).glob("checkpoint_*"))
with zipfile.ZipFile(newest) as file:
    for name in file.namelist():
        file.read(name)
print("loaded", newest.name)
"""


def test_all_checksums_are_compared_after_an_attempt_that_could_not_read_its_checkpoint(
    run, tmp_path, unpack
):
    folder = unpack("torch_save", tmp_path / "recording") / "zip"
    *_, oldest, before, newest = sorted(folder.glob("checkpoint_*"))
    for damaged in (before, newest):
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)
    config = tmp_path / "run.toml"
    config.write_text("[checkpoints]\nwatch = false\n")

    options = ("--config", str(config), "--checkpoint-dir", str(folder), "--max-app-retries", "1")
    ended = run.run(*options, "--", sys.executable, "-c", LOAD_NEWEST)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"loaded {oldest.name}" in run.dir.log(2, 0).read_text()
    lines = [line for line in ended.stdout.splitlines() if "before attempt 2" in line]
    began, *moved, _, chosen = lines
    assert began.endswith("comparing checksums: the attempt before could not read its checkpoint")
    for line, one in zip(moved, (newest, before), strict=True):
        assert f"{one.name} is damaged: has a wrong checksum in record" in line
    assert f"{oldest.name} is complete (sizes and checksums)" in chosen


def test_what_is_not_recognized_is_left_alone(run, tmp_path):
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "step-1.npz").write_bytes(b"data")
    script = "import os, sys; sys.exit(os.environ['HOLDFAST_ATTEMPT'] == '1')"

    ended = run.run("--checkpoint-dir", str(folder), "--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "step-1.npz: no checkpoint of a known format; nothing was changed" in ended.stdout
    assert [path.name for path in folder.iterdir()] == ["step-1.npz"]


FAIL_SOON_AFTER_STEP_3 = """
import os, pathlib, sys
names = sorted(path.name for path in pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]).iterdir())
print(*names)
sys.exit("step_3" in names)
"""


def test_a_checkpoint_after_which_two_attempts_fail_is_set_aside(run, tmp_path, unpack):
    folder = unpack("dcp", tmp_path / "recording") / "sync"

    ended = run.run(
        *("--checkpoint-dir", str(folder), "--", sys.executable, "-c", FAIL_SOON_AFTER_STEP_3)
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    texts = [run.dir.log(attempt, 0).read_text().split() for attempt in (1, 2, 3)]
    assert texts == [["step_1", "step_2", "step_3"]] * 2 + [["step_1", "step_2"]]
    aside = tmp_path / "recording/sync.set-aside/step_3"
    assert aside.is_dir()
    [incident] = incidents(run)
    evidence = incident["checkpoint"]
    assert (evidence["state"], evidence["attempts"], evidence["attempt"]) == (
        "suspected",
        [1, 2],
        3,
    )
    assert evidence["problems"][0].startswith("2 attempts failed on healthy nodes")
    suspected, chosen = [line for line in ended.stdout.splitlines() if "before attempt 3" in line]
    assert "step_3 is complete, but suspected: 2 attempts failed on healthy nodes" in suspected
    assert "before they saved another one: 1, 2 (RankExited); moved to" in suspected
    assert suspected.endswith(f"holdfast checkpoint release {folder} step_3")
    assert "step_2 is complete" in chosen
    assert "; the job repeats 1 step" in chosen


def test_an_attempt_waits_for_a_person_where_the_rollback_would_be_too_far(run, tmp_path, unpack):
    folder = unpack("dcp", tmp_path / "recording") / "sync"
    os.utime(folder / "step_3/.metadata")
    os.truncate(folder / "step_3/__1_0.distcp", 1000)
    config = tmp_path / "run.toml"
    config.write_text('[jobs]\nlaunch_timeout = "1s"\n[checkpoints]\nmax_rollback = "1m"\n')

    command = ["--config", str(config), "--max-app-retries", "0", "--checkpoint-dir", str(folder)]
    ended = run.run(*command, "--", sys.executable, "-c", "")

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "more than 1m; nothing was changed, and the job waits" in ended.stdout
    assert f"accept with: holdfast checkpoint choose {folder} step_2" in ended.stdout
    assert (folder / "step_3").is_dir()
    assert not run.dir.log(1, 0).exists()


WAIT_AND_DAMAGE = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
print(*sorted(path.name for path in folder.iterdir()))
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    while not (folder.parent / f".{folder.name}.holdfast-manifest.checkpoint-4").exists():
        time.sleep(0.05)
    path = folder / "checkpoint-6" / "model.safetensors"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    sys.exit(1)
"""


def test_a_bit_that_flips_after_the_save_is_found_without_reading_all(run, tmp_path, unpack):
    folder = unpack("hf_trainer", tmp_path / "recording") / "one_file"

    ended = run.run("--checkpoint-dir", str(folder), "--", sys.executable, "-c", WAIT_AND_DAMAGE)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "checkpoint-6" not in run.dir.log(2, 0).read_text().split()
    assert "checkpoint-6 is damaged: model.safetensors: checksum of bytes 0 to" in ended.stdout
    assert "blocks as in the manifest of" in ended.stdout
    assert "checkpoint-6: complete" in run.dir.watch_log.read_text()


LOSE_ALL = """
import os, pathlib, shutil, sys
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
print(*sorted(path.name for path in folder.iterdir()))
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    for path in folder.glob("*/__1_0.distcp"):
        os.truncate(path, 1000)
    sys.exit(1)
"""


def test_a_copy_is_restored_if_no_good_checkpoint_is_left(run, tmp_path, unpack):
    folder = unpack("dcp", tmp_path / "recording") / "sync"
    copies = tmp_path / "copies"
    assert main(["checkpoint", "mirror", str(folder), str(copies), "--once", "--keep", "2"]) == 0
    config = tmp_path / "run.toml"
    config.write_text(f'[checkpoints]\nrestore_from = "{copies}"\n')

    command = ["--config", str(config), "--checkpoint-dir", str(folder), "--", sys.executable]
    ended = run.run(*command, "-c", LOSE_ALL)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert run.dir.log(2, 0).read_text().split() == ["step_3"]
    assert f"no good checkpoint was left; step_3 was restored from {copies}" in ended.stdout
    evidence = [one["checkpoint"] for one in incidents(run)]
    assert [one["name"] for one in evidence] == ["step_3", "step_2", "step_1"]
    assert {one["resumed"] for one in evidence} == {"step_3"}
    assert (tmp_path / "recording/sync.set-aside/step_3").is_dir()
