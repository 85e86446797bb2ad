"""Writes the plain manifests: the Helm chart as ``helm template`` renders it.

With ``--check`` it only reports whether they are stale. Builds helm if need be, which takes Go and
some minutes.

Exit code: 0 if they are fresh (or were written), 1 if ``--check`` found them stale, 2 if there is
no helm, or helm refuses the chart.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from control_plane import CannotBuild, provide

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy" / "helm" / "holdfast"
MANIFESTS: Final = ROOT / "deploy" / "kubernetes" / "holdfast.yaml"

NOTE: Final = """\
# Written by tools/render_manifests.py from deploy/helm/holdfast, where it is to be changed.
"""


OLDEST: Final = "1.30.0"
"""The oldest Kubernetes that the chart is for; helm does not know any when it asks no cluster."""


class CannotRender(Exception):
    """Helm refused the chart; the text is its output."""


def manifests(helm: Path) -> str:
    """All of the chart, in the namespace ``holdfast``.

    Raises:
        CannotRender: helm found a mistake in it.

    """
    values = CHART / "examples" / "plain-manifests.yaml"
    argv = [helm, "template", "holdfast", CHART, "--namespace", "holdfast"]
    done = subprocess.run(
        [*argv, "--values", values, "--kube-version", OLDEST],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode != 0:
        raise CannotRender(done.stderr.strip())
    return NOTE + done.stdout


def main(argv: list[str]) -> int:
    """Write the manifests, or check them."""
    try:
        text = manifests(provide("helm")["helm"])
    except (CannotBuild, CannotRender) as error:
        print(error, file=sys.stderr)
        return 2
    is_fresh = MANIFESTS.is_file() and MANIFESTS.read_text(encoding="utf-8") == text
    if "--check" in argv and not is_fresh:
        print(f"stale: {MANIFESTS.relative_to(ROOT)}; run: python tools/render_manifests.py")
        return 1
    if not is_fresh:
        MANIFESTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
