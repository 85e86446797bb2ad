// Incident pages: list and details.

import { broken, h, icon, refill } from "./dom.js";
import { between, count, duration, moment, number, now, since, zoned } from "./format.js";
import { awaited, connection, listen, note, table } from "./live.js";
import { incidentBadge, incidentLink, isOpen, jobLink, nodeLink, shortName } from "./appearance.js";
import { stackedBar } from "./plots.js";
import { keyedTable, plainTable } from "./table.js";

const POINTS = [
  ["detected_at", "detected", ""],
  ["quarantined_at", "quarantined", "deciding"],
  ["drained_at", "drained", "draining"],
  ["repaired_at", "repaired", "repairing"],
  ["checked_at", "checked", "checking"],
  ["released_at", "released", "releasing"],
  ["vanished_at", "vanished", "disappearing"],
];
const AGAIN_MS = 5000; // open phases grow
const STATES = { all: "All", open: "Open", ended: "Ended" };

export const title = "Incidents";

/** Finished phases of an incident and the current one, each with its duration in seconds. */
function phases(row) {
  const found = [];
  let before = null;
  for (const [field, , kind] of POINTS) {
    if (!row[field]) continue;
    if (before) found.push({ name: kind, kind, value: Math.max(0, between(before, row[field])) });
    before = row[field];
  }
  if (isOpen(row)) {
    const [, , kind] = POINTS[POINTS.findLastIndex(([field]) => row[field]) + 1];
    found.push({ name: `${row.state}, so far`, kind, value: Math.max(0, (now() - Date.parse(before)) / 1000) });
  }
  return found;
}

function took(row) {
  return between(row.detected_at, row.released_at ?? row.vanished_at);
}

export function open(container, { query, setQuery }) {
  const wanted = { state: STATES[query.get("state")] ? query.get("state") : "all", text: query.get("q") ?? "" };
  const choice = h("div.switch", { role: "group", "aria-label": "Filter by state" });
  const search = h("input.search", { type: "search", placeholder: "Node, reason or job", "aria-label": "Search incidents", value: wanted.text, oninput: () => change({ text: search.value.trim() }) });
  const shown = h("p.shown", { role: "status" });
  const list = keyedTable({
    caption: "Incidents",
    key: (row) => `${row.fleet} ${row.id}`,
    empty: "No incidents yet.",
    columns: [
      { title: "Reason", cell: (row) => h("a", { href: incidentLink(row.fleet, row.id) }, broken(row.reason)), text: (row) => row.reason },
      { title: "Node", cell: (row) => shortName(row.node) },
      { title: "State", cell: (row) => incidentBadge(row), text: (row) => `${row.state} ${isOpen(row)}` },
      { title: "Remedy", cell: (row) => (row.remedy === "none" ? "–" : row.remedy), narrow: "roomy" },
      { title: "Detected", cell: (row) => since(row.detected_at, " ago"), text: (row) => row.detected_at },
      { title: "Duration", cell: (row) => (isOpen(row) ? since(row.detected_at) : duration(took(row))), text: (row) => took(row) ?? row.state, kind: "number" },
      { title: "Jobs", cell: (row) => row.jobs.map((one) => one.job).join(", ") || "–", narrow: "roomy" },
      { title: "Phases", cell: (row) => bar(row), text: (row) => JSON.stringify([row.state, POINTS.map(([field]) => row[field])]), kind: "wide", narrow: "roomy" },
    ],
  });
  container.append(
    h("header.head", {}, h("h1", { tabindex: "-1" }, "Incidents"), h("p.about", {}, "Timeline of each fault, from its detection to the release of its node.")),
    h("section.card", {}, h("div.bar", {}, choice, h("div.tools", {}, search)), shown, list.element),
  );

  function change(next) {
    Object.assign(wanted, next);
    setQuery({ state: wanted.state === "all" ? "" : wanted.state, q: wanted.text });
    paint();
  }

  function paint() {
    refill(
      choice,
      Object.entries(STATES).map(([state, word]) => h("button", { type: "button", "aria-pressed": String(wanted.state === state), "data-focus": state, onclick: () => change({ state }) }, word)),
    );
    const text = wanted.text.toLowerCase();
    const all = [...table("incidents").values()];
    const rows = all
      .filter((row) => wanted.state === "all" || isOpen(row) === (wanted.state === "open"))
      .filter((row) => !text || [row.node, row.successor, row.reason, row.message, row.id, ...row.jobs.map((one) => one.job)].join(" ").toLowerCase().includes(text))
      .sort((one, other) => (one.detected_at < other.detected_at ? 1 : -1));
    const known = note("incidents").all ?? all.length;
    const some = rows.length === all.length ? count(rows.length, "incident") : `${number(rows.length)} of ${count(all.length, "incident")}`;
    const older = known > all.length ? `, the newest of ${number(known)}; holdfast incidents list shows all` : "";
    shown.textContent = connection().isFilled ? some + older : "";
    const none = all.length ? "No incident matches." : "No incidents yet. Faults of nodes appear here when they are detected.";
    list.update(rows, connection().isFilled ? none : awaited("incidents"));
  }

  paint();
  return listen((changed) => {
    if (!changed || changed.incidents || changed.notes || !connection().isFilled) paint();
  });
}

function bar(row) {
  const found = phases(row);
  const text = found.map((one) => `${one.name} ${duration(one.value)}`).join(", ");
  return found.length ? stackedBar(text, found, 10) : "–";
}

export const one = { title: "Incident", open: openOne };

function openOne(container, { parts: [fleet, id] }) {
  const state = h("span");
  const heading = h("h1", { tabindex: "-1" }, id);
  const body = h("div");
  let painted = "";
  container.append(h("header.head", {}, h("a.up", { href: "#/incidents" }, icon("back"), "Incidents"), h("div.titled", {}, heading, state), h("p.about", {}, id)), body);

  function paint() {
    const row = table("incidents").get(`${fleet} ${id}`) ?? [...table("incidents").values()].find((one) => one.id === id);
    if (!row) {
      refill(body, connection().isFilled ? h("div.nothing", {}, h("h2", {}, "Incident not found"), h("p", {}, "It may be older than the incidents shown here."), h("a", { href: "#/incidents" }, "Back to incidents")) : h("div.loading", { role: "status" }, "Reading the incident…"));
      return;
    }
    const text = JSON.stringify([row, linked(row), isOpen(row) && Math.floor(now() / AGAIN_MS)]);
    if (text === painted) return;
    painted = text;
    heading.replaceChildren(...broken(row.reason));
    refill(state, incidentBadge(row));
    refill(body, facts(row), timeline(row), jobs(row));
  }

  paint();
  const stop = listen((changed) => {
    if (!changed || changed.incidents || changed.nodes || changed.jobs) paint();
  });
  const timer = setInterval(paint, AGAIN_MS);
  return () => {
    clearInterval(timer);
    stop();
  };
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
    ["Evidence", row.message && h("code", {}, row.message)],
    ["Fleet", row.fleet],
  ].filter(([, value]) => value);
  return h("section.card", {}, h("dl.facts", {}, fields.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
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
