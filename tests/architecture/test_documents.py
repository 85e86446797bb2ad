"""What the pages point to is there, and the commands that they show are understood."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from source_tree import ROOT

from holdfast.apps.cli.main import cli

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|[$#|(] ?|/|sudo |[\w.-]+# )holdfast ([a-z].*)$")
"""A command line: at the start, after a prompt or a pipe, or by the path of the program."""

READ_ELSEWHERE = {"holdfast agent", "holdfast launch", "holdfast slurm supervise"}
"""These read their command line themselves: they start without click."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def targets(page: Path) -> Iterator[tuple[Path, str]]:
    """Files that a page links to, each with the heading that is meant or nothing."""
    for link in LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in targets(page):
        assert target.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {target.name}#{anchor}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", settings, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert pages - set(listed) == set()


def test_every_page_is_reached_from_the_first_one() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [target for target, _ in targets(page)]

    found = {page for page in PAGES if page.name != "CHANGELOG.md"}
    assert sorted(map(name, found - reached)) == []


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words of each ``holdfast ...`` that a page shows in a block."""
    for _, block in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in re.sub(r" ?\\\n *", " ", block).splitlines():
            shown = COMMAND.search(re.split(r" {2,}#| {3,}| [|>&] ?|\)\"", line.strip())[0])
            if shown and not shown[1].startswith(("api:", "agent:")):
                yield shlex.split(shown[1], comments=True)


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from commands(found, f"{path} {child}")


def test_every_command_line_that_is_shown_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("job.yaml", "train.yaml"):
        (tmp_path / file).touch()
    known = dict(commands(cli, "holdfast"))
    shown = [(page, ["holdfast", *words]) for page in PAGES for words in command_lines(page)]
    for page, words in shown:
        path = max(
            (one for one in known if words[: len(one.split())] == one.split()), key=len, default=""
        )
        if path in READ_ELSEWHERE or "--help" in words:
            continue
        assert not isinstance(known[path], click.Group), f"{name(page)} shows {words}"
        try:
            with known[path].make_context(path, words[len(path.split()) :]):
                pass
        except click.UsageError as error:
            pytest.fail(f"{name(page)} shows {shlex.join(words)}: {error.message}")

    assert len(shown) > 90


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_toml_that_is_shown_is_toml(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "toml":
            tomllib.loads(block)
