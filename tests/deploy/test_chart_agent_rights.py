"""What the agent's pods may read and do, for each combination of settings that changes it."""

import itertools
import json
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chart import ChartRefused, Helm, named

from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sources import SOURCES
from holdfast.model.errors import BackendError

Pod = dict[str, Any]
CAPABILITIES = {"DAC_READ_SEARCH", "CHOWN"}
OFF = {"enabled": False}
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

    assert set(paths.values()) == {"/proc", "/sys", "/opt", path}


@pytest.mark.parametrize("source", ["kmsg", "journald", "files"])
def test_every_combination_grants_no_more_than_it_needs(helm: Helm, source: str) -> None:
    for disks, runtime, logs_only, exports in itertools.product([False, True], repeat=4):
        detectors = {"disk-state": {"enabled": disks}, "runtime-state": {"enabled": runtime}}
        config = {"source": source, "detectors": detectors, "logs_only": logs_only}
        config |= {"log_files": ["/host/srv/log/kern.log"]} if source == "files" else {}
        pod = pod_of(helm, config, **{"agent.cloudwatch.enabled": exports})
        case = (source, disks, runtime, logs_only, exports)

        paths = host_paths(pod)
        assert ("/" in paths.values()) is (disks and not logs_only), case
        assert all(at == f"/host{path}".rstrip("/") for at, path in paths.items()), case
        if "/" not in paths.values():
            more = {"kmsg": {"/dev/kmsg"}, "files": {"/srv/log"}, "journald": set()}[source]
            if source == "journald":
                more |= {"/run", "/var/log", "/etc/machine-id"}
            elif not logs_only:
                more |= {"/run"}  # unit-state is on
            assert set(paths.values()) == {"/proc", "/sys", "/opt", *more}, case
        is_privileged = [one["securityContext"].get("privileged") for one in pod["containers"]]
        assert is_privileged[0] is (source == "kmsg"), case
        assert not any(is_privileged[1:]), case
        assert_confined(pod, root=True)
        if exports:
            wanted = {"/"} if "/" in paths.values() else {"/opt", "/sys"}
            assert set(host_paths(pod, container=1).values()) == wanted, case


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


def test_sources_other_than_the_disks_read_only_what_is_mounted(helm: Helm) -> None:
    mounted = host_paths(pod_of(helm, {"source": "kmsg", "detectors": {"disk-state": OFF}}))
    sys.addaudithook(_hook)
    seen: list[str] = []
    _watched.append(seen)

    for name in ("memory", "edac", "processes", "runtime", "neuron", "infiniband"):
        with suppress(OSError, BackendError):  # there is no such directory here
            SOURCES[name].plan(Machine(root=Path("/host")), timedelta(seconds=1)).read()
    _watched.clear()

    read = [one for one in seen if one.startswith("/host")]
    assert read
    assert [one for one in read if not one.startswith(tuple(f"{at}/" for at in mounted))] == []
