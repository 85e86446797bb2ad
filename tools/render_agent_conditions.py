"""Writes the list of conditions that the chart's admission policy lets agents set.

The list follows from ``AGENT_CONDITIONS`` in ``holdfast/model/names.py``. With ``--check`` the tool
only reports whether the file is stale.

Exit code: 0 if the file is fresh (or was written), 1 if ``--check`` found it stale.
"""

import sys
from pathlib import Path
from textwrap import fill
from typing import Final

from holdfast.model.names import AGENT_CONDITIONS

ROOT: Final = Path(__file__).parents[1]
TEMPLATE: Final = ROOT / "deploy" / "helm" / "holdfast" / "templates" / "_agent_conditions.tpl"


def template() -> str:
    """The Helm template that holds the conditions as a list in CEL."""
    names = fill(", ".join(f"'{one}'" for one in AGENT_CONDITIONS), width=90)
    return (
        "{{- /* Written by tools/render_agent_conditions.py from holdfast/model/names.py. */ -}}\n"
        '{{- define "holdfast.agentConditions" -}}\n'
        f"[{names}]\n"
        "{{- end }}\n"
    )


def main(argv: list[str]) -> int:
    """Write the template, or check it."""
    text = template()
    if argv != ["--check"]:
        TEMPLATE.write_text(text, encoding="utf-8")
        return 0
    if TEMPLATE.is_file() and TEMPLATE.read_text(encoding="utf-8") == text:
        return 0
    print(f"stale: {TEMPLATE.relative_to(ROOT)}; run python tools/render_agent_conditions.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
