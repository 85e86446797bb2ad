"""The account and the roles that the chart gives a controller with certain settings."""

import json
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from controlled import NAMESPACE
from real_cluster import until

from tests.engines.api_connection import ApiConnection, Refused
from tests.engines.control_plane import ControlPlane

CHART: Final = Path(__file__).parents[2] / "deploy/helm/holdfast"
ACCOUNT: Final = "holdfast-controller"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_KEYS: Final = ("job_kinds", "capture_stacks", "read_heartbeats", "check")
_PROVIDERS: Final = ("karpenter", "cluster-api")


def kubeconfig_of_controller(plane: ControlPlane, helm: Path, config: str) -> Path:
    """Create what the chart renders for a configuration in TOML, and return a kubeconfig.

    Roles of the same release that this configuration does not need are deleted.
    """
    wanted = {_path(one): one for one in _rendered(helm, tomllib.loads(config))}
    with plane.connect() as api:
        for path in _present(api) - wanted.keys():
            api.request("DELETE", path)
        for path, one in wanted.items():
            _store(api, path, one)
        for one in wanted.values():
            if one["kind"].endswith("Role"):
                until(lambda one=one: is_in_force(api, one))
    token = plane.service_account_token(NAMESPACE, ACCOUNT)
    return plane.kubeconfig("controller", token)


def is_allowed(api: ApiConnection, user: str = USER, **attributes: str) -> bool:
    """Whether a user may do something, as in ``resourceAttributes`` of a review."""
    spec = {"user": user, "resourceAttributes": attributes}
    return bool(api.request("POST", REVIEWS, {"spec": spec})["status"]["allowed"])


def _rendered(helm: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    kubernetes = config.get("kubernetes", {})
    values: dict[str, Any] = {
        "kubernetes": {key: kubernetes[key] for key in _KEYS if key in kubernetes}
    }
    if (replace := config.get("provider", {}).get("replace")) in _PROVIDERS:
        values["provider"] = {"replace": replace}
    return _roles(helm, json.dumps(values))


@cache
def _roles(helm: Path, config: str) -> list[dict[str, Any]]:
    """What the chart renders for a configuration in JSON: 0.3 s, and few configurations differ."""
    template = (helm, "template", "holdfast", CHART, "--namespace", NAMESPACE)
    options = ("--kube-version=1.30.0", "--show-only=templates/controller-rbac.yaml")
    given = f"controller.config={config}"
    done = subprocess.run(
        [*template, *options, "--set-json", given],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _present(api: ApiConnection) -> set[str]:
    kinds = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    found = (one for kind in kinds for one in api.request("GET", f"{RBAC}/{kind}")["items"])
    return {
        _path({**one, "kind": _kind(one), "apiVersion": "rbac.authorization.k8s.io/v1"})
        for one in found
        if one["metadata"]["name"].startswith(f"{ACCOUNT}-")
    }


def _kind(role: dict[str, Any]) -> str:
    scope = "" if role["metadata"].get("namespace") else "Cluster"
    return f"{scope}RoleBinding" if "roleRef" in role else f"{scope}Role"


def _path(one: dict[str, Any]) -> str:
    """Path of an object."""
    about = one["metadata"]
    root = "/api/v1" if one["apiVersion"] == "v1" else RBAC
    folder = f"{root}/namespaces/{about['namespace']}" if about.get("namespace") else root
    return f"{folder}/{one['kind'].lower()}s/{about['name']}"


def _store(api: ApiConnection, path: str, one: dict[str, Any]) -> None:
    try:
        api.request("POST", path.rpartition("/")[0], one)
    except Refused as refused:
        if "409" not in str(refused):
            raise
        api.request("PATCH", path, one)


def is_in_force(api: ApiConnection, role: dict[str, Any], user: str = USER) -> bool:
    """Whether the last rule of a role is granted; it takes a moment."""
    rule = role["rules"][-1]
    resource, _, part = rule["resources"][0].partition("/")
    return is_allowed(
        api,
        user,
        group=rule["apiGroups"][0],
        resource=resource,
        subresource=part,
        verb=rule["verbs"][-1],
        namespace=role["metadata"].get("namespace", ""),
        name=rule.get("resourceNames", [""])[0],
    )
