"""Reads rule files for the kernel log."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from holdfast.detectors.custom_rules import CustomRule, RuleFile, adversarial_messages
from holdfast.kit import match_worker
from holdfast.kit.config import load_config
from holdfast.model.errors import ConfigError

_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH
_TIMEOUT_S: Final = 60
"""Timeout for testing one rule, which takes about 50 ms of processor time."""

_MESSAGES: Final = 50
"""This many messages may take ``match_worker.LIMIT_S`` of processor time: 5 ms each."""


def read_rules(paths: Iterable[Path]) -> Mapping[str, CustomRule]:
    """Return the rules of all files by name, in the order of the files.

    Raises:
        ConfigError: a file cannot be read or trusted, a rule is invalid or too slow, or a name
            occurs in two files. Each problem begins with the path and names the rule and the key.

    """
    rules: dict[str, CustomRule] = {}
    for path in paths:
        _check_owner(path)
        found = load_config(path, RuleFile).rule
        if doubles := sorted(found.keys() & rules.keys()):
            raise ConfigError(
                f"{path}: rule.{one}: another file has a rule of this name; rename one"
                for one in doubles
            )
        if slow := list(_slow(found)):
            raise ConfigError(f"{path}: {problem}" for problem in slow)
        rules |= found
    return rules


def _check_owner(path: Path) -> None:
    """Check the file's owner and mode, as a rule can trigger a reboot."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"{path}: owned by user {status.st_uid}; expected root or the user of the agent"
            f" ({os.geteuid()}); run: chown root {path}"
        )
    if status.st_mode & _WRITABLE:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(
            f"{path}: mode {mode:04o} lets other users write it; run: chmod go-w {path}"
        )


def _slow(rules: Mapping[str, CustomRule]) -> Iterator[str]:
    """Problems of rules whose patterns take too long on some message."""
    for name, rule in rules.items():
        try:
            problem = _tested(rule)
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"cannot be tested: {error}"
        if problem:
            yield f"rule.{name}.pattern: {problem}"


def _tested(rule: CustomRule) -> str:
    """Return the problem of a rule's pattern, empty if none. Matches in a separate process."""
    messages = adversarial_messages(rule)
    tested = [{"pattern": rule.pattern, "stop": "", "number": False}]
    requests = [
        json.dumps({"rules": tested, "lines": messages[start : start + _MESSAGES]})
        for start in range(0, len(messages), _MESSAGES)
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-S", Path(match_worker.__file__)],
        input="\n".join(requests) + "\n",
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=_TIMEOUT_S,
    )
    answers = [answer for line in done.stdout.splitlines() for answer in json.loads(line)]
    return next((f"expected {one}" for one in answers if isinstance(one, str)), "")
