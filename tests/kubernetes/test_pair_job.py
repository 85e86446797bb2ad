"""The Job of docs/howto/check-a-node.md puts both ends of a test on two nodes."""

from pathlib import Path

import yaml
from real_cluster import Cluster, until

GUIDE = Path(__file__).parents[2] / "docs/howto/check-a-node.md"


def test_the_job_of_the_guide_runs_one_end_on_each_node(cluster: Cluster, tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("apiVersion: v1\nkind: Service\n")
    manifest = tmp_path / "pair.yaml"
    manifest.write_text("".join(text[1:]).partition("```")[0], encoding="utf-8")
    for name in ("n3", "n5", "n6"):
        cluster.nodes.join(name, labels={"kubernetes.io/hostname": name})
    cluster.kubectl("create", "secret", "generic", "pair", "--from-literal=token=0123456789abcdef")

    cluster.kubectl("apply", "-f", str(manifest))

    def pods() -> dict[str, str]:
        """The node of each pod, by what the pod would find itself called."""
        found = yaml.safe_load(cluster.kubectl("get", "pods", "-o", "yaml"))["items"]
        return {
            f"{pod['spec'].get('hostname')}.{pod['spec'].get('subdomain')}": pod["spec"]["nodeName"]
            for pod in found
            if "nodeName" in pod["spec"]
        }

    until(lambda: len(pods()) == 2)
    assert sorted(pods().values()) == ["n3", "n6"]
    assert set(pods()) == {"pair-0.pair", "pair-1.pair"}
    [one, _] = yaml.safe_load(cluster.kubectl("get", "pods", "-o", "yaml"))["items"]
    [container] = one["spec"]["containers"]
    assert "pair-0.pair" in container["command"]
    assert {"JOB_COMPLETION_INDEX", "HOLDFAST_CHECK_TOKEN"} <= {e["name"] for e in container["env"]}
