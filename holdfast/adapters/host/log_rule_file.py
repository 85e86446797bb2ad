"""Reads the log rules of a job from a file that a person wrote."""

from pathlib import Path
from typing import Final

from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.log_rule_text import TEXT_LIMIT, rules_of
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.decisions.log_rules import JobLogRule
from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.rejections import Rejection
from holdfast.model.errors import BackendError, ConfigError

_UTF8_BYTES: Final = 4
"""Maximum bytes of a character."""


def load_log_rules(path: Path, source: str) -> tuple[JobLogRule, ...]:
    """Return the rules of a file in JSON or YAML; their patterns are valid.

    Args:
        path: the file.
        source: option or variable that names it.

    Raises:
        ConfigError: it cannot be read, or has mistakes; with a line for each.

    """
    try:
        data = read_bounded(path, _UTF8_BYTES * TEXT_LIMIT, follow_links=True)
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"{source}: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: {path}: expected text in UTF-8: {error}") from error
    rules, rejected = rules_of(text, str(path))
    if not rejected:
        rejected = _invalid_patterns(rules, source)
    if rejected:
        raise ConfigError([f"{source}: {_shown(one, path)}" for one in rejected])
    return rules


def _shown(rejection: Rejection, path: Path) -> str:
    """Return a mistake for people to read; not the whole text, if that is the mistake."""
    is_whole = rejection.key == str(path)
    return f"{path}: expected {rejection.expected}" if is_whole else str(rejection)


def _invalid_patterns(rules: tuple[JobLogRule, ...], source: str) -> tuple[Rejection, ...]:
    matcher = PatternMatcher()
    try:
        checked = JobLogRules(matcher, rules)
        checked.validate()
    except BackendError as error:
        raise ConfigError(f"{source}: the patterns could not be checked: {error}") from error
    finally:
        matcher.close()
    return checked.rejected
