"""What the documentation tells people to write works."""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.adapters.host.log_rule_text import rules_of
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.model.names import LOG_MONITORING

PAGE = Path(__file__).parents[2] / "docs/howto/resume-jobs-on-kubernetes.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def block(word: str) -> Any:
    (found,) = [one for one in BLOCKS if word in one]
    return yaml.safe_load(found)


def test_the_rules_can_be_used():
    text = block(LOG_MONITORING)["metadata"]["annotations"][LOG_MONITORING]
    rules, rejected = rules_of(text, LOG_MONITORING)
    matcher = PatternMatcher()
    lines = ["12:00 loss: 0.25", "samples/sec: 79.5", "x NCCL WARN Timeout"]

    found = matcher.match(rules, lines)
    matcher.close()

    assert rejected == ()
    assert [[(index, hit.number) for index, hit in hits] for hits in found] == [
        [],
        [(0, 0.25)],
        [(1, 79.5)],
        [(2, None)],
    ]


@pytest.mark.parametrize(("age", "code", "said"), [(0, 0, ""), (900, 1, "no heartbeat for 9")])
def test_the_probe_ends_a_rank_whose_heartbeat_has_stopped(
    tmp_path: Path, age: int, code: int, said: str
):
    heartbeat, words = tmp_path / "heartbeat", tmp_path / "termination-log"
    words.touch()
    heartbeat.touch()
    os.utime(heartbeat, (time.time() - age,) * 2)
    command = block("livenessProbe")["livenessProbe"]["exec"]["command"]
    ours = {"/tmp/heartbeat": heartbeat, "/dev/termination-log": words, "/proc/1/fd/1": "/dev/null"}
    for theirs, own in ours.items():
        command = [word.replace(theirs, str(own)) for word in command]

    done = subprocess.run(command, check=False, capture_output=True)

    assert done.returncode == code
    assert words.read_text(encoding="utf-8")[: len(said) or None] == said
