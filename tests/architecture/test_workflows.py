"""GitHub's workflows: they run .ci/run, hold few rights, and take no text from strangers."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from source_tree import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
WRITES = {
    ("release.yml", "package"): {"id-token", "attestations"},
    ("release.yml", "image"): {"id-token", "attestations"},
    ("release.yml", "publish"): {"contents"},
}
"""Jobs that write something, each with what."""

PINNED = re.compile(r"[\w.-]+/[\w./-]+@(v\d+|[0-9a-f]{40})")


def name(path: Path) -> str:
    return path.name


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)  # YAML 1.1 reads `on` as a boolean
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def test_ci_runs_the_script_that_holds_every_check() -> None:
    workflow = read(ROOT / ".github/workflows/ci.yml")

    assert {"push", "pull_request", "schedule"} == workflow["on"].keys()
    *_, step = (step for step in workflow["jobs"]["all"]["steps"] if "run" in step)
    assert step["run"].endswith(".ci/run")
    assert "event_name == 'schedule' && '0' || '1'" in step["env"]["HOLDFAST_TESTS_QUICK"]


def test_a_release_starts_with_a_tag_and_is_published_when_all_is_signed() -> None:
    workflow = read(ROOT / ".github/workflows/release.yml")

    assert workflow["on"] == {"push": {"tags": ["v*"]}}
    assert workflow["jobs"]["publish"]["needs"] == ["package", "image"]
    for job in ("package", "image"):
        text = str(workflow["jobs"][job])
        assert "cosign sign" in text
        assert "attest-build-provenance" in text
    assert "attest-sbom" in str(workflow["jobs"]["image"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_a_job_has_no_right_that_it_does_not_use(path: Path) -> None:
    workflow = read(path)

    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job, described in workflow["jobs"].items():
        given = described.get("permissions", workflow["permissions"])
        writes = {right for right, level in given.items() if level == "write"}
        assert writes == WRITES.get((path.name, job), set()), job
        assert {level for right, level in given.items() if right not in writes} <= {"read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_actions_are_pinned_and_shells_get_no_expressions(path: Path) -> None:
    assert "pull_request_target" not in read(path)["on"]
    for step in steps(path):
        assert ("uses" in step) != ("run" in step), step
        assert "uses" not in step or PINNED.fullmatch(step["uses"]), step
        assert "${{" not in step.get("run", ""), step  # would run what a tag or a title says


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_every_job_ends(path: Path) -> None:
    for job in read(path)["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 90


@pytest.mark.parametrize("path", FORMS, ids=name)
def test_an_issue_form_asks_for_what_github_can_show(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    asked = [item for item in form["body"] if item["type"] != "markdown"]

    assert {"name", "description", "body"} <= form.keys()
    assert {item["type"] for item in asked} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(item["attributes"]["label"] for item in asked)
    ids = sorted(item["id"] for item in asked)
    assert all(one != other for one, other in pairwise(ids))
