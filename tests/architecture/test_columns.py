"""Tables of all commands: what is wrong is never cut, whatever the width of the terminal."""

import ast

from source_tree import walk_package

NEVER_CUT = {"reason", "health", "fault", "failure", "failures"}


def columns() -> list[tuple[str, dict[str, ast.expr]]]:
    """File and arguments of each column of a table of the commands."""
    return [
        (name, {one.arg: one.value for one in node.keywords if one.arg})
        for name, node in walk_package()
        if name.startswith("holdfast/apps/cli/")
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Column"
    ]


def is_set(argument: ast.expr | None) -> bool:
    return isinstance(argument, ast.Constant) and argument.value is True


def test_what_is_wrong_is_never_cut_or_left_out() -> None:
    found = [
        (name, title.value)
        for name, arguments in columns()
        if isinstance(title := arguments["title"], ast.Constant)
        and str(title.value).lower() in NEVER_CUT
        and not (is_set(arguments.get("whole")) and "drop" not in arguments)
    ]

    assert found == []


def test_the_titles_of_all_columns_are_known_to_this_test() -> None:
    found = columns()
    titles = {one["title"].value for _, one in found if isinstance(one["title"], ast.Constant)}

    assert len(found) > 80
    assert titles >= NEVER_CUT
    assert all(isinstance(one["title"], ast.Constant) for _, one in found)
