"""Results that Megatron-LM's rerun state machine stores of steps that it has rerun. Pure.

``--result-rejected-tracker-filename`` names the file; ``core/rerun_state_machine.py`` writes lines
such as::

    ts=2026-01-01T00:00:00 node=gpu-1 device=3 jobID=7 rank=11 iteration=120 \
status=first_rerun_not_reproducible result=nan message='loss is nan'
"""

import re
from collections.abc import Sequence
from typing import Final

OPTION: Final = "--result-rejected-tracker-filename"

_FIELD: Final = re.compile(r"(?:^| )(node|device|rank|iteration|status|result)=(\S{1,200})")
_MESSAGE: Final = re.compile(r"message='(.{0,300}?)'\s*$")

_MEANINGS: Final = {
    "initial_run": "a result was rejected, rerunning the step",
    "first_rerun_not_reproducible": "the rerun had a different result: transient error",
    "first_rerun_reproducible": "the rerun had the same result, rerunning on another accelerator",
    "second_rerun_not_reproducible": "the rerun on another accelerator had a different result: the "
    "first accelerator is faulty",
    "second_rerun_reproducible": "the rerun on another accelerator had the same result: the "
    "software or the data is the cause",
    "rerun_disabled": "a result was rejected, and reruns are disabled",
}


def result_file(command: Sequence[str]) -> str:
    """Return the file that a command line of Megatron names; empty if it names none."""
    for place, word in enumerate(command):
        if word == OPTION:
            return command[place + 1] if place + 1 < len(command) else ""
        if word.startswith(f"{OPTION}="):
            return word.partition("=")[2]
    return ""


def rerun_text(text: str, rank: int) -> str:
    """Return the last result of a rank, for people to read; empty if there is none.

    Args:
        text: end of the file; other lines than results are ignored.
        rank: the rank.

    """
    for line in reversed(text.splitlines()):
        fields = dict(_FIELD.findall(line.partition(" message=")[0]))
        meaning = _MEANINGS.get(fields.get("status", ""))
        if meaning is None or fields.get("rank") != str(rank):
            continue
        message = _MESSAGE.search(line)
        where = f"iteration {fields.get('iteration', '?')} on device {fields.get('device', '?')}"
        quoted = f" ({message[1]})" if message is not None and message[1] else ""
        return f"{where} of {fields.get('node', '?')}: {meaning}{quoted}"
    return ""
