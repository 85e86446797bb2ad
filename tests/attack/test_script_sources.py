"""Lifecycle scripts come from the permitted sources only, whatever their path pretends."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.local.first_boot import scripts_path
from holdfast.api.script_sources import source_parts, source_rejections

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
from created_calls import Lab, group

PREFIXES = ("s3://ours/scripts", "/srv/scripts/")
PERMITTED = (
    "s3://ours/scripts",
    "s3://ours/scripts/",
    "s3://ours/scripts/llm/v2",
    "file:///srv/scripts",
    "/srv/scripts/llm",
    "/srv/scripts/..llm",
)
PATTERN = "failed to satisfy constraint: Member must satisfy regular expression pattern"
TRICKS = (
    "s3://ours",
    "s3://ours/scripts-of-others",
    "s3://ours/scripts/../theirs",
    "s3://ours/scripts/./../theirs",
    "s3://ours/scripts//../theirs",
    "s3://ours/scripts/%2e%2e/theirs",
    "s3://ours/scripts/..%2ftheirs",
    "s3://theirs/scripts",
    "s3://theirs/s3://ours/scripts",
    "s3://ours@theirs/scripts",
    "s3://OURS/scripts",
    "S3://ours/scripts",
    "s3:///ours/scripts",
    "s3://ours\\scripts",
    "s3://ours/scripts?versionId=1",
    "s3://ours/scripts#x",
    "https://ours/scripts",
    "file:///srv/scripts/../../etc",
    "file:///srv/scripts/%2e%2e/%2e%2e/etc",
    "file://theirs/srv/scripts",
    "file:///srv/scripts;/../../etc",
    "file:///srv/script",
    "file:////srv/scripts",
    "//srv/scripts",
    "/srv/scripts/../other",
    "/srv",
    "/",
    "srv/scripts",
    "./srv/scripts",
    "~/srv/scripts",
)


def scripts(source: str) -> dict[str, object]:
    return {"LifeCycleConfig": {"SourceS3Uri": source, "OnCreate": "on_create.sh"}}


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(f"sqlite:///{tmp_path}/api.db", sources=PREFIXES)


@pytest.mark.parametrize("source", PERMITTED)
def test_a_permitted_source_is_taken(lab, source) -> None:
    lab.create(group(**scripts(source)))

    assert lab.status() == "Creating"


@pytest.mark.parametrize("source", TRICKS)
def test_no_other_source_is(lab, source) -> None:
    request = {"ClusterName": "lab", "InstanceGroups": [group(**scripts(source))]}

    code, message = lab.refused("CreateCluster", **request)

    assert code == "ValidationException"
    assert source in message
    assert PATTERN in message or "of this server: s3://ours/scripts, /srv/scripts/" in message
    assert lab.records.names() == []


@pytest.mark.parametrize("source", TRICKS)
def test_no_change_of_a_cluster_brings_another_source(lab, source) -> None:
    lab.create(group(**scripts(PERMITTED[0])))
    lab.settle()
    before = lab.records.load("lab")

    for groups in ([group(**scripts(source))], [group("more", **scripts(source))]):
        code, message = lab.refused("UpdateCluster", ClusterName="lab", InstanceGroups=groups)
        assert code == "ValidationException"
        assert PATTERN in message or "is not permitted" in message
    assert lab.records.load("lab") == before


PARTS = ("srv", "scripts", "..", ".", "", "etc", "%2e%2e", "a", "..a", " ")


@given(
    st.sampled_from(["/", "//", "file://", "file:///", "file:", ""]),
    st.lists(st.sampled_from(PARTS), max_size=6),
)
def test_what_is_permitted_is_below_the_prefix_as_the_machine_reads_it(begin, parts) -> None:
    source = begin + "/".join(parts)
    found = source_parts(source)
    if found is not None and found[:3] == ("/", "srv", "scripts"):
        path = scripts_path(source).resolve()
        assert path.is_relative_to("/srv/scripts")


def test_groups_without_scripts_and_those_that_go_are_no_matter(lab) -> None:
    lab.create(group())
    cluster = lab.records.load("lab").cluster

    assert list(source_rejections(cluster, PREFIXES)) == []
