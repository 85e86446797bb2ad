"""Files that callbacks and scripts put into checkpoints, in formats of their own."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest
from recorded import flip, guarded, unpacked, verified, zero

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
