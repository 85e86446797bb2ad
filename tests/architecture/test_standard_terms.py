"""Everything that a person reads or types uses the standard terms of the glossary.

That is help texts, documents, identifiers, string literals (errors, log lines, events, keys on the
wire), docstrings, comments, the chart and the console.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import click
from source_tree import FILES, PACKAGE, ROOT, relative, tree

from holdfast.apps.cli.main import COMMANDS, cli

RETIRED = {
    "anatomy": "pod templates",
    "course": "remediation",
    "duty": "periodic task",
    "gist": "fingerprint",
    "happening": "cluster event",
    "hurry": "requeue now",
    "keeper": "cluster supervisor",
    "lent": "borrowed",
    "needy": "in need of a check",
    "patience": "timeout",
    "patient": "job under test",
    "said": "printed, reported",
    "say": "print, report, log",
    "spoil": "invalidate",
    "surroundings": "dependencies",
    "tell": "report, log, emit",
    "told": "reported, logged, emitted",
    "trap": "rule, finding",
    "upkeep": "drift correction",
    "wish": "desired state, request",
    "witness": "corroborating evidence",
}
"""Words without a meaning in the field, and the standard term for each (see the glossary)."""

IDENTIFIERS_ONLY = {
    "asked": "requested",
    "astray": "drifted",
    "beat": "heartbeat",
    "bricked": "fails to boot",
    "bury": "reap",
    "complaint": "error message",
    "death": "failure, exit",
    "embodied": "with a body object",
    "grave": "critical",
    "heard": "heartbeat, report received",
    "lane": "queue",
    "looks": "snapshots, appearances",
    "mend": "correct",
    "mine": "own",
    "news": "updates, changes",
    "objection": "rejection",
    "obey": "apply",
    "ours": "own, managed",
    "played": "fake",
    "rooms": "capacity",
    "seats": "members",
    "stamped": "patch, metadata",
    "storyteller": "fault injector",
    "stranded": "orphaned",
    "strangers": "foreign",
    "telling": "recorder",
    "theirs": "peer, other",
    "timepiece": "time source",
    "turns": "rounds, iterations",
    "twins": "nodes on the same machine",
    "unasked": "unmanaged",
    "unbegun": "pending",
    "vain": "refused, inconclusive",
    "wanted": "requested, expected, required",
    "ways": "methods",
}
"""Ordinary words in a sentence, but no names for what a program does."""

NAMES = {
    "Candidate": "leader election",
    "Copy": "cache of an informer",
    "NodeCopies": "cache of an informer",
    "Posted": "client of a webhook",
    "Receiver": "client of a webhook",
    "Terms": "leader election",
    "Word": "parsed annotation",
    "held": "repairs paused; stored; locked",
    "marks": "keywords of a prefilter",
    "word_of": "parsed annotation",
}
"""Whole names, without leading underscores: their words have other, standard meanings."""

PHRASES = {
    "bring about": "apply",
    "give back": "return, release",
    "go on": "continue, be active",
    "hold back": "defer",
    "last words": "termination message",
    "look after": "manage, monitor",
    "own words": "error message",
    "write down": "record, persist",
}
"""Words that are retired together only."""

ALLOWED = {
    ("holdfast/adapters/checkpoints/pickles.py", "marks"): "MARK of the pickle protocol",
    (
        "holdfast/adapters/kubernetes/uninstall.py",
        "marks",
    ): "labels, taints and conditions of nodes",
    ("holdfast/detectors/host_lockup.py", "trap"): "a word of the kernel's messages",
    ("holdfast/detectors/host_lockup.py", "traps"): "a word of the kernel's messages",
    ("tests/engines/real_network.py", "trap"): "a builtin of the shell",
}
"""File and word to the reason why the word is the standard term there."""

NO_PROSE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|\S+/\S+|\bof course\b", re.DOTALL)
"""Commands, names in code quotes, paths and addresses, and a phrase of everyday English."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

IRREGULAR = {
    "brings": "bring",
    "brought": "bring",
    "gave": "give",
    "given": "give",
    "gives": "give",
    "giving": "give",
    "goes": "go",
    "going": "go",
    "gone": "go",
    "held": "hold",
    "holds": "hold",
    "looked": "look",
    "looking": "look",
    "looks": "look",
    "went": "go",
    "writes": "write",
    "writing": "write",
    "written": "write",
    "wrote": "write",
}
"""Forms of the verbs in the phrases."""

PROGRAMS = sorted(
    {*FILES, *(path for folder in ("bench", "tools") for path in (ROOT / folder).rglob("*.py"))}
)

TEXT_SUFFIXES = {".c", ".css", ".html", ".js", ".json", ".pyi", ".service", ".sh"}
"""Of files in the package and in ``tools`` that are not Python."""

TEXTS = sorted(
    path
    for path in (
        *(one for one in (ROOT / "deploy").rglob("*") if one.is_file()),
        *(one for one in PACKAGE.rglob("*") if one.suffix in TEXT_SUFFIXES),
        *(one for one in (ROOT / "tools").rglob("*") if one.suffix in TEXT_SUFFIXES),
        *(ROOT / name for name in ("Makefile", "mkdocs.yml", "pyproject.toml")),
    )
)
"""The chart, the image, the console, scripts and settings."""

DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name not in ("CHANGELOG.md",)
)


def forms(word: str) -> set[str]:
    ends_in_ies = word.endswith("y") and word[-2] not in "aeiou"
    plural = f"{word[:-1]}ies" if ends_in_ies else f"{word}s"
    return {word, plural, f"{word}es", f"{word}ed", f"{word}ing"}


def forbidden(*tables: Mapping[str, str]) -> dict[str, str]:
    return {form: term for table in tables for word, term in table.items() for form in forms(word)}


PROSE_WORDS = forbidden(RETIRED)
NAME_WORDS = forbidden(RETIRED, IDENTIFIERS_ONLY)


def identifiers(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def written(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the string literals, docstrings and comments of a program, with their lines."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if "#" in line:  # in a literal, too, whose words are checked anyway
            yield number, line.partition("#")[2]


def words_of(text: str) -> list[str]:
    return [part.lower() for part in WORD.findall(text)]


def retired_in(text: str, words: Mapping[str, str] = PROSE_WORDS) -> dict[str, str]:
    """Return the retired words and phrases of a text, each with the standard term."""
    found = {}
    for clause in re.split(r"[.,:;!?()]", NO_PROSE.sub(" . ", text)):
        written_out = words_of(clause)
        found |= {word: words[word] for word in written_out if word in words}
        for pair in pairwise(IRREGULAR.get(word, word) for word in written_out):
            if (phrase := " ".join(pair)) in PHRASES:
                found[phrase] = PHRASES[phrase]
    return found


def retired_name(name: str) -> dict[str, str]:
    whole = name.lstrip("_")
    return {**retired_in(name, NAME_WORDS), **({whole: NAMES[whole]} if whole in NAMES else {})}


def retired_literal(text: str) -> dict[str, str]:
    """A literal that is one name is a key, a field or an option: a name, too."""
    return retired_in(text, NAME_WORDS if NAME.fullmatch(text) else PROSE_WORDS)


def not_allowed(path: Path, found: Mapping[str, str]) -> dict[str, str]:
    return {word: term for word, term in found.items() if (relative(path), word) not in ALLOWED}


def commands(group: click.Command, path: str = "holdfast") -> Iterator[tuple[str, click.Command]]:
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None:
                yield from commands(command, f"{path} {name}")


def help_of(command: click.Command) -> str:
    options = [getattr(parameter, "help", None) or "" for parameter in command.params]
    return "\n".join([command.help or "", command.short_help or "", command.epilog or "", *options])


def test_identifiers_are_free_of_retired_words() -> None:
    found = {
        f"{relative(path)}: {name}": bad
        for path in PROGRAMS
        for name in {path.stem, *identifiers(tree(path))}
        if (bad := not_allowed(path, retired_name(name)))
    }

    assert found == {}


def test_literals_docstrings_and_comments_are_free_of_retired_words() -> None:
    found = {
        f"{relative(path)}:{line}: {text[:60]}": bad
        for path in PROGRAMS
        for line, text in written(path)
        if (bad := not_allowed(path, retired_literal(text)))
    }

    assert found == {}


def test_help_is_free_of_retired_words() -> None:
    texts = {path: help_of(command) for path, command in commands(cli)}

    assert len(texts) > len(COMMANDS)
    assert {path: bad for path, text in texts.items() if (bad := retired_in(text))} == {}


def test_documents_are_free_of_retired_words() -> None:
    texts = {relative(path): path.read_text(encoding="utf-8") for path in DOCUMENTS}

    assert {name: bad for name, text in texts.items() if (bad := retired_in(text))} == {}


def test_the_chart_and_the_console_are_free_of_retired_words() -> None:
    found = {
        f"{relative(path)}:{number}": bad
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (bad := not_allowed(path, retired_in(line)))
    }

    assert {path.suffix for path in TEXTS} >= {".html", ".js", ".json", ".tpl", ".yaml"}
    assert found == {}


def test_each_exception_is_used() -> None:
    used = {
        (file, word)
        for file, word in ALLOWED
        for text in (*identifiers(tree(ROOT / file)), *(text for _, text in written(ROOT / file)))
        if word in {*retired_name(text), *retired_literal(text)}
    }

    assert used == set(ALLOWED)
