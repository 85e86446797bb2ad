"""Reports of a training script to Holdfast; without Holdfast, all of them do nothing.

Standard library only. Steps are appended to ``$HOLDFAST_PROGRESS_FILE``, one line for each: the
number of the step and, after a space, its loss. If that is ``-``, steps are printed, so that they
are in the log of the job. Saves are appended to a file beside
``$HOLDFAST_CHECKPOINT_DIR``. The modules of this package have a callback for each framework.
"""

import hashlib
import logging
import math
import operator
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex

from holdfast.adapters.checkpoints.save_reports import append_report
from holdfast.decisions.replay_results import PRINTED
from holdfast.kit.stack_requests import answer_requests
from holdfast.model.checkpoints import SaveReport
from holdfast.model.errors import HoldfastError
from holdfast.model.jobs import REPLAY_VARIABLE, SECTIONS_VARIABLE

_LOG: Final = logging.getLogger(__name__)
_CUT: Final[set[str]] = set()
"""Files whose last line was not written to its end."""

_END_OF_CUT: Final = b"?\n"
"""Makes what was written of such a line invalid: 12 of 12345 is another step."""

_WRITE_S: Final = 0.5
"""Time between two writes of section times; a window takes 40 s."""


def step(number: int, *, loss: SupportsFloat | None = None) -> None:
    """Report a step that is done; all ranks may call it.

    The first report of an attempt is the step that it resumed from. Rank 0 writes each report, the
    other ranks only those of a loss that is NaN or infinite. A file that cannot be written, as on a
    full disk, does not end the job: it is logged as a warning, once.

    Args:
        number: number of the step.
        loss: loss of the step, such as a tensor with one element. Reading it waits for the
            accelerator: pass it every few steps if that takes time.

    """
    path = os.environ.get("HOLDFAST_PROGRESS_FILE")
    if not path:
        return
    answer_requests()
    value = None if loss is None else float(loss)
    is_first = os.environ.get("RANK", "0") == "0"
    if not is_first and (value is None or math.isfinite(value)):
        return
    if path == "-":
        sys.stdout.write(
            f"holdfast: step {number}{'' if value is None else f' loss {value:.9g}'}\n"
        )
        sys.stdout.flush()
        return
    line = f"{number}\n" if value is None else f"{number} {value:.9g}\n"
    try:
        _append(path, line.encode("ascii"))
    except OSError as error:  # reports must not end the job
        _warn_of_steps(path, error.strerror)


def _append(path: str, line: bytes) -> None:
    """Append a line with one write, so that lines of ranks do not mix."""
    text = _END_OF_CUT + line if path in _CUT else line
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = os.write(handle, text)
    finally:
        os.close(handle)
    if written == len(text):
        _CUT.discard(path)
    else:  # the file system became full within the line
        _CUT.add(path)


@cache
def _warn_of_steps(path: str, problem: str | None) -> None:
    """Log once that steps are not reported."""
    _LOG.warning("steps not reported: %s: %s; free space or make it writable", path, problem)


def checkpoint_saved(step: SupportsIndex, path: str | os.PathLike[str]) -> None:
    """Report that a checkpoint was saved; all ranks may call it, and rank 0 reports.

    Call it when all ranks have written their part. ``holdfast checkpoint watch`` then verifies the
    checkpoint at once. The report replaces no verification: a reported checkpoint that is
    incomplete stays incomplete. It raises nothing: what prevents a report is logged as a warning.

    Args:
        step: step after which it was saved.
        path: the checkpoint, a file in it or a link to it, in ``$HOLDFAST_CHECKPOINT_DIR``.

    """
    directory = os.environ.get("HOLDFAST_CHECKPOINT_DIR")
    if not directory or os.environ.get("RANK", "0") != "0":
        return
    try:
        _report_save(Path(directory), operator.index(step), Path(path))
    except (HoldfastError, OSError, RuntimeError, TypeError, ValueError) as error:
        _LOG.warning("checkpoint %s not reported, verified at the next scan: %s", path, error)


def _report_save(folder: Path, step: int, path: Path) -> None:
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise ValueError(f"expected a path in HOLDFAST_CHECKPOINT_DIR={folder}; save there")
    name = real.relative_to(folder.resolve()).as_posix()
    may_be_inside = True
    if os.path.ismount(folder.resolve()):  # without one, the report is beside the directory
        from holdfast.adapters.checkpoints.directory import (  # noqa: PLC0415 - every rank waits for it
            CheckpointDirectory,
        )

        store = CheckpointDirectory(folder)
        store.survey()
        may_be_inside = store.accepts_files
    report = SaveReport(name=name, step=step, at=datetime.now(UTC))
    append_report(folder, report, may_be_inside=may_be_inside)


@contextmanager
def section(name: str) -> Iterator[None]:
    """Measure a part of a step that takes as long on every rank, such as the forward pass.

    Holdfast compares the ranks by it, instead of by samples of their stacks: the one that is longer
    in its sections than the others slows them down. Leave out what waits for other ranks, such as
    collectives; on an accelerator, the time counts that the host thread takes. Of sections in one
    another, the outer one counts. Without ``$HOLDFAST_SECTIONS_DIR`` it does nothing.

    Args:
        name: name of the part, for people who read the script.

    """
    folder = os.environ.get(SECTIONS_VARIABLE)
    if not folder or not name or _SECTIONS.is_inside:
        yield
        return
    _SECTIONS.is_inside, began = True, time.perf_counter()
    try:
        yield
    finally:
        _SECTIONS.is_inside = False
        _SECTIONS.add(time.perf_counter() - began, folder)


class _Sections(threading.local):
    """Time of the sections of this process; only those of one thread count at a time."""

    is_inside = False
    seconds = 0.0
    written_at = 0.0

    def add(self, seconds: float, folder: str) -> None:
        self.seconds += seconds
        now = time.monotonic()
        if now < self.written_at + _WRITE_S:
            return
        self.written_at = now
        path = os.path.join(folder, f"rank-{os.environ.get('RANK', '0')}")
        try:
            with open(f"{path}.new", "w", encoding="ascii") as file:
                file.write(f"{self.seconds:.6f}\n")
            os.replace(f"{path}.new", path)
        except OSError as error:  # measurements must not end the job
            _LOG.warning("section times not written: %s: %s", path, error)


_SECTIONS: Final = _Sections()


def replayed(number: int, *values: Any) -> None:
    """Report the results of a step in replay mode; without ``$HOLDFAST_REPLAY`` it does nothing.

    ``holdfast check replay`` compares them bit by bit with those of another node, so the steps have
    to be deterministic: the same data and seed, deterministic algorithms, and no time or name of
    the node. The results of a rank have its number.

    Args:
        number: number of the step.
        values: its results, such as the loss and the gradients: tensors of PyTorch, arrays of
            NumPy, other objects with a buffer, or numbers.

    """
    if not os.environ.get(REPLAY_VARIABLE):
        return
    digest = hashlib.sha256()
    for value in values:
        digest.update(_bytes_of(value))
    rank = os.environ.get("RANK", "0")
    _print_kind()
    sys.stdout.write(f"{PRINTED} {number} rank-{rank} {digest.hexdigest()}\n")
    sys.stdout.flush()


@cache
def _print_kind() -> None:
    from holdfast.adapters.host.replay_kind import replay_kind  # noqa: PLC0415 - only in a replay

    sys.stdout.write(f"{PRINTED} on {replay_kind()}\n")


def replay_steps() -> int:
    """Return the number of steps to do in replay mode; 0 outside of it."""
    text = os.environ.get(REPLAY_VARIABLE, "")
    return int(text) if text.isdecimal() else 0


def _bytes_of(value: Any) -> bytes | memoryview:
    if isinstance(value, bool | int | float):
        return struct.pack("<d", value)
    if hasattr(value, "detach"):  # a tensor; bfloat16 has no equivalent in NumPy
        flat = value.detach().cpu().contiguous().reshape(-1)
        value = flat.view(sys.modules["torch"].uint8).numpy()
    return memoryview(value).cast("B")


def is_skipped(number: int) -> bool:
    """Return whether the batch of a step has to be skipped.

    Holdfast names the step at which the loss of an earlier attempt was not finite or spiked, and
    the one before, in ``$HOLDFAST_SKIP_STEPS`` if ``loss_action`` is ``skip``.
    """
    return number in _skipped(os.environ.get("HOLDFAST_SKIP_STEPS", ""))


@cache
def _skipped(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part.strip().isdecimal())
