"""What the pages point to is there, and the commands that they show are understood."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from source_tree import ROOT

from holdfast.apps.cli.main import cli
from holdfast.apps.main import LIGHT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|[$#|(] ?|/|sudo |[\w.-]+# )holdfast ([a-z].*)$")
"""A command line: at the start, after a prompt or a pipe, or by the path of the program."""

IN_A_SENTENCE = re.compile(r"`holdfast ([a-z][^`]*)`")


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


def path_of(words: list[str], known: dict[str, click.Command]) -> str:
    """The longest command that the words begin with."""
    paths = (one for one in known if words[: len(one.split())] == one.split())
    return max(paths, key=len)


def parse(path: str, command: click.Command, arguments: list[str]) -> None:
    """Read a command line as the program does; some start without click."""
    light = LIGHT.get(path.removeprefix("holdfast "))
    if light:
        import_module(light).command_line_parser().parse_args(arguments)
        return
    with command.make_context(path, arguments):
        pass


def test_every_command_line_that_is_shown_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("job.yaml", "train.yaml"):
        (tmp_path / file).touch()
    known = dict(commands(cli, "holdfast"))
    shown = [(page, ["holdfast", *words]) for page in PAGES for words in command_lines(page)]
    for page, words in shown:
        path = path_of(words, known)
        if "--help" in words:
            continue
        assert not isinstance(known[path], click.Group), f"{name(page)} shows {words}"
        try:
            parse(path, known[path], words[len(path.split()) :])
        except (click.UsageError, SystemExit) as error:
            pytest.fail(f"{name(page)} shows {shlex.join(words)}: {error}")

    assert len(shown) > 90


def unknown_words(line: str, known: dict[str, click.Command]) -> list[str]:
    """Subcommands and options of a command in a sentence that do not exist."""
    words = ["holdfast", *shlex.split(re.split(r" [|>&]|;| \.\.\.", line)[0])]
    path = path_of(words, known)
    rest = words[len(path.split()) :]
    command = known[path]
    if isinstance(command, click.Group):
        return rest
    if path.removeprefix("holdfast ") in LIGHT:
        parser = import_module(LIGHT[path.removeprefix("holdfast ")]).command_line_parser()
        options = set(parser._option_string_actions)
    else:
        options = {one for each in command.params for one in (*each.opts, *each.secondary_opts)}
    own = rest[: rest.index("--")] if "--" in rest else rest
    return [one for one in own if one.startswith("-") and one.split("=")[0] not in options]


def test_every_command_in_a_sentence_exists() -> None:
    known = dict(commands(cli, "holdfast"))
    shown = [
        (name(page), " ".join(line.split()))
        for page in PAGES
        if page.name != "CHANGELOG.md"  # names several commands at once
        for line in IN_A_SENTENCE.findall(prose(page))
    ]
    wrong = [(page, line) for page, line in shown if unknown_words(line, known)]

    assert wrong == []
    assert len(shown) > 150


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("nodes list --watch", []),
        ("nodes shows", ["shows"]),
        ("nodes list --wait", ["--wait"]),
        ("launch --max-restart 3", ["--max-restart"]),
        ("nodes shell 0 -- ls --no-such", []),
        ("jobs", []),
    ],
)
def test_unknown_words_of_a_command(line: str, unknown: list[str]) -> None:
    assert unknown_words(line, dict(commands(cli, "holdfast"))) == unknown


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_toml_that_is_shown_is_toml(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "toml":
            tomllib.loads(block)


def test_every_name_of_the_python_api_has_a_meaning() -> None:
    page = (ROOT / "docs/reference/python-api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \|(.*)\|$", page, re.MULTILINE)
    sections = re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]

    assert len(rows) > 100
    assert [row for row, meaning in rows if not meaning.strip()] == []
    assert [one for one in sections if not one.partition("\n")[2].strip()] == []
