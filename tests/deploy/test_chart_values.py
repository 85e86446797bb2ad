"""Values in, manifests out; and values that are refused."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import EXAMPLES, HELM_CHART, ChartRefused, Helm, Object, named

import holdfast
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.providers.settings import ProviderName
from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.controller.config import ControllerConfig
from holdfast.decisions.policy import RecoveryMode
from holdfast.kit.config import parse_table
from holdfast.model.health import Remedy
from holdfast.model.names import (
    AGENT_CONDITIONS,
    AGENT_HEALTH_STATUS,
    HARDWARE,
    JOB_RECORD,
    JOB_STATUS,
    RECORD,
    RECORD_OF,
    REPORT,
    HealthStatus,
    Labels,
)
from holdfast.model.nodes import Phase

EVERYTHING = ("podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true")


def configs(helm: Helm, *values: Path, given: tuple[str, ...] = ()) -> Any:
    """What the agent and the controller make of their files."""
    found = helm.objects(*values, given=given)
    agent = named(found, "ConfigMap", "holdfast-agent")["data"]["agent.toml"]
    controller = named(found, "ConfigMap", "holdfast-controller")["data"]["controller.toml"]
    return (
        parse_table(tomllib.loads(agent), AgentConfig),
        parse_table(tomllib.loads(controller), ControllerConfig),
    )


def example(name: str) -> Path:
    return HELM_CHART / "examples" / f"{name}.yaml"


def test_the_chart_is_one_that_helm_likes(helm: Helm) -> None:
    for values in EXAMPLES:
        helm.run("lint", "--strict", "--kube-version=1.30.0", "--values", values, HELM_CHART)


def test_the_chart_is_of_the_version_of_the_package() -> None:
    chart = yaml.safe_load((HELM_CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert chart["version"] == chart["appVersion"] == holdfast.__version__


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_read_by_the_agent_and_by_the_controller(helm: Helm, values: Path) -> None:
    agent, controller = configs(helm, values)

    assert agent.root == Path("/host")
    assert str(agent.telemetry.listen) == ":20257"
    assert str(agent.telemetry.probes) == "127.0.0.1:20255"
    assert agent.kubernetes.namespace == "holdfast"
    assert str(controller.listen) == ":20258"
    assert str(controller.probes) == ":20255"
    assert controller.kubernetes.namespace == "holdfast"
    assert controller.kubernetes.election.lease == "holdfast-controller"


def test_examples_say_what_they_promise(helm: Helm) -> None:
    _, ec2 = configs(helm, example("ec2-auto-scaling"))
    _, karpenter = configs(helm, example("karpenter"))
    _, webhook = configs(helm, example("webhook"))
    nvidia, watching = configs(helm, example("nvidia"))
    _, neuron = configs(helm, example("neuron"))

    assert (ec2.provider.replace, ec2.provider.rebooter) == (
        ProviderName.EC2_AUTOSCALING,
        ProviderName.EC2,
    )
    assert str(ec2.nodes.max_unavailable) == "10%"
    assert karpenter.provider.replace is ProviderName.KARPENTER
    assert karpenter.kubernetes.selector == "karpenter.sh/nodepool in (gpu, trainium)"
    assert webhook.provider.webhook.secret_file == Path("/etc/holdfast-webhook/key")
    assert nvidia.shadow
    assert nvidia.xid == {"94": Remedy.NONE}
    assert nvidia.detectors["clock-state"].enabled is False
    assert watching.nodes.node_recovery is RecoveryMode.NONE
    assert neuron.nodes.node_recovery is RecoveryMode.NONE
    assert neuron.provider.replace is ProviderName.EC2_AUTOSCALING


@pytest.mark.parametrize(
    "text",
    ["plain", 'a "quoted" \\ one', "tab\tand\nline", "größer <&> 'x'", "{{ .Values }}", "\u2028"],
)
def test_any_text_arrives_as_it_was_given(helm: Helm, tmp_path: Path, text: str) -> None:
    values = tmp_path / "values.yaml"
    check = {"image": text, "command": [text, "--once"], "resources": {text: "8"}}
    config = {"cluster": text, "kubernetes": {"check": check}}
    values.write_text(yaml.safe_dump({"controller": {"config": config}}), encoding="utf-8")

    _, controller = configs(helm, values)

    assert controller.cluster == text
    assert controller.kubernetes.check.image == text
    assert controller.kubernetes.check.command == (text, "--once")
    assert controller.kubernetes.check.resources == {text: "8"}


def test_numbers_truth_values_and_arrays_arrive_as_they_were_given(helm: Helm) -> None:
    agent, controller = configs(
        helm,
        given=(
            'agent.config.log_files=["/host/var/log/kern.log", "/host/var/log/syslog"]',
            "agent.config.logs_only=true",
            "controller.config.nodes={"
            '"offender_faults": 7, "breaker_share": 12.5, "max_unavailable": 3,'
            '"deep_check_on_start": true}',
            'controller.config.kubernetes.check.image="check"',
            "controller.config.kubernetes.burst=1000000",
            "agent.config.command_path=null",
        ),
    )

    assert agent.log_files == (Path("/host/var/log/kern.log"), Path("/host/var/log/syslog"))
    assert agent.logs_only
    assert agent.command_path is None
    assert controller.nodes.offender_faults == 7
    assert controller.nodes.breaker_share == 12.5
    assert controller.nodes.max_unavailable.count == 3
    assert controller.nodes.deep_check_on_start
    assert controller.kubernetes.burst == 1_000_000


def test_names_and_prefix_reach_all_that_has_to_agree_on_them(helm: Helm) -> None:
    given = ('labelPrefix="health.example.org"', 'fullnameOverride="keeper"')
    found = helm.objects(given=given)
    agent = named(found, "ConfigMap", "keeper-agent")["data"]["agent.toml"]
    controller = named(found, "ConfigMap", "keeper-controller")["data"]["controller.toml"]
    policy = named(found, "ValidatingAdmissionPolicy", "keeper-agent-node")

    assert parse_table(tomllib.loads(agent), AgentConfig).kubernetes.label_prefix == (
        "health.example.org"
    )
    parsed = parse_table(tomllib.loads(controller), ControllerConfig)
    assert parsed.kubernetes.label_prefix == "health.example.org"
    assert parsed.kubernetes.election.lease == "keeper-controller"
    assert "sagemaker" not in yaml.safe_dump(policy)
    assert "system:serviceaccount:holdfast:keeper-agent" in yaml.safe_dump(policy)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("agnet.enabled=true", ["agnet"]),
        ("agent.enabeld=true", ["/agent", "enabeld"]),
        ("agent.metricsPort=0", ["/agent/metricsPort", "minimum"]),
        ("controller.metricsPort=80", ["/controller/metricsPort", "1,024"]),
        ("agent.probePort=0", ["/agent/probePort", "minimum"]),
        ("controller.probePort=80", ["/controller/probePort", "1,024"]),
        ('agent.config.source="dmesg"', ["/agent/config/source", "journald"]),
        ('agent.config.heartbeat="soon"', ["/agent/config/heartbeat", "pattern"]),
        ('agent.config.root="/"', ["/agent/config", "root"]),
        ('agent.config.telemetry={"listen": ":1"}', ["/agent/config", "telemetry"]),
        ('agent.config.detectors={"gpu-xdi": {}}', ["/agent/config/detectors", "gpu-xdi"]),
        ('agent.config.xid={"74": "replaec"}', ["/agent/config/xid/74", "replace"]),
        ('agent.config.xid={"seventy": "none"}', ["/agent/config/xid", "seventy"]),
        ('controller.replicas="two"', ["/controller/replicas", "integer"]),
        ("controller.config.nodes.drain_timeout=15", ["/drain_timeout", "string"]),
        ('controller.config.nodes.max_unavailable="lots"', ["/max_unavailable", "pattern"]),
        ('controller.config.provider.replace="ec2-asg"', ["/provider/replace", "ec2-autoscaling"]),
        ("controller.config.provider.webhook={}", ["/provider/webhook", "url"]),
        ('controller.config.provider.replace="webhook"', ["/config/provider", "webhook"]),
        ('controller.config.nodes.max_unavailable="150%"', ["/max_unavailable", "150%"]),
        ('image.repository="registry:5000/holdfast:0.1.0"', ["/image/repository"]),
        ('podMonitor.interval="0s"', ["/podMonitor/interval"]),
        ('controller.config.kubernetes.namespace="a"', ["/kubernetes", "namespace"]),
        ('image.digest="sha256:short"', ["/image/digest", "pattern"]),
        ('labelPrefix="Not A Prefix"', ["/labelPrefix", "pattern"]),
        ('agent.maxUnavailable="0%"', ["/agent/maxUnavailable", "pattern"]),
    ],
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, given: str, words: list[str]) -> None:
    with pytest.raises(ChartRefused) as caught:
        helm.template(given=[given])

    reported = str(caught.value)
    assert [word for word in words if word not in reported] == []


def test_every_value_is_described_and_every_default_is_in_the_schema() -> None:
    schema = json.loads((HELM_CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((HELM_CHART / "values.yaml").read_text(encoding="utf-8"))
    undescribed: list[str] = []

    def visit(part: dict[str, Any], path: str) -> None:
        if path and "$ref" not in part and not part.get("description"):
            undescribed.append(path)
        for key, one in part.get("properties", {}).items():
            visit(one, f"{path}/{key}")

    visit(schema, "")
    for name, part in schema["definitions"].items():
        for key, one in part["properties"].items():
            visit(one, f"{name}/{key}")

    assert undescribed == []
    assert values.keys() == schema["properties"].keys() - {"global"}


@pytest.mark.parametrize(
    ("source", "is_privileged"), [("kmsg", True), ("journald", False), ("files", False)]
)
def test_only_the_device_of_the_kernel_log_asks_for_a_privileged_container(
    helm: Helm, source: str, is_privileged: bool
) -> None:
    found = helm.objects(
        given=[f'agent.config.source="{source}"', 'agent.config.log_files=["/host/a/b"]']
    )
    pod = named(found, "DaemonSet", "holdfast-agent")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    security = container["securityContext"]

    assert security["privileged"] is is_privileged
    assert security["readOnlyRootFilesystem"] is True
    if not is_privileged:
        assert security["capabilities"] == {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}
        assert security["allowPrivilegeEscalation"] is False
    mounts = {one["name"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    assert mounts.pop("reports") is False
    assert set(mounts.values()) == {True}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"


def test_the_controller_runs_as_nobody_and_may_write_nothing(helm: Helm) -> None:
    pod = named(helm.objects(), "Deployment", "holdfast-controller")["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["priorityClassName"] == "system-cluster-critical"


@pytest.mark.parametrize(
    ("replace", "resources"),
    [
        ("none", set()),
        ("karpenter", {"nodeclaims"}),
        ("cluster-api", {"machines", "machinehealthchecks"}),
    ],
)
def test_rights_over_machines_come_with_their_provider_alone(
    helm: Helm, replace: str, resources: set[str]
) -> None:
    found = helm.objects(given=[f'controller.config.provider.replace="{replace}"'])
    rules = controller_rules(found)
    machines = {"karpenter.sh", "cluster.x-k8s.io"}

    granted = [rule["resources"] for rule in rules if machines & set(rule["apiGroups"])]
    assert {one for some in granted for one in some} == resources


def controller_rules(found: list[Object]) -> list[Object]:
    """The rules of all ClusterRoles of the controller."""
    roles = (one for one in found if one["kind"] == "ClusterRole")
    return [
        rule
        for role in roles
        if role["metadata"]["name"].startswith("holdfast-controller-")
        for rule in role["rules"]
    ]


def granted(helm: Helm, *given: str) -> set[tuple[str, str, tuple[str, ...]]]:
    """What of pods and of ConfigMaps anywhere the controller may do."""
    found = helm.objects(given=given)
    return {
        (resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in controller_rules(found)
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if resource in ("configmaps", "pods/log", "pods/exec")
    }


def test_what_is_within_jobs_is_open_only_to_a_controller_that_has_to_see_it(helm: Helm) -> None:
    logs, maps = ("pods/log", "get", ()), ("configmaps", "get", ("log-monitoring",))
    commands = {("pods/exec", "get", ()), ("pods/exec", "create", ())}
    stacks = {*commands, ("configmaps", "create", ())}

    assert granted(helm) == {logs, maps}
    assert granted(helm, "controller.rulesConfigMaps=[]") == {logs}
    assert granted(helm, "controller.config.kubernetes.capture_stacks=true") == {
        logs,
        maps,
        *stacks,
    }
    assert granted(helm, "controller.config.kubernetes.read_heartbeats=true") == {
        logs,
        maps,
        *commands,
    }


def test_a_single_controller_can_be_evicted(helm: Helm) -> None:
    kinds = [one["kind"] for one in helm.objects(given=["controller.replicas=1"])]

    assert "PodDisruptionBudget" not in kinds
    assert "PodDisruptionBudget" in [one["kind"] for one in helm.objects()]


def test_what_is_not_wanted_is_left_out(helm: Helm) -> None:
    nothing = helm.objects(given=["agent.enabled=false", "controller.enabled=false"])
    agents = helm.objects(given=["controller.enabled=false"])
    everything = {one["kind"] for one in helm.objects(given=EVERYTHING)}

    assert nothing == []
    assert not [one for one in agents if "controller" in one["metadata"]["name"]]
    assert everything >= {"PodMonitor", "PrometheusRule"}
    assert "PodMonitor" not in {one["kind"] for one in helm.objects()}


def test_alerts_and_dashboards_are_those_of_their_folders(helm: Helm) -> None:
    found = helm.objects(given=EVERYTHING)
    alerts = yaml.safe_load((HELM_CHART / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))

    assert named(found, "PrometheusRule", "holdfast")["spec"] == alerts
    for path in (HELM_CHART / "grafana").glob("*.json"):
        shipped = named(found, "ConfigMap", f"holdfast-dashboard-{path.stem}")
        assert shipped["data"] == {path.name: path.read_text(encoding="utf-8")}


def test_pods_start_anew_with_another_configuration_and_only_then(helm: Helm) -> None:
    def stamp(given: str) -> list[str]:
        found = helm.objects(given=[given])
        pods = [
            one["spec"]["template"]["metadata"]
            for one in found
            if "template" in one.get("spec", {})
        ]
        return [one["annotations"]["holdfast.dev/config"] for one in pods]

    before = stamp("agent.enabled=true")

    assert stamp("agent.maxUnavailable=1") == before
    assert [
        is_same == is_changed
        for is_same, is_changed in zip(before, stamp("agent.config.shadow=true"), strict=True)
    ] == [False, True]


def workloads(found: list[Object]) -> dict[str, Object]:
    """Pod templates by component."""
    kinds = ("DaemonSet", "Deployment")
    templates = [one["spec"]["template"] for one in found if one["kind"] in kinds]
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in templates}


def test_whatever_selects_pods_selects_those_of_its_component(helm: Helm) -> None:
    found = helm.objects(given=EVERYTHING)
    pods = workloads(found)
    kinds = {"Service", "PodMonitor", "PodDisruptionBudget", "DaemonSet", "Deployment"}

    for one in (one for one in found if one["kind"] in kinds):
        selector = one["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        matching = [
            name for name, pod in pods.items() if wanted <= pod["metadata"]["labels"].items()
        ]
        assert (one["kind"], matching) == (one["kind"], [component])


def test_ports_that_are_named_are_those_that_are_listened_on(helm: Helm) -> None:
    found = helm.objects(given=EVERYTHING)
    agent, controller = configs(helm)
    listened = {"agent": agent.telemetry.listen.port, "controller": controller.listen.port}
    probed = {"agent": agent.telemetry.probes.port, "controller": controller.probes.port}

    for component, pod in workloads(found).items():
        [container] = pod["spec"]["containers"]
        assert container["ports"] == [
            {"name": "metrics", "containerPort": listened[component]},
            {"name": "probes", "containerPort": probed[component]},
        ]
        on_loopback = {"host": "127.0.0.1"} if component == "agent" else {}
        for kind in ("startupProbe", "livenessProbe"):
            expected = {"path": "/healthz", "port": "probes", **on_loopback}
            assert container[kind]["httpGet"] == expected
        [service] = named(found, "Service", f"holdfast-{component}-metrics")["spec"]["ports"]
        assert (service["targetPort"], service["port"]) == ("metrics", listened[component])
        [scraped] = named(found, "PodMonitor", f"holdfast-{component}")["spec"][
            "podMetricsEndpoints"
        ]
        assert scraped["port"] == "metrics"
        jobs = [
            rule["replacement"] for rule in scraped["relabelings"] if rule["targetLabel"] == "job"
        ]
        assert jobs == [f"holdfast-{component}"]


def test_processes_find_their_configuration_and_their_account(helm: Helm) -> None:
    found = helm.objects()

    for component, pod in workloads(found).items():
        name = f"holdfast-{component}"
        spec = pod["spec"]
        [container] = spec["containers"]
        [mount] = [one for one in container["volumeMounts"] if one["name"] == "config"]
        [volume] = [one for one in spec["volumes"] if one["name"] == "config"]
        [file] = named(found, "ConfigMap", volume["configMap"]["name"])["data"]
        assert container["args"] == [component, "--config", f"{mount['mountPath']}/{file}"]
        assert spec["serviceAccountName"] == name
        named(found, "ServiceAccount", name)


def test_an_agent_knows_its_node_and_uses_its_network(helm: Helm) -> None:
    pod = workloads(helm.objects())["agent"]["spec"]
    [container] = pod["containers"]
    [name] = [one for one in container["env"] if one["name"] == "NODE_NAME"]
    volumes = {one["name"]: one for one in pod["volumes"]}

    assert pod["hostNetwork"] is True
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert volumes["host-proc"]["hostPath"]["path"] == "/proc"
    assert volumes["reports"]["hostPath"]["path"] == "/run/holdfast"
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    agent, _ = configs(helm)
    assert mounts["host-proc"] == f"{agent.root}/proc"
    assert mounts["reports"] == str(agent.report_dir)


def test_names_in_the_policies_are_those_that_are_published(helm: Helm) -> None:
    policy = named(helm.objects(), "ValidatingAdmissionPolicy", "holdfast-agent-node")
    said = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    labels = Labels()

    def listed(name: str) -> set[str]:
        return set(re.findall(r"'([^']+)'", said[name]))

    assert listed("ownConditions") == set(map(str, AGENT_CONDITIONS))
    assert listed("ownLabels") == {
        labels.node_health_status,
        labels.fault_types,
        labels.fault_reasons,
    }
    assert listed("ownAnnotations") == {
        labels.fault_details,
        REPORT,
        HARDWARE,
        AGENT_HEALTH_STATUS,
    }
    assert listed("pending") == {
        HealthStatus.PENDING_REBOOT,
        HealthStatus.PENDING_REPLACEMENT,
    }
    assert listed("health") == {labels.node_health_status}
    assert RECORD in said["record"]
    free = set(re.findall(r"\((\w+(?:\|\w+)+)\)", said["isRepaired"])[0].split("|"))
    assert free == {Phase.SCHEDULABLE, Phase.JOINING, Phase.CHECKING}


def test_a_sidecar_runs_beside_the_agent(helm: Helm) -> None:
    found = helm.objects(given=['agent.sidecars=[{"name": "recovery", "image": "recovery"}]'])
    [_, sidecar] = workloads(found)["agent"]["spec"]["containers"]

    assert sidecar == {"name": "recovery", "image": "recovery"}


def test_the_exporter_to_cloudwatch_reads_the_log_that_the_agent_writes(helm: Helm) -> None:
    exported = "agent.cloudwatch.enabled=true"
    agent, _ = configs(helm, given=(exported,))
    pod = workloads(helm.objects(given=[exported]))["agent"]["spec"]
    [writer, exporter] = pod["containers"]
    [log] = [one for one in pod["volumes"] if one["name"] == "log"]
    mounts = [
        [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "log"]
        for container in (writer, exporter)
    ]

    assert mounts == [[str(agent.log.file.parent)]] * 2
    assert f"--log={agent.log.file}" in exporter["args"]
    assert agent.log.stdout
    assert log["emptyDir"]["sizeLimit"] == "64Mi"
    assert configs(helm)[0].log.file is None
    assert "cloudwatch" not in yaml.safe_dump(helm.objects())


def test_the_exporter_to_cloudwatch_has_no_right_on_the_node_but_to_read(helm: Helm) -> None:
    pod = workloads(helm.objects(given=["agent.cloudwatch.enabled=true"]))["agent"]["spec"]
    [_, exporter] = pod["containers"]
    security = exporter["securityContext"]
    host = [one for one in exporter["volumeMounts"] if one["name"].startswith("host-")]

    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert [one["readOnly"] for one in host] == [True, True]


def test_the_records_of_all_kinds_of_jobs_are_protected(helm: Helm) -> None:
    policy = named(helm.objects(), "ValidatingAdmissionPolicy", "holdfast-controller-job-records")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    found = {
        (group, one) for rule in rules for group in rule["apiGroups"] for one in rule["resources"]
    }
    keys = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}["changed"]

    groups = {(kind.api_version.partition("/")[0], kind.plural) for kind in KINDS}
    assert found == groups | {(group, f"{plural}/status") for group, plural in groups}
    assert set(re.findall(r"'([^']+)'", keys)) == {JOB_RECORD, RECORD_OF, JOB_STATUS}
