"""Checkpoints of any other program: a user states the names, and the marker of complete ones.

``pattern:step_{step}`` matches directories and files such as ``step_100``. With ``,marker=DONE``
they are complete if they contain ``DONE``; a marker with ``{name}`` is beside the checkpoint.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CheckpointFormat,
    Found,
    Names,
    candidate,
    incomplete,
)
from holdfast.adapters.checkpoints.npz_file import SUFFIX as NPZ
from holdfast.adapters.checkpoints.npz_file import file_problems as npz_problems
from holdfast.adapters.checkpoints.safetensors_file import file_problems as safetensors_problems
from holdfast.adapters.checkpoints.state_trees import fewer_in_tree, files_in, tree_problems
from holdfast.adapters.checkpoints.torch_file import file_problems, is_torch_file
from holdfast.model.checkpoints import Depth, Problem
from holdfast.model.errors import ConfigError

PREFIX: Final = "pattern:"
USAGE: Final = "pattern:NAME_{step}[,marker=FILE]"
_STEP: Final = "{step}"
_NAME: Final = "{name}"
_MARKER: Final = ",marker="
_LONGEST: Final = 200
_STARS: Final = 3
"""Maximum ``*`` in a pattern: each multiplies the time that a match of a name may take."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Names of checkpoints, and the marker of complete ones."""

    name: re.Pattern[str]
    marker: str = ""

    def find(self, folder: Path, names: Names) -> Found | None:  # noqa: ARG002 - a Find
        """See ``Find``."""
        rows = []
        for entry in names.values():
            found = self.name.fullmatch(entry.name)
            if found is not None and not entry.is_link and (entry.is_dir or entry.is_file):
                is_ended = not self.marker or self._place(entry.path).exists()
                rows.append(candidate(entry, int(found[1]), is_ended=is_ended))
        rows.sort(key=lambda one: (one.step or 0, one.name), reverse=True)
        return Found(checkpoints=tuple(rows)) if rows else None

    def check(self, path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
        """See ``Check``."""
        if self.marker and not (marker := self._place(path)).is_file():
            yield incomplete(f"{marker.name}, the marker of a complete one, is missing")
        if not path.is_dir():
            yield from _file_problems(path, depth)
            return
        files = [(name, one) for name, one in files_in(path) if name != self.marker]
        if not files:
            yield incomplete("it has no file")
        yield from tree_problems(path, depth, older)
        if not self.marker:
            yield from fewer_in_tree(path, older)

    def _place(self, path: Path) -> Path:
        if _NAME in self.marker or not path.is_dir():
            return path.with_name(self.marker.replace(_NAME, path.name))
        return path / self.marker


def pattern_format(text: str) -> CheckpointFormat:
    """Return the format that a user states as ``pattern:...``.

    Raises:
        ConfigError: the pattern is not valid.

    """
    name, _, marker = text.removeprefix(PREFIX).partition(_MARKER)
    if len(text) > _LONGEST:
        raise _error(text[:40] + "...", f"it has more than {_LONGEST} characters")
    if name.count(_STEP) != 1:
        raise _error(text, f"it must contain {_STEP} once")
    if name.count("*") > _STARS:
        raise _error(text, f"it has more than {_STARS} wildcards (*)")
    if "/" in name + marker or marker in (".", ".."):
        raise _error(text, "names of files must not contain a directory")
    if _MARKER in text and not marker:
        raise _error(text, "marker is empty")
    parts = re.split(r"(\{step\}|\*)", name)
    tokens = {_STEP: r"(\d{1,15})", "*": "[^/]*"}
    pattern = _Pattern(
        re.compile("".join(tokens.get(one) or re.escape(one) for one in parts)), marker
    )
    return CheckpointFormat(
        name=text,
        title="any other program",
        find=pattern.find,
        check=pattern.check,
        script_chooses=True,
        recognized_by="not by content: name it with `--format`",
        complete_when="the marker exists, if one is stated; state files of known forms are whole;"
        " without a marker, no file is missing that the checkpoint before has",
        loads="what the script chooses; taken to be the highest step",
        not_detected="damage of files that are not of `torch.save`, DCP, safetensors or `.npz`;"
        " changed bytes in a safetensors file; a file of another step",
    )


def _file_problems(path: Path, depth: Depth) -> Iterator[Problem]:
    if not path.stat().st_size:
        yield incomplete("is empty")
    elif path.suffix == ".safetensors":
        yield from safetensors_problems(path)
    elif path.suffix == NPZ:
        yield from npz_problems(path, depth)
    elif is_torch_file(path):
        yield from file_problems(path, depth, may_be_other=True)


def _error(text: str, problem: str) -> ConfigError:
    return ConfigError(f"format {text!r}: {problem}; expected {USAGE}")
