"""``holdfast checkpoint watch``: checkpoints of real frameworks, damaged after or before it."""

import json
import math
import os
import struct
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RECORDINGS, content, flip, keeping_times, unpacked

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.nonfinite import BF16, F16, F32, F64, FloatKind, scan
from holdfast.adapters.checkpoints.plain_files import CHUNK, opened
from holdfast.adapters.checkpoints.weights import scan_weights
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.apps.run.checkpoint_watch import watch_of
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.engine.checkpoint_guard import GuardResult, guard
from holdfast.engine.checkpoint_watch import WatchRound
from holdfast.model.checkpoint_manifests import BLOCK, CheckpointManifest
from holdfast.model.checkpoints import CheckpointState, Depth
from tests.engines.ports import free_port

NAN = b"\x00\x00\xc0\x7f"
KINDS = {"bf16": BF16, "f16": F16, "f32": F32, "f64": F64}


def watched(folder: Path) -> dict[str, CheckpointManifest]:
    """Watch a directory until nothing is left to do."""
    connected, found = watch_of(folder, None), {}
    while (done := connected.run_once()).verified is not None:
        found[done.verified.name] = done.verified
    assert done == WatchRound()
    return found


def guarded(folder: Path, depth: Depth = Depth.SIZES) -> GuardResult:
    return guard(CheckpointDirectory(folder, sample=SAMPLE), depth, quiet_since=None)


def newest(folder: Path) -> Path:
    return folder / CheckpointDirectory(folder).survey().checkpoints[0].name


def put_nan(path: Path) -> None:
    """Overwrite four bytes of the last tensor of a safetensors file with NaN."""
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(NAN)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    values=st.lists(st.floats(width=16, allow_nan=False), max_size=40),
    bad=st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["nan", "-nan", "inf", "-inf"]))),
)
def test_a_scan_finds_nan_and_infinity_of_every_type(
    kind: str, values: list[float], bad: list[tuple[int, str]], tmp_path_factory
) -> None:
    for at, text in bad:
        values[at : at + 1] = [float(text)]
    formats = {"bf16": "<f", "f16": "<e", "f32": "<f", "f64": "<d"}
    packed = [struct.pack(formats[kind], value) for value in values]
    data = b"".join(one[2:] if kind == "bf16" else one for one in packed)
    path = tmp_path_factory.getbasetemp() / "numbers"
    path.write_bytes(data)

    with opened(path) as window:
        found = scan(window, KINDS[kind])

    assert found.has_nan == any(math.isnan(value) for value in values)
    if not found.has_nan:
        assert found.has_infinity == any(abs(value) == float("inf") for value in values)


@pytest.mark.parametrize("kind", [BF16, F16, F32, F64])
def test_a_nan_at_the_edge_of_a_chunk_is_found(kind: FloatKind, tmp_path: Path) -> None:
    data = bytearray(2 * CHUNK)
    path = tmp_path / "numbers"
    for at in (0, CHUNK - kind.width, CHUNK, 2 * CHUNK - kind.width):
        data[at : at + kind.width] = (kind.exponent + 1).to_bytes(kind.width, "little")
        path.write_bytes(data)
        with opened(path) as window:
            assert scan(window, kind).has_nan
        data[at : at + kind.width] = bytes(kind.width)


UNREAD_WEIGHTS = {"orbax", "ray-train"}
"""Formats whose weights are not searched: they are compressed, or files of the user's choice.

Neither are those that DLRover writes for FSDP, as bytes without a header.
"""


@pytest.mark.parametrize("recording", sorted(path.name[:-7] for path in RECORDINGS.iterdir()))
def test_checkpoints_of_every_framework_get_a_manifest(recording: str, tmp_path: Path) -> None:
    for folder in sorted(unpacked(recording, tmp_path).iterdir()):
        if not folder.is_dir():
            continue
        before = content(folder)
        names = [one.name for one in CheckpointDirectory(folder).survey().checkpoints][:3]

        found = watched(folder)

        assert set(found) == set(names)
        for manifest in found.values():
            assert manifest.is_good, manifest
            is_searched = manifest.weights.scanned > 0
            is_unread = "legacy" in folder.name or folder.name == "fsdp"
            assert is_searched or is_unread or manifest.format in UNREAD_WEIGHTS
        assert watched(folder) == {}, "a manifest is written once"
        assert content(folder) == before
        chosen = guarded(folder)
        assert not chosen.has_changes
        assert chosen.before.checkpoints[0].compared > 0


def flip_weights(path: Path) -> None:
    flip(path / "model.safetensors", (path / "model.safetensors").stat().st_size - 1)


@pytest.mark.parametrize("depth", Depth)
@pytest.mark.parametrize("is_dated", [False, True])
def test_damage_after_the_watch_is_found_where_the_format_has_no_checksum(
    depth: Depth, is_dated: bool, tmp_path: Path
) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    watched(folder)
    last = newest(folder)
    if is_dated:
        flip_weights(last)
    else:
        keeping_times(last / "model.safetensors", lambda: flip_weights(last))

    found = guarded(folder, depth)

    broken = found.before.checkpoints[0]
    assert broken.state is CheckpointState.DAMAGED
    assert "model.safetensors" in broken.problems[0]
    assert found.choice.resume == found.before.checkpoints[1]
    assert (found.choice.outcome, found.choice.aside) == (ResumeOutcome.RESUME, (broken,))


def test_damage_before_the_watch_is_remembered(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    path = folder / "checkpoint_000300.pt"
    (folder / "latest.pt").unlink()
    keeping_times(path, lambda: flip(path, path.read_bytes().index(b"data/0") + 200))
    assert not guarded(folder).has_changes, "sizes do not show it"

    assert watched(folder)[path.name].state is CheckpointState.DAMAGED
    found = guarded(folder)

    assert found.choice.aside[0].name == path.name
    assert "wrong checksum" in found.choice.aside[0].problems[0]
    manifests = DirectoryManifests(folder)
    assert manifests.names() >= {path.name}, "it may be put back"
    watched(folder)
    assert manifests.names() >= {path.name}


def test_a_checkpoint_with_nan_is_passed_over_until_a_person_puts_it_back(
    tmp_path: Path, capsys
) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    last = newest(folder)
    keeping_times(last / "model.safetensors", lambda: put_nan(last / "model.safetensors"))

    assert run(["checkpoint", "watch", str(folder), "--once", "--cpu-limit", "100"]) == (
        ExitCode.FAILED
    )
    err = capsys.readouterr().err
    assert f"{last.name}: complete, but suspected" in err
    assert "NaN in model.safetensors: " in err
    assert run(["checkpoint", "verify", str(folder), "--job-stopped"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert f"{last.name} is complete, but suspected: NaN in model.safetensors" in out
    assert not last.exists()

    assert run(["checkpoint", "release", str(folder), last.name]) == ExitCode.OK
    assert run(["checkpoint", "verify", str(folder), "--job-stopped"]) == ExitCode.OK
    assert last.exists()


def test_nan_alone_does_not_end_a_job(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    for one in folder.iterdir():
        path = one / "model.safetensors"
        keeping_times(path, lambda path=path: put_nan(path))
    watched(folder)

    found = guarded(folder)

    assert found.choice.resume == found.before.checkpoints[0]
    assert not found.has_changes


def test_a_later_save_of_the_same_name_is_not_compared_with_the_old_manifest(
    tmp_path: Path,
) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    last = newest(folder)
    watched(folder)
    keeping_times(last / "model.safetensors", lambda: flip_weights(last))
    for path in last.iterdir():
        at = path.stat().st_mtime_ns + 1_000_000_000
        os.utime(path, ns=(at, at))

    assert guarded(folder).before.checkpoints[0].watched_at is None
    assert set(watched(folder)) == {last.name}


def test_a_setting_that_a_person_edits_is_no_damage(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    watched(folder)
    settings = newest(folder) / "config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "use_cache": False}))

    assert not guarded(folder).has_changes


def test_a_save_that_changes_is_left_for_later(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    path = folder / "checkpoint_000300.pt"
    later = time.time() + 600  # so that it still changes however long this takes
    os.utime(path, (later, later))
    os.truncate(folder / "checkpoint_000200.pt", 5_000)

    assert path.name not in watched(folder)
    assert "checkpoint_000200.pt" not in DirectoryManifests(folder).names()


def test_the_manifest_of_a_deleted_checkpoint_is_deleted(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    (folder / "latest.pt").unlink()
    watched(folder)
    (folder / "checkpoint_000300.pt").unlink()
    watched(folder)

    assert "checkpoint_000300.pt" not in DirectoryManifests(folder).names()


@pytest.mark.parametrize("path", ["../../secret", "/etc/hostname", "a/../../b"])
def test_a_manifest_that_names_other_files_is_ignored(path: str, tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    watched(folder)
    manifests = DirectoryManifests(folder)
    file = next(folder.parent.glob(".zip.holdfast-manifest.checkpoint_000300.pt"))
    plain = json.loads(file.read_text())
    plain["files"][0]["path"] = path
    file.write_text(json.dumps(plain))

    assert manifests.read("checkpoint_000300.pt") is None


def test_the_blocks_of_a_large_file_are_all_compared_over_time(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch  # noqa: PLC0415 - only where it is installed

    folder = tmp_path / "ckpt"
    folder.mkdir()
    torch.save({"weight": torch.zeros(BLOCK // 2)}, folder / "step_1.pt")
    torch.save({"weight": torch.zeros(BLOCK // 2)}, folder / "step_2.pt")
    for number, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (1_700_000_000 + number,) * 2)
    path = folder / "step_2.pt"
    assert watched(folder)[path.name].weights.scanned == 2 * BLOCK
    keeping_times(path, lambda: flip(path, BLOCK + 5_000_000))

    store = CheckpointDirectory(folder, sample=1)
    store.survey()
    found = {store.verify(path.name, Depth.SIZES, None).state for _ in range(60)}

    assert found == {CheckpointState.COMPLETE, CheckpointState.DAMAGED}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("save", ["torch.save", "dcp", "safetensors"])
def test_tensors_that_torch_wrote_are_scanned(dtype: str, save: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    good = _tensors(dtype)
    bad = {**good, "model": {**good["model"], "norm.bias": _with_nan(good["model"]["norm.bias"])}}
    _WRITERS[save](good, tmp_path / "good")
    _WRITERS[save](bad, tmp_path / "bad")

    clean, found = scan_weights(tmp_path / "good"), scan_weights(tmp_path / "bad")

    assert clean.nan == ()
    assert len(clean.infinite) == 1
    assert clean.infinite[0].endswith("mask")
    assert len(found.nan) == 1
    assert found.nan[0].endswith("norm.bias")


def _tensors(dtype: str) -> dict:
    import torch  # noqa: PLC0415 - only where it is installed

    kind = getattr(torch, dtype)
    weight = torch.randn(64, 64).to(kind)
    mask = torch.full((4,), float("-inf"), dtype=kind)
    return {"model": {"weight": weight, "norm.bias": torch.zeros(7, dtype=kind), "mask": mask}}


def _with_nan(tensor):
    changed = tensor.clone()
    changed[3] = float("nan")
    return changed


def _write_torch(state: dict, path: Path) -> None:
    import torch  # noqa: PLC0415 - only where it is installed

    torch.save(state, path)


def _write_dcp(state: dict, path: Path) -> None:
    from torch.distributed.checkpoint import save  # noqa: PLC0415 - only where it is installed

    with warnings.catch_warnings(action="ignore"):  # there is no process group
        save(state, checkpoint_id=path, no_dist=True)


def _write_safetensors(state: dict, path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(state["model"], path)


_WRITERS: dict[str, Callable[[dict, Path], None]] = {
    "torch.save": _write_torch,
    "dcp": _write_dcp,
    "safetensors": _write_safetensors,
}


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'holdfast', 'checkpoint', 'watch',"
        f" {str(folder)!r}, '--exit-with', str(os.getpid())], stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "complete: " in done.stdout, "its pipes are closed, so it has ended"


def test_a_limit_on_processor_time_does_not_change_the_exit_code() -> None:
    program = (
        "import time\n"
        "from holdfast.apps.run.low_priority import lower_priority\n"
        "class Late:\n"
        "    def __del__(self):\n"
        "        end = time.process_time() + 0.1\n"
        "        while time.process_time() < end: pass\n"
        "late = Late()\n"
        "lower_priority(0.5)\n"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_metrics_report_the_age_of_the_newest_good_checkpoint(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    last = newest(folder)
    keeping_times(last / "model.safetensors", lambda: put_nan(last / "model.safetensors"))
    good = CheckpointDirectory(folder).survey().checkpoints[1]
    port = free_port()
    watch = subprocess.Popen(
        [
            *(sys.executable, "-m", "holdfast", "checkpoint", "watch", str(folder)),
            *("--listen", str(port), "--cpu-limit", "100"),
        ],
        env={**os.environ, "HOLDFAST_PROGRESS_FILE": str(tmp_path / "progress")},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    (tmp_path / "progress").write_text("1\n11\n")
    try:
        assert watch.stdout is not None
        while good.name not in watch.stdout.readline():
            assert watch.poll() is None
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as reply:
            text = reply.read().decode()
    finally:
        watch.kill()
        watch.communicate()

    own = f'{{directory="{folder}"}}'
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    files = max(path.stat().st_mtime for path in (folder / good.name).iterdir())
    saved_at = float(found[f"holdfast_checkpoint_newest_verified_timestamp_seconds{own}"])
    assert saved_at == pytest.approx(files, abs=0.001)
    assert found[f"holdfast_checkpoint_steps_at_risk{own}"] == str(11 - (good.step or 0))
    assert f'holdfast_checkpoint_verifications_total{{directory="{folder}",result="bad"}}' in found


def test_every_file_of_a_small_checkpoint_is_compared(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    watched(folder)

    compared = guarded(folder).before.checkpoints[0].compared

    assert compared == len(list(newest(folder).iterdir())) > SAMPLE
