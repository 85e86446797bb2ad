"""The replica of the controller that leads, on real nodes."""

from site_of_nodes import NAMESPACE, Site

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/holdfast-controller"


def leader(site: Site) -> dict[str, str]:
    """Name and node of the pod that leads."""
    holder = site.cluster.plane.request("GET", LEASE)["spec"].get("holderIdentity") or ""
    for pod in site.pods("app.kubernetes.io/component=controller", NAMESPACE):
        if holder.startswith(pod["metadata"]["name"]):
            return {"name": pod["metadata"]["name"], "node": pod["spec"]["nodeName"]}
    return {}


def until_led(site: Site) -> dict[str, str]:
    site.until(lambda: leader(site), "a leader")
    return leader(site)
