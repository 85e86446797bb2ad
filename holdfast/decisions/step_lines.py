"""Recognises the lines in which training frameworks log a step and its loss. Pure.

The wording is that of the frameworks' sources: Megatron-LM ``training/training.py``, NeMo 2
``lightning/pytorch/callbacks/progress_printer.py``, torchtitan ``observability/metrics.py``,
DeepSpeed ``runtime/engine.py`` and ``runtime/pipe/engine.py``, the progress bars of Lightning and
of Hugging Face's Trainer, and the Trainer's dictionaries.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Final

from holdfast.model.jobs import StepReport

_LINE_CHARS: Final = 2000
"""Part of a line that is read; Megatron's lines have 600 characters."""

_ANSI: Final = re.compile(r"\x1b\[[0-9;]{0,12}m")
_NUMBER: Final = r"[-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf|NaN|NAN|INF)"

_MEGATRON: Final = re.compile(r"\biteration {1,20}(\d{1,18})/ {0,20}\d{1,18} \|")
_MEGATRON_LOSS: Final = re.compile(rf"\| (?:\w{{1,40}} )?loss:? {{1,9}}({_NUMBER}) \|")
_MEGATRON_NAN: Final = re.compile(r"\| number of nan iterations: {1,20}([1-9]\d{0,17}) \|")
_GLOBAL_STEP: Final = re.compile(r"\bglobal_step(?:: |=)(\d{1,18})\b")
_TITAN: Final = re.compile(rf"\bstep: {{1,3}}(\d{{1,18}}) {{2,4}}loss: {{1,9}}({_NUMBER}) ")
_DEEPSPEED: Final = re.compile(r"\bstep=(\d{1,18}), skipped=\d")
_DEEPSPEED_PIPE: Final = re.compile(rf"\bsteps: (\d{{1,18}}) loss: ({_NUMBER}) iter time")
_BAR: Final = re.compile(r"^ {0,2}\d{1,3}%\|[^|]{0,200}\| (\d{1,18})/(\d{1,18}) \[")
_LIGHTNING: Final = re.compile(
    r"^Epoch (\d{1,9})(?:/\d{1,9})?: {1,4}\d{1,3}%\|[^|]{0,200}\| (\d{1,9})/(\d{1,9}) \["
)
_BAR_LOSS: Final = re.compile(rf"\b\w{{0,40}}loss\w{{0,10}}(?:: |=)({_NUMBER})(?=[,\]| ]|$)")
_TRAINER: Final = re.compile(rf"\{{'loss': '?({_NUMBER})'?, .{{0,400}}'epoch': ")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """What the lines of a log have shown so far."""

    bar: tuple[int, int] | None = None
    """Step and number of steps of the last progress bar without a name."""

    total: int = 0
    """Number of steps of the bar of Hugging Face's Trainer; 0 until it is known. Its other bars,
    such as those of an evaluation, have the same form."""

    last: int | None = None
    """Highest step."""


def after_line(progress: LogProgress, line: str) -> tuple[LogProgress, StepReport | None]:
    """Return the progress after one more line, and its report if it has one.

    A step that was reported before is reported again only with a loss that is not finite: all ranks
    may print it.
    """
    text = _ANSI.sub("", line[:_LINE_CHARS]) if "\x1b" in line else line[:_LINE_CHARS]
    progress, report = _of_trainer(progress, text)
    report = report or _of_line(text)
    if report is None:
        return progress, None
    is_finite = report.loss is None or math.isfinite(report.loss)
    if progress.last is not None and report.step <= progress.last and is_finite:
        return progress, None
    return replace(progress, last=max(report.step, progress.last or 0)), report


def has_bad_loss(line: str) -> bool:
    """Return whether a line reports a loss that is not finite."""
    return _BAD_LOSS.search(line[:_LINE_CHARS]) is not None


_BAD_LOSS: Final = re.compile(
    r"(?<![a-z])loss\w{0,10}['\"]?(?:: {1,9}|=| {1,9})'?[-+]?(?:nan|inf)\b", re.IGNORECASE
)


def _of_line(text: str) -> StepReport | None:
    if (found := _GLOBAL_STEP.search(text)) is not None:  # before Megatron: NeMo counts epochs
        return StepReport(step=int(found[1]), loss=_first(_BAR_LOSS, text))
    if (found := _MEGATRON.search(text)) is not None:
        loss = _first(_MEGATRON_LOSS, text)
        # Megatron leaves out the mean of a loss that was NaN.
        return StepReport(step=int(found[1]), loss=math.nan if _MEGATRON_NAN.search(text) else loss)
    for pattern in (_TITAN, _DEEPSPEED_PIPE):
        if (found := pattern.search(text)) is not None:
            return StepReport(step=int(found[1]), loss=float(found[2]))
    if (found := _DEEPSPEED.search(text)) is not None:
        return StepReport(step=int(found[1]))
    if (found := _LIGHTNING.match(text)) is not None:
        epoch, batch, batches = map(int, found.groups())
        return StepReport(step=epoch * batches + batch, loss=_first(_BAR_LOSS, text))
    return None


def _of_trainer(progress: LogProgress, text: str) -> tuple[LogProgress, StepReport | None]:
    """Return the step of the Trainer's bar, and the loss of the dictionary that follows it."""
    if (found := _BAR.match(text)) is not None:
        step, total = int(found[1]), int(found[2])
        progress = replace(progress, bar=(step, total))
        return progress, StepReport(step=step) if total == progress.total else None
    if (found := _TRAINER.search(text)) is not None and progress.bar is not None:
        step, total = progress.bar
        report = StepReport(step=step, loss=float(found[1]))
        if progress.last == step:  # the bar has reported the step already
            progress = replace(progress, last=step - 1)
        return replace(progress, total=total), report
    return progress, None


def _first(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return None if found is None else float(found[1])
