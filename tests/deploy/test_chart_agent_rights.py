"""What the agent's pods may read and do, for each combination of settings that changes it."""

import itertools
import json
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import HELM_CHART, ChartRefused, Helm, named

from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sources import SOURCES
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors
from holdfast.model.errors import BackendError

Pod = dict[str, Any]
CAPABILITIES = {"DAC_READ_SEARCH", "CHOWN"}
OFF = {"enabled": False}
BASE = {"/proc", "/sys", "/opt"}
JOURNAL_PATHS = ("/run", "/var/log", "/etc/machine-id")
DISK_PATHS = yaml.safe_load((HELM_CHART / "values.yaml").read_text())["agent"]["diskPaths"]
OF_COMMANDS = {"fi-info", "ibstat", "units"}
"""Sources whose commands read the directories, in other processes."""
JOURNAL = {"source": "journald", "detectors": {"runtime-state": OFF}}


def pod_of(helm: Helm, config: dict[str, Any], **values: Any) -> Pod:
    given = {"agent.config": config, **values}
    found = helm.objects(given=[f"{key}={json.dumps(value)}" for key, value in given.items()])
    return named(found, "DaemonSet", "holdfast-agent")["spec"]["template"]["spec"]


def host_paths(pod: Pod, container: int = 0) -> dict[str, str]:
    """Mounted paths of the node, by where they are mounted; without the agent's own reports."""
    volumes = {one["name"]: one.get("hostPath", {}).get("path") for one in pod["volumes"]}
    mounts = pod["containers"][container]["volumeMounts"]
    assert len(volumes) == len(pod["volumes"])
    assert all(one["readOnly"] for one in mounts if one["mountPath"].startswith("/host"))
    found = {one["mountPath"]: volumes[one["name"]] for one in mounts if volumes[one["name"]]}
    assert found.pop("/run/holdfast", "/run/holdfast") == "/run/holdfast"
    return found


@pytest.mark.parametrize(
    ("kmsg", "path"), [("/host/dev/kmsg", "/dev/kmsg"), ("/host/srv/log/kmsg", "/srv/log")]
)
def test_a_kernel_log_elsewhere_on_the_node_is_mounted(helm: Helm, kmsg: str, path: str) -> None:
    paths = host_paths(pod_of(helm, {"kmsg": kmsg, "logs_only": True}))

    assert set(paths.values()) == {*BASE, path}


@pytest.mark.parametrize("source", ["kmsg", "journald", "files"])
def test_every_combination_grants_no_more_than_it_needs(helm: Helm, source: str) -> None:
    more = {"kmsg": {"/dev/kmsg"}, "files": {"/srv/log"}, "journald": set(JOURNAL_PATHS)}[source]
    for disks, sockets, logs_only, exports in itertools.product([False, True], repeat=4):
        enabled = {"disk-state": disks, "runtime-state": sockets, "unit-state": sockets}
        settings = {name: {"enabled": is_on} for name, is_on in enabled.items()}
        config = {"source": source, "detectors": settings, "logs_only": logs_only}
        config |= {"log_files": ["/host/srv/log/kern.log"]} if source == "files" else {}
        pod = pod_of(helm, config, **{"agent.cloudwatch.enabled": exports})
        case = (source, disks, sockets, logs_only, exports)

        paths = host_paths(pod)
        wanted = {*BASE, *more}
        if not logs_only:
            wanted |= declared({name for name, is_on in enabled.items() if not is_on})
            wanted |= {*DISK_PATHS} if disks else set()
        assert set(paths.values()) == wanted, case
        assert all(at == f"/host{path}" for at, path in paths.items()), case
        is_privileged = [one["securityContext"].get("privileged") for one in pod["containers"]]
        assert is_privileged[0] is (source == "kmsg"), case
        assert not any(is_privileged[1:]), case
        assert_confined(pod, root=True)
        if exports:
            assert set(host_paths(pod, container=1).values()) == {"/opt", "/sys"}, case


def declared(disabled: set[str]) -> set[str]:
    """Directories that all detectors but the disabled ones read, by their own declaration."""
    return {
        f"/{path}"
        for detector in detectors(Profile.HYPERPOD)
        if detector.name not in disabled
        for source in detector.reads & SOURCES.keys()
        for path in SOURCES[source].reads
    }


def test_no_single_detector_mounts_the_root_directory(helm: Helm) -> None:
    names = [one.name for one in detectors(Profile.HYPERPOD)]
    for only in (name for name in names if declared({*names} - {name})):
        settings = {name: {"enabled": name == only} for name in names}
        pod = pod_of(helm, {"source": "journald", "detectors": settings})

        wanted = {*BASE, *JOURNAL_PATHS, *declared({*names} - {only})}
        wanted |= {*DISK_PATHS} if only == "disk-state" else set()
        assert set(host_paths(pod).values()) == wanted, only


def test_directories_for_disks_are_a_value_and_follow_later_mounts(helm: Helm) -> None:
    pod = pod_of(helm, {}, **{"agent.diskPaths": ["/mnt/scratch"]})

    assert not {*DISK_PATHS} & {*host_paths(pod).values()}
    mounts = pod["containers"][0]["volumeMounts"]
    followed = {one["mountPath"] for one in mounts if "mountPropagation" in one}
    assert followed == {"/host/opt", "/host/mnt/scratch"}
    assert "/opt" in host_paths(pod_of(helm, {}, **{"agent.diskPaths": None})).values()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"agent.diskPaths": ["/"]}, "agent.diskPaths"),
        ({"agent.diskPaths": ["/var/.."]}, "agent.diskPaths"),
        ({"agent.config": {"log_files": ["/host/x.log"]}}, "use a directory below it"),
        ({"agent.config": {"rule_files": ["/host/a/../x.toml"]}}, "use a directory below it"),
        ({"agent.config": {"kmsg": "/host/kmsg"}}, "use a directory below it"),
        ({"agent.config": {"command_path": "/bin:/host/"}}, "use a directory below it"),
    ],
)
def test_the_root_directory_of_the_node_is_refused(
    helm: Helm, values: dict[str, Any], why: str
) -> None:
    with pytest.raises(ChartRefused, match=why):
        pod_of(helm, **{"config": {}, **values})


def test_commands_and_rules_of_the_node_are_mounted(helm: Helm) -> None:
    config = {
        "command_path": "/bin:/host/usr/local/bin:/host/opt/aws/neuron/bin",
        "rule_files": ["/host/etc/holdfast/rules.toml"],
        "logs_only": True,
    }
    paths = host_paths(pod_of(helm, config))

    assert set(paths.values()) == {*BASE, "/dev/kmsg", "/usr/local/bin", "/etc/holdfast"}


def assert_confined(pod: Pod, *, root: bool) -> None:
    for one in (*pod["containers"], *pod.get("initContainers", ())):
        security = one["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        if security.get("privileged"):
            continue
        assert security["allowPrivilegeEscalation"] is False
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["capabilities"]["drop"] == ["ALL"]
        assert set(security["capabilities"].get("add", ())) <= CAPABILITIES
    assert (pod["containers"][0]["securityContext"]["runAsUser"] == 0) is root


def test_an_agent_of_the_journals_group_is_not_root(helm: Helm) -> None:
    pod = pod_of(helm, JOURNAL, **{"agent.journalGroup": 190})

    assert pod["securityContext"] == {"supplementalGroups": [190]}
    assert_confined(pod, root=False)
    security = pod["containers"][0]["securityContext"]
    assert "add" not in security["capabilities"]
    assert security["runAsNonRoot"] is True
    [init] = pod["initContainers"]
    assert [one["mountPath"] for one in init["volumeMounts"]] == ["/run/holdfast"]
    user = f"{security['runAsUser']}:{security['runAsGroup']}"
    assert init["command"] == ["chown", "-R", user, "/run/holdfast"]
    assert "initContainers" not in pod_of(helm, JOURNAL)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "set agent.config.source=journald"),
        ({**JOURNAL, "source": "kmsg"}, "set agent.config.source=journald"),
        ({"source": "journald"}, "set agent.config.detectors.runtime-state.enabled=false"),
        (
            {"source": "journald", "detectors": {"runtime-state": {"enabled": True}}},
            "set agent.config.detectors.runtime-state.enabled=false",
        ),
    ],
)
def test_what_takes_root_is_refused_with_the_remedy(
    helm: Helm, config: dict[str, Any], why: str
) -> None:
    config = {"detectors": {"runtime-state": {}}, "source": "kmsg", **config}
    with pytest.raises(ChartRefused, match=why):
        pod_of(helm, config, **{"agent.journalGroup": 190})


_watched: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir", "socket.connect"):
        for seen in _watched:
            seen.append(str(arguments[event == "socket.connect"]))


def test_sources_read_only_what_they_declare(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\n", encoding="utf-8")
    smi.chmod(0o755)
    machine = Machine(root=Path("/host"), path=str(tmp_path))
    sys.addaudithook(_hook)
    for name, source in SOURCES.items():
        seen: list[str] = []
        _watched.append(seen)
        with suppress(OSError, BackendError):  # there is no such directory or command
            source.plan(machine, timedelta(seconds=1)).read()
        _watched.clear()

        read = {one.split("/")[2] for one in seen if one.startswith("/host/")}
        assert read <= source.reads, name
        assert read or not source.reads or name in OF_COMMANDS, name
