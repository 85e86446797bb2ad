"""The pages of clusters: created, scaled, updated and deleted through the operations of the API."""

import json
import re
from collections.abc import Iterator

import pytest
from console_server import Site, site
from page_checks import violations
from playwright.sync_api import Page, expect
from test_console_logs import SHOTS

GROUP = {
    "InstanceGroupName": "gpu",
    "InstanceType": "ml.p5.48xlarge",
    "InstanceCount": 1,
    "ExecutionRole": "arn:aws:iam::123456789012:role/ClusterRole",
}


@pytest.fixture(scope="module")
def console(tmp_path_factory) -> Iterator[Site]:
    """A console of an API that creates clusters, with one cluster that failed."""
    with site(tmp_path_factory.mktemp("creating")) as one:
        scripts = one.runs.home / "scripts"
        scripts.mkdir(parents=True)
        (scripts / "on_create.sh").write_text("exit 3\n")
        cycle = {"SourceS3Uri": scripts.as_uri(), "OnCreate": "on_create.sh"}
        request = {
            "ClusterName": "broken",
            "InstanceGroups": [{**GROUP, "LifeCycleConfig": cycle}],
        }
        change = {"operation": "CreateCluster", "request": request}
        reply = one.visitor("ida").call("POST", "/console/clusters", change)
        assert reply.status == 202, reply.body
        yield one


def group_row(page: Page):
    return page.get_by_role("region", name="Instance groups").locator("tbody tr")


def test_a_cluster_from_the_form_to_its_deletion(console, visit) -> None:
    page = visit("ida", "clusters")
    page.get_by_role("link", name="Create cluster").click()
    page.get_by_label("Cluster name").fill("no good name")
    page.get_by_role("button", name="Create cluster").click()
    expect(page.get_by_role("alert").last).to_contain_text("'clusterName'")
    page.get_by_label("Cluster name").fill("lab")
    expect(page.get_by_label("Request")).to_have_value(re.compile('"ClusterName": "lab"'))
    page.screenshot(path=SHOTS / "new-cluster.png", full_page=True)
    assert violations(page) == []
    page.get_by_role("button", name="Create cluster").click()

    expect(page.get_by_role("heading", name="lab")).to_be_visible()
    status = page.locator(".titled .badge")
    expect(status).to_have_text("In Service")
    expect(group_row(page)).to_contain_text("1 of 1")
    page.get_by_role("button", name="Scale worker-group-1").click()
    page.get_by_label("Number of nodes").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    expect(page.locator(".notice").last).to_contain_text("worker-group-1 will have 2 nodes")
    expect(group_row(page)).to_contain_text("2 of 2")
    expect(status).to_have_text("In Service")
    nodes = page.get_by_role("region", name="Nodes").locator("tbody th")
    expect(nodes).to_have_count(2)
    before = set(nodes.all_inner_texts())

    page.get_by_role("button", name="Update software").click()
    page.get_by_role("dialog").get_by_role("button", name="Update software").click()
    expect(page.locator(".notice").last).to_contain_text("lab will get new software")
    for name in before:
        expect(page.get_by_role("region", name="Nodes")).not_to_contain_text(name)
    expect(status).to_have_text("In Service")
    expect(page.get_by_role("region", name="Events")).to_contain_text("lab creation started")
    page.screenshot(path=SHOTS / "cluster.png", full_page=True)
    assert violations(page) == []

    page.get_by_role("button", name="Delete cluster").click()
    question = page.get_by_role("dialog")
    question.get_by_label("Type lab to confirm").fill("lba")
    question.get_by_role("button", name="Delete cluster").click()
    expect(question.get_by_role("alert")).to_have_text("Type the name of the cluster: lab")
    question.get_by_label("Type lab to confirm").fill("lab")
    question.get_by_role("button", name="Delete cluster").click()
    expect(page.get_by_role("heading", name="Cluster not found")).to_be_visible()
    audit = console.visitor("ida").call("GET", "/console/audit").json["entries"]
    accepted = {one["operation"] for one in audit if one["outcome"] == "accepted"}
    assert accepted >= {
        "CreateCluster", "UpdateCluster", "UpdateClusterSoftware", "DeleteCluster",
    }  # fmt: skip
    assert {one["via"] for one in audit} == {"console"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_failure_is_shown_where_it_is_looked_for(console, visit, scheme) -> None:
    page = visit("ida", "clusters", color_scheme=scheme, reduced_motion="reduce")
    row = page.locator("tbody tr", has_text="broken")
    expect(row).to_contain_text("Failed")
    expect(row).to_contain_text("exited with code 3")
    for width, name in ((1280, "desktop"), (360, "phone")):
        page.set_viewport_size({"width": width, "height": 740})
        page.goto(page.url.partition("#")[0] + "#/clusters")
        expect(row).to_be_visible()
        page.screenshot(path=SHOTS / f"clusters-{name}-{scheme}.png", full_page=True)
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        row.get_by_role("link").click()
        expect(page.locator("dd .wrong")).to_contain_text("exited with code 3")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_pasted_request_is_shown_in_the_form(console, visit) -> None:
    page = visit("ida", "new-cluster")
    request = {"ClusterName": "pasted", "InstanceGroups": [GROUP], "NodeRecovery": "None"}
    page.get_by_label("Request").fill(json.dumps(request))
    expect(page.get_by_label("Cluster name")).to_have_value("pasted")
    expect(page.get_by_label("Instance group")).to_have_value("gpu")
    expect(page.get_by_label("Repair faulty nodes automatically")).not_to_be_checked()
    page.get_by_label("Number of nodes").fill("7")
    changed = json.loads(page.get_by_label("Request").input_value())
    assert changed == {**request, "InstanceGroups": [{**GROUP, "InstanceCount": 7}]}
    page.get_by_label("Request").fill("{")
    page.get_by_role("button", name="Create cluster").click()
    expect(page.get_by_role("alert").last).to_contain_text("The request is not JSON")


def test_who_may_not_change_clusters_finds_no_buttons_and_is_refused(console, visit) -> None:
    for person in ("ada", "bob"):
        page = visit(person, "clusters")
        expect(page.get_by_role("link", name="broken")).to_be_visible()
        expect(page.get_by_role("link", name="Create cluster")).to_have_count(0)
        page.get_by_role("link", name="broken").click()
        expect(page.get_by_role("heading", name="Instance groups")).to_be_visible()
        expect(page.locator("main button:not(.sort, .more)")).to_have_count(0)
    delete = {"operation": "DeleteCluster", "request": {"ClusterName": "broken"}}
    scale = {"cluster": "broken", "group": "gpu", "count": 0}
    ada, ida, jon = (console.visitor(name) for name in ("ada", "ida", "jon"))
    paths = (("/console/clusters", delete), ("/console/clusters/scale", scale))
    for path, content in paths:
        assert ada.call("POST", path, content).status == 403
        assert jon.call("POST", path, content).status == 404
        assert ida.call("POST", path, content, x_holdfast_proof="wrong").status == 403
        assert ida.call("POST", path, content, origin="http://evil.example").status == 403
    read = {"operation": "ListClusters", "request": {}}
    assert ida.call("POST", "/console/clusters", read).status == 400
    other = {
        "operation": "CreateCluster",
        "request": {"ClusterName": "his", "InstanceGroups": [GROUP]},
    }
    assert jon.call("POST", "/console/clusters", other).status == 403
    assert jon.call("GET", "/console/clusters").json["clusters"] == []
    assert [
        one["ClusterName"] for one in ida.call("GET", "/console/clusters").json["clusters"]
    ] == ["broken"]
    refused = [
        one
        for one in ida.call("GET", "/console/audit").json["entries"]
        if one["outcome"] == "refused"
    ]
    assert {"ada", "jon", "ida"} <= {one["person"] for one in refused}
