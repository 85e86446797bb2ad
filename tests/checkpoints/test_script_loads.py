"""What is chosen after damage is loaded by frameworks with several ranks or an own environment.

Results are compared with ``tests/checkpoint_loads.json``; ``make matrix`` records them.
"""

import os
from pathlib import Path

import pytest
from effort import is_quick
from installed import skip_without
from recorded import guarded, put_back, unpacked
from script_loads import Case, Loader, record_loads

from holdfast.adapters.checkpoints.megatron import TRACKER
from holdfast.model.checkpoints import Depth
from tests.engines.matrix import Matrix
from tools.checkpoint_damage import RECORDINGS

pytestmark = pytest.mark.frameworks

OWN_INDEX = Loader("dcp_own_index", None, 2, ("dcp/own_index",))
MEGATRON_LM = Loader(
    "megatron_lm", "megatron_lm", 2,
    ("megatron_lm/torch_dist", "megatron_lm/torch_dcp", "megatron_lm/torch"),
)  # fmt: skip
IN_ENVIRONMENTS = {
    "megatron": Loader("megatron", "megatron", 2, ("megatron/torch_dist",)),
    "megatron_0_19": Loader("megatron", "megatron_lm", 2, ("megatron_0_19/torch_dist",)),
    "ray_train": Loader("ray_train", "ray", 0, ("ray_train/run",)),
    "dlrover_fsdp": Loader("dlrover_fsdp", "dlrover", 1, ("dlrover_agents/fsdp",)),
    "nvrx_local": Loader("nvrx_local", "nvrx", 4, ("nvrx_local/alone", "nvrx_local/replicated")),
}


@pytest.fixture(autouse=True)
def _torch() -> None:
    skip_without("torch")  # the environments of frameworks have the same release


def frequent(target: Path) -> list[Case]:
    """The newest checkpoint of Megatron-LM is not persistent; it is whole, then damaged."""
    recording = "megatron_lm/torch_dist"
    good = unpacked("megatron_lm", target / "good") / "torch_dist"
    _, newest, before = RECORDINGS[recording]
    found = []
    for folder in (target / "frequent", target / "frequent-damaged"):
        put_back(good, folder)
        inside = folder / "non_persistent"
        inside.mkdir()
        (folder / newest).rename(inside / newest)
        for home, name in ((inside, newest), (folder, before)):
            (home / TRACKER).write_text(name.removeprefix("iter_"))
        if found:
            os.truncate(next((inside / newest).glob("*.distcp")), 100)
        chosen = guarded(folder, Depth.HASHES).choice.resume
        assert chosen is not None
        found.append(Case(recording, folder, "", Path(chosen.name).name))
    assert [one.chosen for one in found] == [newest, before]
    return found


def test_torch_loads_checkpoints_with_an_index_of_each_rank(tmp_path: Path, matrix: Matrix) -> None:
    record_loads(OWN_INDEX, matrix, tmp_path)


if not is_quick():  # each builds an environment

    def test_megatron_lm_loads_what_is_chosen_after_damage(tmp_path: Path, matrix: Matrix) -> None:
        record_loads(MEGATRON_LM, matrix, tmp_path, frequent(tmp_path))

    @pytest.mark.parametrize("framework", IN_ENVIRONMENTS)
    def test_a_framework_loads_what_is_chosen_after_damage(
        tmp_path: Path, matrix: Matrix, framework: str
    ) -> None:
        record_loads(IN_ENVIRONMENTS[framework], matrix, tmp_path)
