"""Megatron's legacy checkpoints record the ranks of their job, which may have had more before."""

import io
import pickle
import shutil
import zipfile
from argparse import Namespace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import guarded, unpacked, verified

from holdfast.adapters.checkpoints.megatron import TRACKER
from holdfast.model.checkpoints import CheckpointState

Sizes = tuple[int, int, int]
"""Tensor, pipeline and expert parallel ranks."""

sizes = st.tuples(*(st.integers(1, 3),) * 3)


def names_of(sizes: Sizes) -> list[str]:
    """As ``get_checkpoint_name`` of Megatron-LM names the directories."""
    _, pipeline, expert = sizes
    return [
        f"mp_rank_{one:02d}"
        + (f"_{two:03d}" if pipeline > 1 else "")
        + (f"_{three:03d}" if expert > 1 else "")
        for one, two, three in product(*map(range, sizes))
    ]


def model_file(sizes: Sizes, number: int, **others: int) -> bytes:
    keys = ("tensor", "pipeline", "expert")
    recorded = {f"{key}_model_parallel_size": one for key, one in zip(keys, sizes, strict=True)}
    args = Namespace(**recorded, **others)
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        data = pickle.dumps({"args": args, "iteration": number}, protocol=2)
        file.writestr("archive/data.pkl", data)
    return memory.getvalue()


def saved(folder: Path, number: int, sizes: Sizes, datas: int = 0, files: int = 0) -> Path:
    """A checkpoint; ``files`` of the optimizer, if ``datas`` data parallel ranks are recorded."""
    path = folder / f"iter_{number:07d}"
    others = {"data_parallel_size": datas} if datas else {}
    for name in names_of(sizes):
        (path / name).mkdir(parents=True)
        (path / name / "model_optim_rng.pt").write_bytes(model_file(sizes, number, **others))
        for rank in range(files):
            own = path / name / f"layer_wise_optimizer_{rank}.pt"
            own.write_bytes(model_file(sizes, number))
    (folder / TRACKER).write_text(str(number), encoding="utf-8")
    return path


@given(sizes, sizes, st.data())
def test_exactly_the_recorded_ranks_have_to_be_there(before: Sizes, now: Sizes, data) -> None:
    """Whatever the ranks before; as long as one of them has saved its arguments."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        saved(folder, 100, before)
        path = saved(folder, 200, now)
        lost = data.draw(st.sets(st.sampled_from(names_of(now)), max_size=len(names_of(now)) - 1))
        for name in lost:
            shutil.rmtree(path / name)

        one = verified(folder, path.name)

        expected = CheckpointState.INCOMPLETE if lost else CheckpointState.COMPLETE
        assert one.state is expected


@pytest.mark.parametrize("files", [0, 1, 2, 3, 4])
def test_exactly_the_optimizer_files_of_the_recorded_ranks_have_to_be_there(
    tmp_path: Path, files: int
) -> None:
    saved(tmp_path, 100, (1, 1, 1), 4, 4)
    saved(tmp_path, 200, (1, 1, 1), 2, files)

    is_whole = verified(tmp_path, "iter_0000200").state is CheckpointState.COMPLETE
    assert is_whole is (files >= 2)


def test_megatron_lm_may_have_fewer_ranks_than_before(tmp_path: Path) -> None:
    folder = unpacked("megatron_lm", tmp_path) / "torch"
    for rank in (2, 3):
        source = folder / "iter_0000200/mp_rank_01"
        shutil.copytree(source, source.with_name(f"mp_rank_{rank:02d}"))

    chosen = guarded(folder).choice.resume
    assert chosen is not None
    assert chosen.name == "iter_0000300"


def test_a_rank_of_megatron_lm_that_had_not_saved_is_missed_in_the_first_checkpoint(
    tmp_path: Path,
) -> None:
    folder = unpacked("megatron_lm", tmp_path) / "torch"
    for name in ("iter_0000100", "iter_0000200", "iter_0000300/mp_rank_01"):
        shutil.rmtree(folder / name)

    one = verified(folder, "iter_0000300")
    assert (one.state, one.problems) == (
        CheckpointState.INCOMPLETE,
        ("1 of 2 ranks are missing",),
    )


def test_without_a_record_the_ranks_before_are_expected(tmp_path: Path) -> None:
    folder = unpacked("megatron", tmp_path) / "legacy"
    source = folder / "iter_0000200/mp_rank_01"
    shutil.copytree(source, source.with_name("mp_rank_02"))

    assert verified(folder, "iter_0000300").state is CheckpointState.INCOMPLETE


def test_experts_over_other_tensor_ranks_are_no_record(tmp_path: Path) -> None:
    saved(tmp_path, 100, (4, 1, 1))
    path = saved(tmp_path, 200, (2, 1, 1))
    for name in names_of((2, 1, 1)):
        data = model_file((2, 1, 1), 200, expert_tensor_parallel_size=1)
        (path / name / "model_optim_rng.pt").write_bytes(data)

    assert verified(tmp_path, path.name).state is CheckpointState.INCOMPLETE
