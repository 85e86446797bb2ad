"""Masks secrets in environments and arguments of processes before they are stored or shown."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

MASK: Final = "********"

_VALUE_CHARS: Final = 500
_ENTRIES_LIMIT: Final = 500

_SECRET: Final = re.compile(
    r"pass(?:word|wd|phrase)?|secret|token|credential|(?:api|access|private|signing)_?-?key|auth"
    r"|cookie|session|\bkey\b|_key$|dsn|connection_?string|signature|sas",
    re.IGNORECASE,
)
"""Part of the name of a variable or an option whose value is a secret."""

_AROUND_EQUALS: Final = re.compile(r"\s{0,100}=\s{0,100}")

_IN_VALUE: Final = re.compile(
    r"(?P<head>://[^/\s:@]{0,200}:)[^@\s/]{1,500}@"  # user:password@ of a URL
    r"|\b(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|ASIA)[A-Za-z0-9_-]{8,200}"
    r"|\beyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_.-]{10,4000}"  # JSON Web Token
)
"""Secrets that are recognized by their form."""


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables with secrets masked, sorted by name, at most 500 of 500 characters each."""
    return {
        name[:_VALUE_CHARS]: MASK if _SECRET.search(name) else masked_text(value)[:_VALUE_CHARS]
        for name, value in sorted(environment.items())[:_ENTRIES_LIMIT]
    }


def masked_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return arguments with the values of secret options masked, at most 500."""
    masked: list[str] = []
    is_secret = False
    for argument in arguments[:_ENTRIES_LIMIT]:
        name, equals, value = argument.partition("=")
        if is_secret and not argument.startswith("-"):
            masked.append(MASK)
            is_secret = False
            continue
        is_secret = argument.startswith("-") and not equals and bool(_SECRET.search(argument))
        if equals and _SECRET.search(name):
            masked.append(f"{name[:_VALUE_CHARS]}={MASK}")
        else:
            masked.append(masked_text(f"{name}{equals}{value}")[:_VALUE_CHARS])
    return tuple(masked)


def masked_command(command: str) -> str:
    """Return a command line whose arguments are separated by spaces, with secrets masked.

    The value of a secret option is masked up to the next option, because it may contain spaces.
    """
    masked: list[str] = []
    is_secret = False
    for word in _AROUND_EQUALS.sub("=", command).split()[:_ENTRIES_LIMIT]:
        is_option = word.startswith("-")
        if is_secret and not is_option:
            if masked[-1] != MASK and not masked[-1].endswith(f"={MASK}"):
                masked.append(MASK)
            continue
        name, equals, _ = word.partition("=")
        is_secret = bool(_SECRET.search(name)) and (is_option or bool(equals))
        masked.append(
            f"{name[:_VALUE_CHARS]}={MASK}"
            if equals and is_secret
            else masked_text(word)[:_VALUE_CHARS]
        )
    return " ".join(masked)


def masked_text(text: str) -> str:
    """Return a text with passwords in URLs and well-known tokens masked."""
    return _IN_VALUE.sub(lambda match: f"{match['head']}{MASK}@" if match["head"] else MASK, text)
