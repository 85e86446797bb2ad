"""Files that callbacks and scripts put into checkpoints, in formats of their own."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest
from recorded import flip, guarded, unpacked, verified, zero

from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import CheckpointState, Depth

RAY = "checkpoint_2026-11-23_12-0{}-00.000000"
PICKLED = pickle.dumps({"decay": 0.999})


def chosen(folder: Path) -> str | None:
    one = guarded(folder, Depth.HASHES).choice.resume
    return one.name if one is not None else None


@pytest.mark.parametrize("suffix", [".pkl", ".bin", ".pt", ".pth", ".ckpt"])
@pytest.mark.parametrize(
    ("recording", "names"),
    [
        ("hf_trainer/one_file", ["checkpoint-6", "checkpoint-4"]),
        ("accelerate/checkpoints", ["checkpoint_2", "checkpoint_1"]),
        ("ray_train/run", [RAY.format(3), RAY.format(2)]),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_file_of_another_library_is_not_judged(
    tmp_path: Path, recording: str, names: list[str], suffix: str, count: int
) -> None:
    """As of a callback of the Trainer, or the preprocessor of Ray. The first save may lack it."""
    recorded, _, inside = recording.partition("/")
    folder = unpacked(recorded, tmp_path) / inside
    for name in names[:count]:
        (folder / name / f"preprocessor{suffix}").write_bytes(PICKLED)

    assert chosen(folder) == names[0]


@pytest.mark.parametrize("length", [0, 5, 600])
def test_a_file_that_torch_wrote_in_the_checkpoint_before_is_judged(
    tmp_path: Path, length: int
) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    for name in ("checkpoint-4", "checkpoint-6"):
        data = (folder / name / "scheduler.pt").read_bytes()
        (folder / name / "ema.pkl").write_bytes(data)
    assert chosen(folder) == "checkpoint-6"

    os.truncate(folder / "checkpoint-6/ema.pkl", length)

    assert verified(folder, "checkpoint-6").state is CheckpointState.INCOMPLETE
    zero(folder / "checkpoint-6/ema.pkl", 0, 600)
    assert verified(folder, "checkpoint-6").is_broken


@pytest.mark.parametrize(
    ("recording", "file"),
    [
        ("hf_trainer/one_file", "rng_state_0.pth"),
        ("hf_trainer/one_file", "optimizer.pt"),
        ("hf_trainer/one_file", "training_args.bin"),
        ("hf_trainer/one_file", "pytorch_model.bin"),
        ("accelerate/checkpoints", "random_states_1.pkl"),
        ("accelerate/checkpoints", "custom_checkpoint_0.pkl"),
        ("deepspeed_universal/universal", "mp_rank_00_model_states.pt"),
        ("deepspeed_universal/universal", "zero/bias/step.pt"),
        ("deepspeed_universal/universal", "zero/bias/exp_avg_sq.pt"),
        ("dlrover/ddp", "rank_0.pt"),
    ],
)
def test_a_file_of_the_framework_has_to_be_one_of_torch(
    tmp_path: Path, recording: str, file: str
) -> None:
    """Its name is enough, in the first checkpoint too."""
    recorded, _, inside = recording.partition("/")
    folder = unpacked(recorded, tmp_path) / inside
    first = min(one for one in folder.iterdir() if one.is_dir() and one.name[0] != ".")
    (first / file).write_bytes(PICKLED)

    assert verified(folder, first.name).problems == (f"{file} is not a torch.save file",)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A file as of ``torch.jit.save``: members of source code are compressed, others are not."""
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    path = folder / "checkpoint-6/traced.pt"
    with (
        zipfile.ZipFile(folder / "checkpoint-6/optimizer.pt") as source,
        zipfile.ZipFile(path, "w") as archive,
    ):
        for name in source.namelist():
            archive.writestr(name.replace("optimizer", "traced"), source.read(name))
        for size in (0, 9, 3_000_000):  # the second one becomes longer
            name = f"traced/code/{size}.py"
            archive.writestr(name, os.urandom(size % 10) + bytes(size), zipfile.ZIP_DEFLATED)
    return path


def test_a_torch_script_is_whole(script: Path) -> None:
    assert chosen(script.parents[1]) == "checkpoint-6"


@pytest.mark.parametrize("member", ["data.pkl", "data/0", "version", "code/9.py"])
def test_a_torch_script_is_judged(script: Path, member: str) -> None:
    with zipfile.ZipFile(script) as archive:
        one = archive.getinfo(f"traced/{member}")
    flip(script, one.header_offset + 30 + len(one.filename))

    assert verified(script.parents[1], "checkpoint-6", Depth.HASHES).is_broken


@pytest.mark.parametrize("member", ["data.pkl", "data/0", "version"])
def test_what_torch_maps_into_memory_must_not_be_compressed(script: Path, member: str) -> None:
    with zipfile.ZipFile(script) as archive:
        data = {one.filename: archive.read(one) for one in archive.infolist()}
    with zipfile.ZipFile(script, "w") as archive:
        for name, content in data.items():
            is_own = name == f"traced/{member}"
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if is_own else zipfile.ZIP_STORED)

    problems = verified(script.parents[1], "checkpoint-6").problems
    assert problems == ("traced.pt has a corrupt zip directory",)


# Zip archives of other libraries


def zipped(path: Path, *, method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> None:
    """As Stable-Baselines3 or ``numpy.savez`` write one."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("data", b"{}" * 300)
        archive.writestr("arr_0.npy", bytes(5000))
        archive.writestr("run/log.txt", "step 1")
        archive.comment = comment


kinds = pytest.mark.parametrize(
    "kind", [{}, {"method": zipfile.ZIP_STORED}, {"comment": b"replay buffer"}]
)


@kinds
@pytest.mark.parametrize("name", ["replay.pkl", "replay.pt", "replay.bin"])
def test_a_zip_archive_of_another_library_is_unknown(tmp_path: Path, name: str, kind) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    path = folder / "checkpoint-6" / name
    zipped(path, **kind)

    one = verified(folder, "checkpoint-6", Depth.HASHES)
    assert one.state is CheckpointState.UNKNOWN
    assert one.problems == (f"{name} is a zip archive that torch.save did not write",)
    assert guarded(folder).choice.outcome is ResumeOutcome.UNDECIDED
    assert path.exists()

    os.truncate(path, path.stat().st_size - 30)
    assert verified(folder, "checkpoint-6").is_broken


@kinds
def test_another_zip_archive_hides_no_damage_of_a_file_of_torch(tmp_path: Path, kind) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    zipped(folder / "checkpoint-6/a.pkl", **kind)
    os.truncate(folder / "checkpoint-6/optimizer.pt", 600)

    assert verified(folder, "checkpoint-6").state is CheckpointState.INCOMPLETE
    assert chosen(folder) == "checkpoint-4"


def test_a_file_of_the_framework_is_damaged_as_another_zip_archive(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    zipped(folder / "checkpoint-6/optimizer.pt")

    assert verified(folder, "checkpoint-6").state is CheckpointState.DAMAGED


@kinds
def test_another_zip_archive_alone_is_unknown(tmp_path: Path, kind) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    zipped(folder / "checkpoint_000400.pt", **kind)

    assert verified(folder, "checkpoint_000400.pt").state is CheckpointState.UNKNOWN


def test_a_damaged_file_of_torch_is_never_another_zip_archive(tmp_path: Path) -> None:
    """Whichever byte of its directory changes, and wherever it is cut off."""
    folder = unpacked("torch_save", tmp_path) / "zip"
    path = folder / "checkpoint_000300.pt"
    whole = path.read_bytes()
    for at in range(len(whole) - 1200, len(whole)):
        path.write_bytes(whole)
        flip(path, at)
        assert verified(folder, path.name, Depth.HASHES).state is not CheckpointState.UNKNOWN
    for size in range(1, len(whole), 97):
        path.write_bytes(whole[:size])
        assert verified(folder, path.name).is_broken
