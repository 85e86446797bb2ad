"""Writes the lists that the chart's templates take from the code.

- the conditions that the admission policy lets agents set: ``AGENT_CONDITIONS`` in
  ``holdfast/model/names/conditions.py``;
- the kinds of jobs with their API groups and collections, which roles name: ``KINDS`` in
  ``holdfast/adapters/kubernetes/jobs/kinds.py``;
- what each detector reads of its node apart from logs: ``Detector.reads``, and ``Source.reads`` in
  ``holdfast/adapters/host/sources.py``.

The conditions are written to the plain manifests as well, so that a new one takes no Helm. With
``--check`` the tool only reports whether a file is stale.

Exit code: 0 if all are fresh (or were written), 1 if ``--check`` found a stale one.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill, indent
from typing import Final

from holdfast.adapters.host.sources import SOURCES
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors
from holdfast.model.names import AGENT_CONDITIONS

ROOT: Final = Path(__file__).parents[1]
TEMPLATES: Final = ROOT / "deploy" / "helm" / "holdfast" / "templates"
MANIFESTS: Final = ROOT / "deploy" / "kubernetes" / "holdfast.yaml"

_PLAIN_CONDITIONS: Final = re.compile(r"(?<=- name: ownConditions\n)( +expression: >-\n)[^\]]*\]")


def files() -> Mapping[Path, str]:
    """Files with their text: the conditions as a list in CEL, the rest of the chart as YAML."""
    quoted = ", ".join(f"'{one}'" for one in AGENT_CONDITIONS)
    names = f"[{fill(quoted, width=90)}]"
    kinds = "\n".join(
        f"{one.kind}: {{group: {one.api_version.rpartition('/')[0]}, plural: {one.plural}}}"
        for one in KINDS
    )
    plain = MANIFESTS.read_text(encoding="utf-8")
    return {
        TEMPLATES / "_agent_conditions.tpl": _defined("agentConditions", names),
        TEMPLATES / "_job_kinds.tpl": _defined("jobKinds", kinds),
        TEMPLATES / "_detector_paths.tpl": _defined("detectorPaths", _paths()),
        MANIFESTS: _PLAIN_CONDITIONS.sub(rf"\1{indent(names, ' ' * 8)}", plain),
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
    """Write the files, or check them."""
    stale = []
    for path, text in files().items():
        if argv != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        print(f"stale: {', '.join(stale)}; run: make reference")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
