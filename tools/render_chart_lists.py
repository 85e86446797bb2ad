"""Writes the lists that the chart's templates take from the code.

- the conditions that the admission policy lets agents set: ``AGENT_CONDITIONS`` in
  ``holdfast/model/names/conditions.py``;
- the kinds of jobs with their API groups and collections, which roles name: ``KINDS`` in
  ``holdfast/adapters/kubernetes/jobs/kinds.py``;
- what each detector reads of its node apart from logs: ``Detector.reads``, and ``Source.reads`` in
  ``holdfast/adapters/host/sources.py``.

With ``--check`` the tool only reports whether a file is stale.

Exit code: 0 if all are fresh (or were written), 1 if ``--check`` found a stale one.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Final

from holdfast.adapters.host.sources import SOURCES
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors
from holdfast.model.names import AGENT_CONDITIONS

ROOT: Final = Path(__file__).parents[1]
TEMPLATES: Final = ROOT / "deploy" / "helm" / "holdfast" / "templates"


def templates() -> Mapping[str, str]:
    """File names with the Helm templates: the conditions as a list in CEL, the rest as YAML."""
    names = fill(", ".join(f"'{one}'" for one in AGENT_CONDITIONS), width=90)
    kinds = "\n".join(
        f"{one.kind}: {{group: {one.api_version.rpartition('/')[0]}, plural: {one.plural}}}"
        for one in KINDS
    )
    return {
        "_agent_conditions.tpl": _defined("agentConditions", f"[{names}]"),
        "_job_kinds.tpl": _defined("jobKinds", kinds),
        "_detector_paths.tpl": _defined("detectorPaths", _paths()),
    }


def _paths() -> str:
    """Directories of the node that each detector reads; detectors that read none are left out."""
    rows = []
    for one in detectors(Profile.HYPERPOD):
        sources = [SOURCES[name] for name in one.reads if name in SOURCES]
        if paths := sorted({f"/{path}" for source in sources for path in source.reads}):
            rows.append(f"{one.name}: [{', '.join(paths)}]")
    return "\n".join(rows)


def _defined(name: str, text: str) -> str:
    note = "{{- /* Written by tools/render_chart_lists.py. */ -}}\n"
    return f'{note}{{{{- define "holdfast.{name}" -}}}}\n{text}\n{{{{- end }}}}\n'


def main(argv: list[str]) -> int:
    """Write the templates, or check them."""
    stale = []
    for name, text in templates().items():
        path = TEMPLATES / name
        if argv != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        print(f"stale: {', '.join(stale)}; run python tools/render_chart_lists.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
