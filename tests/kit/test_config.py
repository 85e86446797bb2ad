from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.config import FILE_LIMIT, load_config, parse_table
from holdfast.kit.quota import Quota
from holdfast.model.errors import ConfigError


class Mode(StrEnum):
    AUTOMATIC = "Automatic"
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    mode: Mode = Mode.AUTOMATIC
    timeout: timedelta = timedelta(minutes=5)
    share: float = 0.5
    limit: Quota = Quota(percent=20.0)
    tries: int = 3

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries must be 1 or more, got {self.tries}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    name: str
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    dry_run: bool = False
    title: str | None = None
    policy: Policy = field(default_factory=Policy)
    groups: tuple[Group, ...] = ()
    pauses: tuple[timedelta, ...] = ()
    folder: Path | None = None
    by_name: dict[str, Policy] = field(default_factory=dict)


KNOWN = "dry_run, title, policy, groups, pauses, folder, by_name"


def problems(table: dict[str, object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_table(table, Settings)
    return caught.value.problems


def test_an_empty_table_gives_the_defaults() -> None:
    assert parse_table({}, Settings) == Settings()


def test_every_kind_of_field_is_read() -> None:
    table = {
        "dry_run": True,
        "title": "night",
        "policy": {"mode": "None", "timeout": "1h30m", "share": 1, "limit": "25%", "tries": 2},
        "groups": [{"name": "a", "nodes": 2}, {"name": "b"}],
        "pauses": ["1s", "200ms"],
    }

    assert parse_table(table, Settings) == Settings(
        dry_run=True,
        title="night",
        policy=Policy(
            mode=Mode.NONE,
            timeout=timedelta(minutes=90),
            share=1.0,
            limit=Quota(percent=25.0),
            tries=2,
        ),
        groups=(Group(name="a", nodes=2), Group(name="b")),
        pauses=(timedelta(seconds=1), timedelta(milliseconds=200)),
    )


def test_a_whole_number_becomes_a_float_where_one_is_expected() -> None:
    assert isinstance(parse_table({"policy": {"share": 1}}, Settings).policy.share, float)


def test_all_problems_are_reported_at_once_in_the_order_of_their_tables() -> None:
    table = {
        "dry_rum": True,
        "policy": {"trys": 3, "timeout": "soon", "share": True},
        "groups": [{"name": "a"}, {"nodes": "two"}],
    }

    assert problems(table) == (
        "dry_rum: unknown key (did you mean dry_run?)",
        "policy.trys: unknown key (did you mean policy.tries?)",
        "policy.timeout: 'soon' is not a duration such as 90s, 15m or 1h30m",
        "policy.share: expected a number, got true",
        "groups[1].name: missing, expected a text in quotes",
        "groups[1].nodes: expected a whole number, got 'two'",
    )


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"dry_run": 1}, "dry_run: expected true or false, got 1"),
        ({"dry_run": "true"}, "dry_run: expected true or false, got 'true'"),
        ({"title": 5}, "title: expected a text in quotes, got 5"),
        ({"policy": 5}, "policy: expected a table, got 5"),
        ({"policy": {"tries": True}}, "policy.tries: expected a whole number, got true"),
        ({"policy": {"tries": 1.0}}, "policy.tries: expected a whole number, got 1.0"),
        ({"policy": {"share": float("nan")}}, "policy.share: expected a number, got nan"),
        ({"policy": {"share": float("inf")}}, "policy.share: expected a number, got inf"),
        ({"policy": {"share": {}}}, "policy.share: expected a number, got a table"),
        (
            {"policy": {"timeout": 90}},
            "policy.timeout: expected a duration such as 90s, 15m or 1h30m in quotes, got 90",
        ),
        (
            {"policy": {"mode": "automatic"}},
            'policy.mode: expected one of "Automatic", "None", got \'automatic\'',
        ),
        (
            {"policy": {"limit": "a few"}},
            "policy.limit: 'a few' is neither a count such as 3 nor a percentage such as 20%",
        ),
        (
            {"policy": {"limit": {"count": 3}}},
            "policy.limit: {'count': 3} is neither a count such as 3 nor a percentage such as 20%",
        ),
        ({"groups": {"name": "a"}}, "groups: expected an array, got a table"),
        ({"groups": ["a"]}, "groups[0]: expected a table, got 'a'"),
        (
            {"pauses": ["1s", 2]},
            "pauses[1]: expected a duration such as 90s, 15m or 1h30m in quotes, got 2",
        ),
        ({"surprise": 1}, f"surprise: unknown key; expected one of {KNOWN}"),
    ],
)
def test_a_problem_names_the_key_the_value_and_what_was_expected(
    table: dict[str, object], problem: str
) -> None:
    assert problems(table) == (problem,)


def test_a_table_with_keys_of_any_name_is_read_and_its_problems_are_named() -> None:
    read = parse_table({"by_name": {"a-b": {"tries": 4}}, "folder": "/x"}, Settings)

    assert read.by_name == {"a-b": Policy(tries=4)}
    assert read.folder == Path("/x")
    assert problems({"by_name": {"a": {"tries": "x"}, "b": 1}}) == (
        "by_name.a.tries: expected a whole number, got 'x'",
        "by_name.b: expected a table, got 1",
    )
    assert problems({"by_name": 3}) == ("by_name: expected a table, got 3",)


@pytest.mark.parametrize("value", ["", "a\0b", 3])
def test_a_path_is_a_text_that_a_path_can_be(value: object) -> None:
    assert problems({"folder": value})[0].startswith("folder: expected a path in quotes, got ")


def test_a_number_too_large_for_a_float_is_a_problem_not_a_crash() -> None:
    assert problems({"policy": {"share": 10**400}})[0].startswith("policy.share: expected a number")


def test_what_post_init_rejects_is_a_problem_of_its_table() -> None:
    assert problems({"policy": {"tries": 0}}) == ("policy: tries must be 1 or more, got 0",)


def test_post_init_of_the_root_needs_no_path() -> None:
    with pytest.raises(ConfigError, match=r"^tries must be 1 or more, got 0$"):
        parse_table({"tries": 0}, Policy)


def test_post_init_does_not_judge_a_table_that_has_other_problems() -> None:
    assert problems({"policy": {"tries": 0, "share": "x"}}) == (
        "policy.share: expected a number, got 'x'",
    )


def test_a_problem_of_one_table_hides_none_of_another() -> None:
    assert problems({"dry_run": 1, "policy": {"tries": 0}}) == (
        "dry_run: expected true or false, got 1",
        "policy: tries must be 1 or more, got 0",
    )


keys = st.sampled_from(["dry_run", "title", "policy", "groups", "pauses", "other"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys | st.sampled_from(["mode", "limit", "name", "tries"]), inner)
    ),
    max_leaves=8,
)


def outcome(table: dict[str, object]) -> Settings | tuple[str, ...]:
    try:
        return parse_table(table, Settings)
    except ConfigError as error:
        return error.problems


@given(st.dictionaries(keys, values))
def test_any_table_gives_a_value_or_a_problem_for_each_unknown_key(
    table: dict[str, object],
) -> None:
    result = outcome(table)

    if isinstance(result, Settings):
        assert "other" not in table
    else:
        assert result
        assert (f"other: unknown key; expected one of {KNOWN}" in result) == ("other" in table)


def load(path: Path, content: bytes) -> Settings:
    path.write_bytes(content)
    return load_config(path, Settings)


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"

    assert load(path, b'title = "x"').title == "x"
    assert load(path, b'\xef\xbb\xbftitle = "x"').title == "x"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"dry_run = maybe", "not TOML: Invalid value (at line 1, column 11)"),
        (b'a = 1\ntitle = "\xff"', "line 2 is not UTF-8 text"),
        (b"dry_run = 1\nx = 1", "x: unknown key"),
        (b"a = " + b"9" * 5000, "not TOML: Exceeds the limit"),
        (b"a = " + b"[" * 5000, "not TOML: "),
    ],
)
def test_each_problem_of_a_file_begins_with_its_path(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "holdfast.toml"

    with pytest.raises(ConfigError) as caught:
        load(path, content)

    assert all(line.startswith(f"{path}: ") for line in caught.value.problems)
    assert caught.value.problems[-1 if "x:" not in problem else 0].startswith(f"{path}: {problem}")


def test_a_missing_file_and_a_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file or directory"):
        load_config(tmp_path / "none.toml", Settings)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path, Settings)


def test_a_file_of_more_than_1_mib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.toml"
    path.write_text("#" * (FILE_LIMIT + 1))
    with pytest.raises(ConfigError, match=r"big\.toml: larger than 1048576 bytes"):
        load_config(path, Settings)
