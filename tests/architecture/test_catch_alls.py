import ast

from source_tree import walk_package

ALLOWED = {
    "holdfast/engine/agent_loop.py": "a broken detector must not blind the others",
    "holdfast/kit/plugins.py": "a plug-in, or a module of --preload, may raise anything",
    "holdfast/apps/main.py": "the outermost handler of every process",
}
"""Where anything may be caught, with the reason: three places at most."""

EVERYTHING = {"Exception", "BaseException"}


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in EVERYTHING for kind in kinds)


def test_anything_is_caught_in_the_named_places_only_and_once_in_each() -> None:
    found = [
        file
        for file, node in walk_package()
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    ]

    assert sorted(found) == sorted(ALLOWED)
    assert len(ALLOWED) <= 3


def test_errors_are_suppressed_by_name() -> None:
    found = [
        file
        for file, node in walk_package()
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress"
        and any(isinstance(kind, ast.Name) and kind.id in EVERYTHING for kind in node.args)
    ]

    assert found == []
