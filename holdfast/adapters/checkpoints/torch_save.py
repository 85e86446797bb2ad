"""``torch.save`` files, one for each checkpoint, such as the full state of FSDP.

The script names them. A number in the name is taken as the step. A file without a number, such as
``latest.pt``, is loaded by its name, so no other file can replace it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CheckpointFormat, Found, Names, candidate
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.links import FIXED_NAME, link_pointer, repoint_links
from holdfast.adapters.checkpoints.own_steps import saved_step, step_problems
from holdfast.adapters.checkpoints.plain_files import Entry
from holdfast.adapters.checkpoints.torch_file import file_problems, is_torch_file
from holdfast.model.checkpoints import Checkpoint, Depth, Problem

_SAVED: Final = saved_step("step", "global_step", "iteration", "epoch")
_SUFFIXES: Final = (".pt", ".pth", ".ckpt", ".tar")


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``. Several files of one step are parts of an unknown format."""
    files = [one for one in names.values() if one.name.endswith(_SUFFIXES) and not one.is_dir]
    own = [one for one in files if not one.is_link]
    if not any(one.is_file and is_torch_file(one.path) for one in own):
        return None
    numbered = [_numbered(one) for one in own if step_in(_stem(one)) is not None]
    steps = [one.step for one in numbered]
    if len(set(steps)) < len(steps):
        return None
    numbered.sort(key=lambda one: one.step or 0, reverse=True)
    fixed = [
        _fixed(one) for one in own if step_in(_stem(one)) is None and FIXED_NAME.match(one.name)
    ]
    fixed.sort(key=lambda one: one.changed_at, reverse=True)
    if not numbered and not fixed:
        return None
    pointer = link_pointer(names, {one.name for one in numbered})
    return Found(checkpoints=(*fixed, *numbered), pointer=pointer)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    yield from file_problems(path, depth, may_be_other=True)
    before = step_in(older.name.rpartition(".")[0]) if older is not None else None
    yield from step_problems(path, older, (step_in(path.name.rpartition(".")[0]), before), _SAVED)


def _stem(entry: Entry) -> str:
    return entry.name.rpartition(".")[0]


def _numbered(entry: Entry) -> Checkpoint:
    return candidate(entry, step_in(_stem(entry)), is_ended=True)


def _fixed(entry: Entry) -> Checkpoint:
    return candidate(entry, None, is_ended=True, group=entry.name)


FORMAT: Final = CheckpointFormat(
    name="torch-save",
    title="`torch.save`, FSDP full state",
    find=find,
    check=check,
    repoint=repoint_links,
    script_chooses=True,
    recognized_by="`*.pt`, `*.pth`, `*.ckpt` or `*.tar` in DIRECTORY that `torch.save` wrote",
    complete_when="the archive has its directory, and each storage that `data.pkl` names is there"
    " with the length that it states",
    loads="what a link such as `latest.pt` names; else a file of such a name; else the highest"
    " number in a name",
    not_detected="a file of another step that holds no `step`, `global_step`, `iteration` or"
    " `epoch`; wrong numbers under right checksums; a file without checksums"
    " (`set_crc32_options(False)`, or the form before PyTorch 1.6) of the right length",
)
