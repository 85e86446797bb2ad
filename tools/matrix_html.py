"""The fault matrix as one HTML page, with a column for each kind of job."""

import html
from collections.abc import Iterator

from fault_matrix import COLUMNS, FAULTS, PLATFORMS, cell, recorded, why_empty

_STYLE = """
:root { color-scheme: light dark; font: 13px/1.4 system-ui, sans-serif; }
body { margin: 0; padding: 1rem; }
table { border-collapse: separate; border-spacing: 0; }
th, td { border-right: 1px solid #8884; border-bottom: 1px solid #8884; padding: .35rem .5rem;
  text-align: left; vertical-align: top; min-width: 7rem; }
thead th { background: Canvas; position: sticky; top: 0; z-index: 1; }
thead tr:last-child th { top: 2.1rem; }
tbody th { background: Canvas; position: sticky; left: 0; min-width: 18rem; font-weight: normal; }
.part { color: GrayText; font-size: 11px; text-transform: uppercase; }
.resumes { background: #2e7d3226; }
.ends { background: #c6282826; }
.none { color: GrayText; font-size: 11px; }
"""
_ENDS = {"failed", "cancelled", "FAILED", "CANCELLED"}
"""States of jobs that are not resumed."""


def page() -> Iterator[str]:
    """The lines of the page; it loads nothing."""
    yield '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
    yield "<!-- Written by `make docs` from tests/fault_matrix.json; change it there. -->"
    yield f"<title>Holdfast: fault matrix</title><style>{_STYLE}</style></head><body>"
    yield '<h1>Fault matrix</h1><p><a href="fault-matrix/">Explanation and details</a></p>'
    yield "<table><thead><tr><th rowspan=2>Fault</th>"
    for platform, kinds in PLATFORMS.items():
        yield f"<th colspan={len(kinds)}>{platform}</th>"
    yield "</tr><tr>"
    yield from (f"<th>{kind}</th>" for kinds in PLATFORMS.values() for kind in kinds)
    yield "</tr></thead><tbody>"
    known = recorded()
    for name, fault in FAULTS.items():
        part = f'<span class="part">{fault.part}</span><br>'
        yield f"<tr><th>{part}{html.escape(fault.title.replace('`', ''))}</th>"
        for column in COLUMNS:
            result = known.get(name, {}).get(column)
            if result is None:
                why = html.escape(why_empty(name, column).replace("`", ""))
                yield f'<td class="none">{why}</td>'
            else:
                kind = "ends" if result["outcome"]["job"] in _ENDS else "resumes"
                test = html.escape(result["test"])
                yield f'<td class="{kind}" title="{test}">{html.escape(cell(result))}</td>'
        yield "</tr>"
    yield "</tbody></table></body></html>"
