// Cluster pages: list, details and changes. Each change is a request of the API.

import { changeCluster, may, read, repeated, scaleGroup } from "./api.js";
import { badge, nodeLink } from "./appearance.js";
import { confirmDialog } from "./confirm.js";
import { h, icon, refill } from "./dom.js";
import { count, dateTime, number } from "./format.js";
import { levelBadge } from "./events.js";
import { table } from "./live.js";
import { keyedTable, plainTable } from "./table.js";

const AGAIN_MS = 3000;
const STATUSES = {
  InService: "healthy",
  Running: "healthy",
  Creating: "joining",
  Pending: "joining",
  Updating: "checking",
  SystemUpdating: "checking",
  DeepHealthCheckInProgress: "checking",
  RollingBack: "warning",
  Degraded: "warning",
  Failed: "faulty",
  Failure: "faulty",
};

function statusBadge(status) {
  return badge(STATUSES[status] ?? "closed", status.replace(/(?<=[a-z])(?=[A-Z])/g, " "));
}

export function clusterLink(name) {
  return `#/cluster/${encodeURIComponent(name)}`;
}

const created = (cluster) => dateTime(cluster.CreationTime * 1000);
const running = (cluster) => cluster.InstanceGroups.reduce((sum, one) => sum + (one.CurrentCount ?? 0), 0);
const target = (cluster) => cluster.InstanceGroups.reduce((sum, one) => sum + (one.TargetCount ?? 0), 0);

/** Nodes that run, of those that are wanted. */
function progress(has, wants) {
  return h("div.counted", {}, h("progress", { value: has, max: Math.max(1, wants), "aria-label": `${number(has)} of ${count(wants, "node")}` }), `${number(has)} of ${number(wants)}`);
}

/** Poll a view of the server; show its error in place of the first answer. */
function polled(body, view, query, paint) {
  let isClosed = false;
  let last = null;
  const loads = repeated(async () => {
    try {
      last = await read(view, query);
      if (!isClosed) paint(last);
    } catch (error) {
      const isGone = error.status === 404;
      if (isClosed || (last && !isGone)) return;
      refill(body, h("div.nothing", {}, h("h2", {}, isGone ? "Cluster not found" : "Clusters cannot be read"), h("p", { role: "alert" }, error.message), h("a", { href: "#/clusters" }, "Go to the clusters")));
    }
  }, AGAIN_MS);
  return { again: loads.again, stop: () => ((isClosed = true), loads.stop()) };
}

export const title = "Clusters";

export function open(container) {
  const buttons = h("div.actions");
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the clusters…"));
  container.append(h("header.head", {}, h("h1", { tabindex: "-1" }, "Clusters"), h("p.about", {}, "Clusters of the API, newest first."), buttons), body);
  const list = keyedTable({
    caption: "Clusters",
    key: (row) => row.ClusterArn,
    empty: "No clusters yet.",
    columns: [
      { title: "Cluster", cell: (row) => h("a", { href: clusterLink(row.ClusterName) }, row.ClusterName), text: (row) => row.ClusterName, sort: (row) => row.ClusterName },
      { title: "Status", cell: (row) => statusBadge(row.ClusterStatus), text: (row) => row.ClusterStatus, sort: (row) => row.ClusterStatus },
      { title: "Nodes", cell: (row) => progress(running(row), target(row)), text: (row) => `${running(row)} ${target(row)}`, sort: target },
      { title: "Groups", cell: (row) => row.InstanceGroups.map((one) => one.InstanceGroupName).join(", ") || "–" },
      { title: "Created", cell: created, sort: (row) => row.CreationTime, narrow: "roomy" },
      { title: "Failure", cell: (row) => row.FailureMessage ?? "–" },
    ],
  });
  const polls = polled(body, "clusters", {}, ({ clusters, can_create: canCreate }) => {
    refill(buttons, canCreate && may("create-cluster") && h("a.button.main", { href: "#/new-cluster" }, "Create cluster"));
    if (!body.contains(list.element)) refill(body, h("section.card", {}, list.element));
    list.update(clusters);
  });
  return polls.stop;
}

export const one = { title: "Cluster", open: openOne };

function openOne(container, { parts: [name] }) {
  const state = h("span");
  const buttons = h("div.actions");
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the cluster…"));
  container.append(h("header.head", {}, h("a.up", { href: "#/clusters" }, icon("back"), "Clusters"), h("div.titled", {}, h("h1", { tabindex: "-1" }, name), state), buttons), body);
  const nodes = nodeTable(name);
  const more = h("div");
  const listed = h("section.card", {}, h("h2", {}, "Nodes"), nodes.element, more); // kept, and with it the keyboard's focus
  let painted = "";
  const polls = polled(body, "cluster", { name }, (cluster) => {
    nodes.update(cluster.nodes);
    const text = JSON.stringify(cluster);
    if (text === painted) return;
    painted = text;
    const mayChange = (act) => cluster.is_created && cluster.ClusterStatus !== "Deleting" && may(act);
    refill(more, notListed(cluster));
    refill(state, statusBadge(cluster.ClusterStatus));
    refill(
      buttons,
      mayChange("update-software") && h("button.quiet", { type: "button", "data-focus": "update", onclick: () => confirmUpdate(cluster, polls.again) }, icon("replace"), "Update software"),
      mayChange("delete-cluster") && h("button.quiet", { type: "button", "data-focus": "delete", onclick: () => confirmDeletion(cluster, polls.again) }, icon("stop"), "Delete cluster"),
    );
    refill(body, facts(cluster), groups(cluster, mayChange("update-cluster"), polls.again), listed, events(cluster));
  });
  return polls.stop;
}

/** What a list of thousands leaves out. */
function notListed(cluster) {
  const all = running(cluster);
  return cluster.nodes.length < all && h("p.shown", {}, `The first ${number(cluster.nodes.length)} of ${number(all)} nodes; all are on the page `, h("a", { href: "#/fleet" }, "Fleet"));
}

function facts(cluster) {
  const rows = [
    ["Nodes", progress(running(cluster), target(cluster))],
    ["Failure", cluster.FailureMessage && h("span.wrong", {}, cluster.FailureMessage)],
    ["Faulty nodes", cluster.NodeRecovery === "None" ? "are only marked" : "are repaired automatically"],
    ["Provisioning", cluster.NodeProvisioningMode],
    ["Created", created(cluster)],
    ["ARN", h("code", {}, cluster.ClusterArn)],
    ["Changes", !cluster.is_created && "This cluster was not created by this API, which cannot change or delete it."],
  ].filter(([, value]) => value);
  return h("section.card", {}, h("h2", {}, "Details"), h("dl.facts", {}, rows.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
}

function groups(cluster, mayScale, again) {
  const rows = cluster.InstanceGroups.map((one) => [
    one.InstanceGroupName,
    one.InstanceType ?? "–",
    progress(one.CurrentCount ?? 0, one.TargetCount ?? 0),
    one.Status ? statusBadge(one.Status) : "–",
    one.SoftwareUpdateStatus ?? "–",
    mayScale ? h("button.quiet", { type: "button", "data-focus": `scale ${one.InstanceGroupName}`, "aria-label": `Scale ${one.InstanceGroupName}`, onclick: () => askSize(cluster, one, again) }, "Scale") : "–",
  ]);
  return h("section.card", {}, h("h2", {}, "Instance groups"), plainTable("Instance groups", ["Group", "Type", "Nodes", "Status", "Software", "Change"], rows));
}

function nodeTable(cluster) {
  const link = (row) => {
    const found = [`hyperpod-${row.InstanceId}`, row.InstanceId].find((one) => table("nodes").has(`${cluster} ${one}`));
    return found ? h("a", { href: nodeLink(cluster, found) }, row.InstanceId) : row.InstanceId;
  };
  return keyedTable({
    caption: "Nodes",
    key: (row) => row.NodeLogicalId ?? row.InstanceId,
    empty: "The cluster has no nodes.",
    columns: [
      { title: "Node", cell: link, text: (row) => `${row.InstanceId} ${table("nodes").has(`${cluster} hyperpod-${row.InstanceId}`)}`, sort: (row) => row.InstanceId },
      { title: "Group", cell: (row) => row.InstanceGroupName, sort: (row) => row.InstanceGroupName },
      { title: "Status", cell: (row) => statusBadge(row.InstanceStatus.Status), text: (row) => row.InstanceStatus.Status, sort: (row) => row.InstanceStatus.Status },
      { title: "Message", cell: (row) => row.InstanceStatus.Message ?? "–" },
    ],
  });
}

function events(cluster) {
  const rows = cluster.events.map((one) => [dateTime(one.EventTime * 1000), levelBadge(one.EventLevel), one.Description ?? "–"]);
  return h("section.card", {}, h("h2", {}, "Events"), rows.length ? plainTable("Events, newest first", ["Time", "Level", "Event"], rows, ["moment"]) : h("p.empty", {}, "No events."));
}

/** Perform a change; the message is for the notice. */
async function changed(again, request, message) {
  await request;
  again();
  return { message };
}

function askSize(cluster, group, again) {
  const size = h("input", { type: "number", id: "size", min: 0, step: 1, required: true, value: group.TargetCount ?? 0 });
  confirmDialog({
    title: `Scale ${group.InstanceGroupName} of ${cluster.ClusterName}`,
    text: "A group shrinks by failed nodes first, then by nodes without a job, newest first.",
    yes: "Scale",
    fields: [h("label", { for: "size" }, "Number of nodes"), size],
    act: () => changed(again, scaleGroup(cluster.ClusterName, group.InstanceGroupName, size.valueAsNumber), `${group.InstanceGroupName} will have ${count(size.valueAsNumber, "node")}`),
  });
}

function confirmUpdate(cluster, again) {
  const { ClusterName } = cluster;
  confirmDialog({
    title: `Update the software of ${ClusterName}?`,
    text: `Each of its ${count(target(cluster), "machine")} is replaced by a new one, within the unavailable-node budget. A job on a machine is stopped before, and resumes from its last checkpoint.`,
    yes: "Update software",
    isGrave: true,
    act: () => changed(again, changeCluster("UpdateClusterSoftware", { ClusterName }), `${ClusterName} will get new software`),
  });
}

function confirmDeletion(cluster, again) {
  const { ClusterName } = cluster;
  const typed = h("input", { type: "text", id: "typed", autocomplete: "off", required: true });
  confirmDialog({
    title: `Delete ${ClusterName}?`,
    text: `Its jobs are cancelled and its ${count(target(cluster), "node")} removed. This cannot be undone.`,
    yes: "Delete cluster",
    isGrave: true,
    fields: [h("label", { for: "typed" }, `Type ${ClusterName} to confirm`), typed],
    act: async () => {
      if (typed.value !== ClusterName) throw new Error(`Type the name of the cluster: ${ClusterName}`);
      return changed(again, changeCluster("DeleteCluster", { ClusterName }), `${ClusterName} is being deleted`);
    },
  });
}
