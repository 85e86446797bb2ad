// Page of an incident, however old: what happened, what it means, what was done and what is next.

import { read, repeated } from "./api.js";
import { broken, h, icon, notice, refill } from "./dom.js";
import { between, bytes, duration, moment, number, now, since, zoned } from "./format.js";
import { listen, table } from "./live.js";
import { incidentBadge, isOpen, jobLink, nodeLink, subject } from "./appearance.js";
import { POINTS, phases, took } from "./incidents.js";
import { REASONS, SXIDS, XIDS } from "./meanings.js";
import { stackedBar } from "./plots.js";
import { plainTable } from "./table.js";

const AGAIN_MS = 5000; // open phases grow
const CODE = /\b(S?Xid) \([^)]*\): (\d+)/g;
const REMEDIES = {
  none: "none; nothing repairs the node automatically",
  "restart-app": "restart the job on the node",
  "reset-gpu": "reset the GPU while no job runs on the node",
  reboot: "reboot the node",
  replace: "replace the machine by another one",
};

export const title = "Incident";

export function open(container, { parts: [fleet, id] }) {
  const state = h("span");
  const heading = h("h1", { tabindex: "-1" }, id);
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the incident…"));
  let row = null;
  let isClosed = false;
  let painted = "";
  const copy = h("button.quiet", { type: "button", hidden: true, onclick: copyText }, icon("copy"), "Copy as Markdown");
  container.append(h("header.head", {}, h("a.up", { href: "#/incidents" }, icon("back"), "Incidents"), h("div.titled", {}, heading, state), h("p.about", {}, id), h("div.actions", {}, copy)), body);

  async function copyText() {
    if (await copied(markdown(row))) notice("Copied the incident as Markdown");
    else notice("Copy failed: the browser denied clipboard access", "bad");
  }

  async function load() {
    try {
      row = await read("incident", { fleet, id });
      if (!isClosed) paint();
    } catch (error) {
      if (!isClosed && !row) refill(body, h("div.nothing", {}, h("h2", {}, error.status === 404 ? "Incident not found" : "The incident cannot be read"), h("p", { role: "alert" }, error.message), h("a", { href: "#/incidents" }, "Back to incidents")));
    }
  }

  function paint() {
    copy.hidden = false;
    const text = JSON.stringify([row, linked(row), isOpen(row) && Math.floor(now() / AGAIN_MS)]);
    if (text === painted) return;
    painted = text;
    heading.replaceChildren(...broken(row.reason));
    refill(state, incidentBadge(row));
    if (row.node) refill(body, facts(row), evidence(row), next(row), timeline(row), jobs(row));
    else refill(body, checkpointFacts(row), evidence(row), next(row));
  }

  const loads = repeated(load, AGAIN_MS);
  const stop = listen((changed) => {
    const nodes = [row?.node, row?.successor].map((node) => `${fleet} ${node}`);
    if (!changed || changed.fleets || changed.incidents?.has(`${fleet} ${id}`) || nodes.some((one) => changed.nodes?.has(one))) loads.again();
    else if (row && (changed.nodes || changed.jobs)) paint(); // links to pages that there are now
  });
  return () => {
    isClosed = true;
    loads.stop();
    stop();
  };
}

function listed(fields) {
  const known = fields.filter(([, value]) => value);
  return h("section.card", {}, h("dl.facts", {}, known.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
}

/** Facts of a checkpoint that was moved; an old definition of the resource keeps none of them. */
function checkpointFacts(row) {
  const one = row.checkpoint ?? { problems: [], attempts: [] };
  const depths = { sizes: "names and sizes", hashes: "names, sizes and checksums" };
  return listed([
    ["Checkpoint", one.name],
    ["Step", one.step === null || one.step === undefined ? "" : number(one.step)],
    ["Size", one.size ? bytes(one.size) : ""],
    ["Saved", one.saved_at && zoned(one.saved_at)],
    ["Job", row.job && (table("jobs").has(row.job) ? h("a", { href: jobLink(row.job) }, row.job) : row.job)],
    ["State", one.state],
    ["Verified", depths[one.depth] ?? one.depth],
    ["Quarantined", zoned(row.quarantined_at) + (one.attempt === null || one.attempt === undefined ? "" : `, before attempt ${one.attempt}`)],
    ["Attempts that resumed from it", one.attempts.join(", ")],
    ["Moved to", one.path && h("code", {}, one.path)],
    ["Resumed from instead", one.name && (one.resumed || "nothing: the job started over")],
    ["Fleet", row.fleet],
  ]);
}

function facts(row) {
  const name = (node) => (table("nodes").has(`${row.fleet} ${node}`) ? h("a", { href: nodeLink(row.fleet, node) }, node) : node);
  const fields = [
    ["Node", name(row.node)],
    ["Machine", row.provider_id],
    ["Replaced by", row.successor && name(row.successor)],
    ["Remedy", row.remedy],
    ["Detected", zoned(row.detected_at)],
    ["Duration", row.state === "unfinished" ? "unknown: its run is no longer managed" : isOpen(row) ? h("span", {}, since(row.detected_at), " so far") : duration(took(row))],
    ["Fleet", row.fleet],
  ];
  return listed(fields);
}

/** What was found, as text: of a checkpoint, each check that failed. */
function evidenceText(row) {
  return row.checkpoint?.problems.length ? row.checkpoint.problems.join("\n") : row.message;
}

/** Meaning of the reason and of the XIDs in the evidence. */
function meanings(row) {
  const codes = new Map([...row.message.matchAll(CODE)].map(([, kind, code]) => [`${kind} ${code}`, (kind === "Xid" ? XIDS : SXIDS)[code]]));
  return [REASONS[row.reason], ...[...codes].map(([code, meaning]) => `${code}: ${meaning ?? "not in NVIDIA's catalog"}.`)].filter(Boolean);
}

function evidence(row) {
  return h(
    "section.card",
    {},
    h("h2", {}, "What happened"),
    meanings(row).map((one) => h("p", {}, one)),
    row.message ? h("pre.evidence", { tabindex: "0", role: "region", "aria-label": "Evidence" }, evidenceText(row)) : h("p.empty", {}, "No evidence was recorded."),
  );
}

/** What was done, and why. */
function done(row) {
  if (!row.node) return ["The checkpoint was moved out of its directory before the attempt started. Nothing was deleted."];
  const asked = row.is_planned ? "It was requested or scheduled: nothing is wrong with the node." : "";
  const why = row.remedy === "none" || row.is_planned ? "" : ", the smallest remedy that helps";
  const remedy = `Remedy: ${REMEDIES[row.remedy] ?? row.remedy}${why}.`;
  const stopped = row.jobs.length ? `${row.jobs.map((one) => one.job).join(", ")} stopped because of it, and resumes from the last checkpoint.` : "";
  const replaced = row.successor ? `${row.successor} replaced it.` : "";
  return [asked, remedy, stopped, replaced].filter(Boolean);
}

const nextSteps = (row) => row.next.map((one) => one[0].toUpperCase() + one.slice(1));

function next(row) {
  return h("section.card", {}, h("h2", {}, "What was done"), done(row).map((one) => h("p", {}, one)), h("h3", {}, "What to do next"), nextSteps(row).map((one) => h("p", {}, one)));
}

/** The incident as a text for tickets and chats. */
function markdown(row) {
  const points = POINTS.filter(([field]) => row[field]);
  const fence = "`".repeat(Math.max(3, ...[...`${row.message} ${evidenceText(row)}`.matchAll(/`+/g)].map(([one]) => one.length + 1)));
  const jobs = row.jobs.map((one) => `- ${one.job}, attempt ${one.attempt}: stopped ${one.stopped_at}${one.resumed_at ? `, resumed ${one.resumed_at}` : ""}`);
  return [
    `## ${row.reason} ${row.node ? "on" : "of"} ${subject(row)}`,
    "",
    `- Incident: ${row.id}, ${row.state}`,
    `- Fleet: ${row.fleet}`,
    row.provider_id && `- Machine: ${row.provider_id}`,
    row.job && `- Job: ${row.job}`,
    row.successor && `- Replaced by: ${row.successor}`,
    row.node && `- Remedy: ${row.remedy}`,
    row.node && `- Duration: ${isOpen(row) ? `${duration(between(row.detected_at, new Date(now()).toISOString()))} so far` : duration(took(row))}`,
    "",
    ...meanings(row),
    evidenceText(row) && row.message !== evidenceText(row) && row.message,
    row.message && `\n${fence}\n${evidenceText(row)}\n${fence}`,
    "",
    "| Milestone | Time |\n|---|---|",
    ...points.map(([field, name]) => `| ${name} | ${row[field]} |`),
    jobs.length > 0 && `\nAffected jobs:\n\n${jobs.join("\n")}`,
    `\nNext: ${nextSteps(row).join("; ")}`,
    `\n${location.href}\n`,
  ]
    .filter((one) => typeof one === "string")
    .join("\n");
}

/** Copy a text; without TLS, only the old way works, and it needs a selection. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea.unseen", {}, text);
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
  }
}

function timeline(row) {
  const found = phases(row);
  const points = POINTS.filter(([field]) => row[field]);
  const last = points.at(-1)[0];
  const rows = points.map(([field, point], place) => [
    point,
    moment(row[field]),
    place ? duration(between(row[points[place - 1][0]], row[field])) : "–",
    duration(between(row.detected_at, row[field])),
  ]);
  if (isOpen(row)) rows.push([`${row.state}…`, "now", since(row[last]), since(row.detected_at)]);
  return h(
    "section.card",
    {},
    h("h2", {}, "Timeline"),
    found.length > 0 && stackedBar(found.map((one) => `${one.name} ${duration(one.value)}`).join(", "), found, 22),
    h("ul.key", {}, found.map((one) => h("li", {}, h(`i.part-${one.kind}`), `${one.name} ${duration(one.value)}`))),
    plainTable("Timeline", ["Milestone", "Time", "Duration", "Since detected"], rows, ["", "", "number", "number"]),
  );
}

/** State of other rows that the page shows: nodes that have a page, active jobs. */
function linked(row) {
  return [row.node, row.successor].map((node) => table("nodes").has(`${row.fleet} ${node}`)).concat(row.jobs.map((one) => isActive(one.job)));
}

const isActive = (job) => table("jobs").get(job)?.is_active;

function jobs(row) {
  const rows = row.jobs.map((one) => [
    h("a", { href: jobLink(one.job) }, one.job),
    `#${one.attempt}`,
    one.step === null ? "–" : number(one.step),
    moment(one.stopped_at),
    one.resumed_at ? moment(one.resumed_at) : isActive(one.job) ? "not yet" : "–",
    one.resumed_at ? duration(between(one.stopped_at, one.resumed_at)) : isActive(one.job) ? since(one.stopped_at) : "–",
  ]);
  return h(
    "section.card",
    {},
    h("h2", {}, "Affected jobs"),
    rows.length ? plainTable("Jobs", ["Job", "Attempt", "Step", "Stopped", "Resumed", "Down for"], rows, ["", "", "number"]) : h("p.empty", {}, "No job was affected."),
  );
}
