import ast
import inspect
from itertools import pairwise

from holdfast.model.names import Reason


def test_every_reason_says_what_it_means() -> None:
    [definition] = ast.parse(inspect.getsource(Reason)).body
    reported = {
        member.targets[0].id
        for member, doc in pairwise(definition.body)
        if isinstance(member, ast.Assign) and isinstance(doc, ast.Expr)
    }

    missing = {reason.name for reason in Reason} - reported
    assert missing == set(), "write what it means as a docstring below, in model/names/reasons.py"
