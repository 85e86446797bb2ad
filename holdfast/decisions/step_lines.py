"""Recognizes the lines in which training frameworks log a step and its loss. Pure."""

import math
import re
from dataclasses import dataclass, replace
from typing import Final

from holdfast.decisions.step_line_rows import NUMBER, PREFIX, ROWS, StepLine
from holdfast.model.jobs import StepReport

_LINE_CHARS: Final = 2000
"""Part of a line that is read; Megatron's lines have 600 characters."""

_ANSI: Final = re.compile(r"\x1b\[[0-9;]{0,12}[A-Km]")

# Forms that need the lines before. The bar, the dictionary: Transformers, trainer_callback.py.
_BAR: Final = re.compile(PREFIX + r" {0,2}\d{1,3}%\|[^|]{0,200}\| (\d{1,18})/(\d{1,18}) \[")
_TRAINER: Final = re.compile(rf"\{{'loss': '?({NUMBER})'?, .{{0,400}}'epoch': ")
_TRAINER_NAN: Final = re.compile(r"\{'loss': '?0(?:\.0)?'?, 'grad_norm': '?nan\b")
"""A loss that was NaN since the last log: ``logging_nan_inf_filter``, which is on unless turned
off, leaves NaN losses out of the sum that is logged."""

# Composer, loggers/console_logger.py; the batch counts from 1, its metric ``time/batch`` from 0.
_COMPOSER: Final = re.compile(r"(?:^|[ \]])\[batch=(\d{1,18})/\d{1,18}\]:?\s*$")
_COMPOSER_BATCH: Final = re.compile(r"\bTrain time/batch: (\d{1,18})\s*$")
_COMPOSER_LOSS: Final = re.compile(rf"\bTrain loss/train/total: ({NUMBER})\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """What the lines of a log have shown so far."""

    bar: tuple[int, int] | None = None
    """Step and number of steps of the last progress bar without a name."""

    total: int = 0
    """Number of steps of the bar of Hugging Face's Trainer; 0 until it is known. Its other bars,
    such as those of an evaluation, have the same form."""

    batch: int | None = None
    """Step that the metrics of Composer belong to."""

    last: int | None = None
    """Highest step."""


def after_line(progress: LogProgress, line: str) -> tuple[LogProgress, StepReport | None]:
    """Return the progress after one more line, and its report if it has one.

    A step that was reported before is reported again only with a loss that is not finite: all ranks
    may print it.
    """
    text = _ANSI.sub("", line[:_LINE_CHARS]) if "\x1b" in line else line[:_LINE_CHARS]
    for find in (_of_trainer, _of_composer):
        progress, report = find(progress, text)
        if report is not None:
            break
    report = report or _of_row(text)
    if report is None:
        return progress, None
    is_finite = report.loss is None or math.isfinite(report.loss)
    if progress.last is not None and report.step <= progress.last and is_finite:
        return progress, None
    return replace(progress, last=max(report.step, progress.last or 0)), report


def has_bad_loss(line: str) -> bool:
    """Return whether a line reports a loss that is not finite."""
    text = line[:_LINE_CHARS]
    if any(found.search(text) is not None for found in (_BAD_LOSS, _TRAINER_NAN)):
        return True
    return any(row.nan is not None and row.nan.search(text) is not None for row in ROWS)


_BAD_LOSS: Final = re.compile(
    r"(?<![a-z])loss[\w/]{0,40}['\"]?(?:: {1,9}|=| {1,9})'?[-+]?(?:nan|inf)\b", re.IGNORECASE
)


def _of_row(text: str) -> StepReport | None:
    for row in ROWS:
        if (found := row.step.search(text)) is not None:
            return StepReport(step=_step(found), loss=_loss(row, text))
    return None


def _step(found: re.Match[str]) -> int:
    """Return the step; a bar of each epoch has its batches."""
    groups = found.groupdict()
    if "step" in groups:
        return int(groups["step"])
    return int(groups["epoch"]) * int(groups["batches"]) + int(groups["batch"])


def _loss(row: StepLine, text: str) -> float | None:
    if row.nan is not None and row.nan.search(text) is not None:
        return math.nan
    found = None if row.loss is None else row.loss.search(text)
    return None if found is None else float(found[1])


def _of_trainer(progress: LogProgress, text: str) -> tuple[LogProgress, StepReport | None]:
    """Return the step of the Trainer's bar, and the loss of the dictionary that follows it."""
    if (found := _BAR.match(text)) is not None:
        step, total = int(found[1]), int(found[2])
        progress = replace(progress, bar=(step, total))
        return progress, StepReport(step=step) if total == progress.total else None
    if (found := _TRAINER.search(text)) is not None and progress.bar is not None:
        step, total = progress.bar
        loss = math.nan if _TRAINER_NAN.search(text) else float(found[1])
        return _with_loss(replace(progress, total=total), step, loss)
    return progress, None


def _of_composer(progress: LogProgress, text: str) -> tuple[LogProgress, StepReport | None]:
    """Return the step of Composer's header or metric, and the loss of a metric that follows."""
    if (found := _COMPOSER_LOSS.search(text)) is not None and progress.batch is not None:
        return _with_loss(progress, progress.batch, float(found[1]))
    if (found := _COMPOSER_BATCH.search(text)) is not None:
        step = int(found[1]) + 1
    elif (found := _COMPOSER.search(text)) is not None:
        step = int(found[1])
    else:
        return progress, None
    return replace(progress, batch=step), StepReport(step=step)


def _with_loss(
    progress: LogProgress, step: int, loss: float
) -> tuple[LogProgress, StepReport | None]:
    """Return the report of a loss whose step another line may have reported already."""
    if progress.last == step:
        progress = replace(progress, last=step - 1)
    return progress, StepReport(step=step, loss=loss)
