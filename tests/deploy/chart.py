"""The chart and what helm makes of it."""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.engines.control_plane import FOR_GO

DEPLOY = Path(__file__).parents[2] / "deploy"
HELM_CHART = DEPLOY / "helm" / "holdfast"
EXAMPLES = sorted((HELM_CHART / "examples").glob("*.yaml"))
OLDEST_KUBERNETES = "1.30.0"
PROMETHEUS_OPERATOR = "monitoring.coreos.com/v1"

Object = dict[str, Any]


class ChartRefused(Exception):
    """Helm took values or templates for wrong; the text is what it said."""


@dataclass
class Helm:
    program: Path

    def run(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            check=False,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, **FOR_GO},
        )
        if done.returncode != 0:
            raise ChartRefused(done.stdout + done.stderr)
        warnings = [line for line in done.stderr.splitlines() if "[INFO]" not in line]
        assert warnings == [], "helm warns of nothing"
        return done.stdout

    def template(self, *values: Path, given: Iterable[str] = (), has_operator: bool = True) -> str:
        """The manifests with files of values, and over them ``KEY=JSON``."""
        files = [word for path in values for word in ("--values", path)]
        keys = [word for pair in given for word in ("--set-json", pair)]
        target = ("--namespace", "holdfast", "--kube-version", OLDEST_KUBERNETES)
        target += ("--api-versions", PROMETHEUS_OPERATOR) if has_operator else ()
        return self.run("template", "holdfast", HELM_CHART, *target, *files, *keys)

    def objects(self, *values: Path, given: Iterable[str] = ()) -> list[Object]:
        return objects(self.template(*values, given=given))


def objects(manifests: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(manifests) if one]


def named(found: Iterable[Object], kind: str, name: str) -> Object:
    [one] = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one
