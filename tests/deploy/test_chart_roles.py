"""One role per feature of the controller: what is not used grants nothing."""

import itertools
import json
from typing import Any

import pytest
from chart import Helm, Object

from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.settings import DEFAULT_JOB_KINDS, JobKindName

COLLECTIONS = {kind.kind: (kind.api_version.rpartition("/")[0], kind.plural) for kind in KINDS}
PREFIX = "holdfast-controller-"
OPERATED = "hyperpodpytorchjobs.sagemaker.amazonaws.com"
ALWAYS = {"nodes", "state", "heartbeats", "checks", "kubelets"}

Grant = tuple[str, str, str, str, str]
"""Namespace (empty: all), API group, resource, verb, name (empty: all)."""


def roles(found: list[Object]) -> dict[str, Object]:
    """The controller's roles by feature."""
    return {
        one["metadata"]["name"].removeprefix(PREFIX): one
        for one in found
        if one["kind"].endswith("Role") and one["metadata"]["name"].startswith(PREFIX)
    }


def rendered(helm: Helm, **kubernetes: Any) -> list[Object]:
    return helm.objects(given=[f"controller.config.kubernetes={json.dumps(kubernetes)}"])


def grants(role: Object) -> set[Grant]:
    namespace = role["metadata"].get("namespace", "")
    return {
        (namespace, group, resource, verb, name)
        for rule in role["rules"]
        for group, resource, verb, name in itertools.product(
            rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""])
        )
    }


def test_every_kind_of_jobs_can_be_switched() -> None:
    assert sorted(kind.kind for kind in KINDS) == sorted(JobKindName)


@pytest.mark.parametrize(
    "kinds",
    [
        [],
        *([one.value] for one in JobKindName if one is not JobKindName.TRAIN_JOB),
        ["JobSet", "TrainJob"],
        [one.value for one in JobKindName],
    ],
    ids=lambda kinds: "+".join(kinds) or "none",
)
@pytest.mark.parametrize("has_checks", [False, True])
@pytest.mark.parametrize("runs_commands", [False, True])
def test_a_combination_of_features_grants_what_these_features_need_and_no_more(
    helm: Helm, kinds: list[str], *, has_checks: bool, runs_commands: bool
) -> None:
    check = {"check": {"image": "check"}} if has_checks else {}
    found = roles(rendered(helm, job_kinds=kinds, read_heartbeats=runs_commands, **check))
    collections = {COLLECTIONS[kind] for kind in kinds}
    granted = {grant for role in found.values() for grant in grants(role)}

    features = ALWAYS | {plural for _, plural in collections}
    features |= {"job-logs", "kueue"} if kinds else set()
    features |= {"job-commands"} if kinds and runs_commands else set()
    assert found.keys() == features
    of_jobs = {(group, resource) for place, group, resource, *_ in granted if not place}
    known = set(COLLECTIONS.values())
    assert {(group, name) for group, name in of_jobs if (group, name) in known} == collections
    assert ("pods/log" in {name for _, name in of_jobs}) == bool(kinds)
    assert ("pods/exec" in {name for _, name in of_jobs}) == bool(kinds and runs_commands)
    creates = ("holdfast", "batch", "jobs", "create", "")
    reads_why = ("holdfast", "", "events", "list", "")
    assert (creates in granted, reads_why in granted) == (has_checks, has_checks)


@pytest.mark.parametrize("replace", ["none", "ec2", "karpenter", "cluster-api"])
def test_a_provider_grants_what_it_needs_and_no_other_does(helm: Helm, replace: str) -> None:
    without = helm.objects(given=["controller.config.kubernetes.job_kinds=[]"])
    provider = f"controller.config.provider.replace={json.dumps(replace)}"
    found = helm.objects(given=["controller.config.kubernetes.job_kinds=[]", provider])

    needs = {
        "karpenter": {("", "karpenter.sh", "nodeclaims", verb, "") for verb in ("list", "delete")},
        "cluster-api": {
            *(("", "cluster.x-k8s.io", "machines", verb, "") for verb in ("get", "patch")),
            ("", "cluster.x-k8s.io", "machinehealthchecks", "list", ""),
        },
    }
    before, after = (
        {grant for role in roles(one).values() for grant in grants(role)}
        for one in (without, found)
    )
    assert after - before == needs.get(replace, set())
    assert before <= after


def test_without_a_list_all_kinds_are_managed_that_have_an_operator(helm: Helm) -> None:
    everything = rendered(helm, job_kinds=[one.value for one in DEFAULT_JOB_KINDS])

    assert roles(helm.objects()) == roles(everything)


def test_only_the_kind_that_holdfast_operates_brings_its_definition_and_creates_pods(
    helm: Helm,
) -> None:
    operated = JobKindName.HYPERPOD_PYTORCH_JOB
    for kinds in ([operated.value], [one.value for one in DEFAULT_JOB_KINDS]):
        found = rendered(helm, job_kinds=kinds)
        defined = [one["metadata"] for one in found if one["kind"] == "CustomResourceDefinition"]
        granted = {grant for role in roles(found).values() for grant in grants(role)}
        created = {
            resource for place, _, resource, verb, _ in granted if verb == "create" and not place
        }
        is_operated = operated.value in kinds
        assert [one["name"] for one in defined] == [OPERATED] * is_operated
        assert ({"pods", "services", "secrets"} <= created) == is_operated
        assert all(one["annotations"]["helm.sh/resource-policy"] == "keep" for one in defined)


def test_every_role_is_bound_to_the_account_of_the_controller_alone(helm: Helm) -> None:
    found = helm.objects(given=['controller.config.provider.replace="karpenter"'])
    account = {"kind": "ServiceAccount", "name": "holdfast-controller", "namespace": "holdfast"}
    bound = {
        (one["kind"], one["metadata"].get("namespace"), one["roleRef"]["name"]): one["subjects"]
        for one in found
        if one["kind"].endswith("RoleBinding")
    }

    for role in roles(found).values():
        about = role["metadata"]
        key = (f"{role['kind']}Binding", about.get("namespace"), about["name"])
        assert bound[key] == [account]
    assert "karpenter" in roles(found)


def test_no_role_has_a_wildcard(helm: Helm) -> None:
    found = [one for one in helm.objects() if one["kind"].endswith("Role")]

    assert [one for one in found if any("*" in grant for grant in grants(one))] == []
