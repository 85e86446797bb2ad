"""Help texts, documents and identifiers use the standard terms of the glossary."""

import ast
import re
from collections.abc import Iterator

import click
from source_tree import FILES, ROOT, relative, tree

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
    "said": "printed, reported",
    "say": "print, report, log",
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

NO_PROSE = re.compile(r"```.*?```|`[^`]*`|\S+/\S+|\bof course\b", re.DOTALL)
"""Commands, names in code quotes, paths and addresses, and a phrase of everyday English."""

DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name not in ("CHANGELOG.md",)
)


def forms(word: str) -> set[str]:
    if word.endswith(("sh", "ss")):
        return {word, f"{word}es"}
    return {word, f"{word[:-1]}ies" if word[-1] == "y" else f"{word}s"}


def forbidden(*tables: dict[str, str]) -> dict[str, str]:
    return {form: term for table in tables for word, term in table.items() for form in forms(word)}


def identifiers(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words_of(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def retired_in(text: str, words: dict[str, str]) -> set[str]:
    prose = NO_PROSE.sub(" ", text.lower())
    return {word for word in re.findall(r"[a-z]+", prose) if word in words}


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
    words = forbidden(RETIRED, IDENTIFIERS_ONLY)
    found = {
        f"{relative(path)}: {name}": words[part]
        for path in FILES
        for name in {path.stem, *identifiers(tree(path))}
        for part in words_of(name)
        if part in words
    }

    assert found == {}


def test_help_is_free_of_retired_words() -> None:
    words = forbidden(RETIRED)
    texts = {path: help_of(command) for path, command in commands(cli)}

    assert len(texts) > len(COMMANDS)
    assert {path: bad for path, text in texts.items() if (bad := retired_in(text, words))} == {}


def test_documents_are_free_of_retired_words() -> None:
    words = forbidden(RETIRED)
    texts = {relative(path): path.read_text(encoding="utf-8") for path in DOCUMENTS}

    assert {name: bad for name, text in texts.items() if (bad := retired_in(text, words))} == {}
