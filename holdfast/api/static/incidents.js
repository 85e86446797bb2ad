// List of incidents, and the phases of an incident.

import { broken, h, refill } from "./dom.js";
import { between, count, duration, number, now, since } from "./format.js";
import { awaited, connection, listen, note, table } from "./live.js";
import { incidentBadge, incidentLink, isOpen, jobsOf, nodeLink, shortName, subject } from "./appearance.js";
import { stackedBar } from "./plots.js";
import { keyedTable } from "./table.js";

export const POINTS = [
  ["detected_at", "detected", ""],
  ["quarantined_at", "quarantined", "deciding"],
  ["drained_at", "drained", "draining"],
  ["repaired_at", "repaired", "repairing"],
  ["checked_at", "checked", "checking"],
  ["released_at", "released", "releasing"],
  ["vanished_at", "vanished", "disappearing"],
];
const STATES = { all: "All", open: "Open", ended: "Ended" };

export const title = "Incidents";

/** Finished phases of an incident and the current one, each with its duration in seconds. */
export function phases(row) {
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

export function took(row) {
  return row.node ? between(row.detected_at, row.released_at ?? row.vanished_at) : null;
}

export function open(container, { query, setQuery }) {
  const wanted = { state: STATES[query.get("state")] ? query.get("state") : "all", text: query.get("q") ?? "", sort: query.get("sort") ?? "" };
  const choice = h("div.switch", { role: "group", "aria-label": "Filter by state" });
  const search = h("input.search", { type: "search", placeholder: "Node, checkpoint, reason or job", "aria-label": "Search incidents", value: wanted.text, oninput: () => change({ text: search.value.trim() }) });
  const shown = h("p.shown", { role: "status" });
  const list = keyedTable({
    caption: "Incidents",
    key: (row) => `${row.fleet} ${row.id}`,
    empty: "No incidents yet.",
    sorted: wanted.sort,
    resorted: (sort) => change({ sort }),
    columns: [
      { title: "Reason", cell: (row) => h("a", { href: incidentLink(row.fleet, row.id) }, broken(row.reason)), text: (row) => row.reason, sort: (row) => row.reason },
      { title: "Subject", cell: (row) => (row.node ? nodeName(row.fleet, row.node) : broken(subject(row))), text: (row) => `${subject(row)} ${table("nodes").has(`${row.fleet} ${row.node}`)}`, sort: subject },
      { title: "State", cell: (row) => incidentBadge(row), text: (row) => `${row.state} ${isOpen(row)}`, sort: (row) => row.state },
      { title: "Remedy", cell: (row) => (row.remedy === "none" ? "–" : row.remedy), sort: (row) => row.remedy, narrow: "roomy" },
      { title: "Detected", cell: (row) => since(row.detected_at, " ago"), text: (row) => row.detected_at, sort: (row) => row.detected_at },
      { title: "Duration", cell: (row) => (isOpen(row) ? since(row.detected_at) : row.node ? duration(took(row)) : "–"), text: (row) => took(row) ?? row.state, sort: (row) => (row.node ? (took(row) ?? between(row.detected_at, new Date(now()).toISOString())) : 0), kind: "number" },
      { title: "Jobs", cell: (row) => jobsOf(row).join(", ") || "–", narrow: "roomy" },
      { title: "Phases", cell: (row) => (row.node ? bar(row) : "–"), text: (row) => JSON.stringify([row.state, POINTS.map(([field]) => row[field])]), kind: "wide", narrow: "roomy" },
    ],
  });
  container.append(
    h("header.head", {}, h("h1", { tabindex: "-1" }, "Incidents"), h("p.about", {}, "Faults of nodes, from the detection to the release, and checkpoints that were quarantined.")),
    h("section.card", {}, h("div.bar", {}, choice, h("div.tools", {}, search)), shown, list.element),
  );

  function change(next) {
    Object.assign(wanted, next);
    setQuery({ state: wanted.state === "all" ? "" : wanted.state, q: wanted.text, sort: wanted.sort });
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
      .filter((row) => !text || [subject(row), row.successor, row.reason, row.message, row.id, ...jobsOf(row)].join(" ").toLowerCase().includes(text))
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

/** Name of a node, as a link if it has a page. */
function nodeName(fleet, node) {
  return table("nodes").has(`${fleet} ${node}`) ? h("a", { href: nodeLink(fleet, node) }, shortName(node)) : shortName(node);
}

function bar(row) {
  const found = phases(row);
  const text = found.map((one) => `${one.name} ${duration(one.value)}`).join(", ");
  return found.length ? stackedBar(text, found, 10) : "–";
}
