"""DeepSpeed's universal checkpoints: a directory of tensors for each parameter.

``ds_to_universal.py`` converts a checkpoint ``TAG`` to ``TAG_universal``, and writes the name to
``latest_universal`` last.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CannotVerify,
    CheckpointFormat,
    Found,
    Names,
    candidate,
    damaged,
    incomplete,
)
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.deepspeed import (
    UNIVERSAL,
    UNIVERSAL_LATEST,
    model_step_problems,
    tag_pointer,
)
from holdfast.adapters.checkpoints.plain_files import listed, names_in, opened
from holdfast.adapters.checkpoints.state_trees import fewer_in_tree, tree_problems
from holdfast.adapters.checkpoints.torch_archive import InvalidTorchFile
from holdfast.adapters.checkpoints.torch_file import storages
from holdfast.kit.files import write_durably
from holdfast.model.checkpoints import Depth, Problem

_PARAMETERS: Final = "zero"
_WEIGHT: Final = "fp32.pt"
_STEP: Final = "step.pt"


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``."""
    entries = [one for one in names.values() if one.is_dir and one.name.endswith(UNIVERSAL)]
    if not any(_PARAMETERS in names_in(one.path) for one in entries):
        return None
    rows = [candidate(one, step_in(one.name), is_ended=False) for one in entries]
    rows.sort(key=lambda one: (one.step if one.step is not None else -1, one.name), reverse=True)
    pointer = tag_pointer(folder, names, UNIVERSAL_LATEST)
    return Found(checkpoints=tuple(rows), pointer=pointer)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    names = listed(path)
    if not any(name.endswith("_model_states.pt") for name in names):
        yield incomplete("model files are missing")
    if "tmp" in names:
        yield incomplete("tmp exists: the conversion did not complete")
    parameters = [one for one in listed(path / _PARAMETERS).values() if one.is_dir]
    if not parameters:
        yield incomplete(f"{_PARAMETERS} has no parameter")
    for one in parameters:
        if _WEIGHT not in names_in(one.path):
            yield incomplete(f"{_PARAMETERS}/{one.name[:80]}/{_WEIGHT} is missing")
    yield from tree_problems(path, depth, older)
    yield from fewer_in_tree(path, older)
    yield from model_step_problems(path, names, older)
    if older is not None:
        yield from _optimizer_step_problems(path / _PARAMETERS, older / _PARAMETERS)


def _optimizer_step_problems(path: Path, older: Path) -> Iterator[Problem]:
    """Yield the parameters whose optimizer has a different number of steps from most others.

    DeepSpeed does not load those of one group with different numbers. Groups may differ, so this
    only counts if all parameters of the older checkpoint agree.
    """
    steps = _optimizer_steps(path)
    if len(set(steps.values())) < 2 or len(set(_optimizer_steps(older).values())) != 1:
        return
    (usual, _), *_ = Counter(steps.values()).most_common()
    for name, step in sorted(steps.items()):
        if step != usual:
            yield damaged(f"{_PARAMETERS}/{name[:80]}/{_STEP} holds another step than the others")


def _optimizer_steps(path: Path) -> dict[str, bytes]:
    """Return the bytes of the steps, by parameter; without those that cannot be read."""
    steps = {}
    for one in listed(path).values():
        if one.is_dir and _STEP in names_in(one.path):
            with (
                suppress(OSError, InvalidTorchFile, CannotVerify),
                opened(one.path / _STEP) as file,
            ):
                found = [part.read(0, 16) for _, _, part in storages(file)]
                if len(found) == 1:
                    steps[one.name] = found[0]
    return steps


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``."""
    write_durably(folder / UNIVERSAL_LATEST, name.encode())


FORMAT: Final = CheckpointFormat(
    name="deepspeed-universal",
    title="DeepSpeed universal",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by="directories `*_universal` with `zero`, without other checkpoints of DeepSpeed",
    complete_when="each parameter has `fp32.pt`, all files are whole, and none is missing that the"
    " checkpoint before has",
    loads=f"what `{UNIVERSAL_LATEST}` names",
    not_detected="`fp32.pt`, `exp_avg.pt` and `exp_avg_sq.pt` of another step; in the"
    " first checkpoint: a `step.pt` of another step, all files of a parameter or of its optimizer"
    " missing",
)
