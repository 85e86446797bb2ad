// Trends page: faults, repairs and goodput over a range of time.

import { read, repeated } from "./api.js";
import { h, refill } from "./dom.js";
import { count, dateTime, duration, number, percent } from "./format.js";
import { columnPlot } from "./plots.js";
import { plainTable } from "./table.js";

const AGAIN_MS = 10_000;
const HOUR_MS = 3_600_000;
const RANGES = { "24h": [24, "24 hours"], "7d": [168, "7 days"], "30d": [720, "30 days"], "90d": [2160, "90 days"] };
/** Phases of nodes out of service. */
const PHASES = [
  ["draining", "waiting or draining"],
  ["repairing", "in repair"],
  ["checking", "in a check"],
];

export const title = "Trends";

export function open(container, { query, setQuery }) {
  let range = RANGES[query.get("range")] ? query.get("range") : "7d";
  const choice = h("div.switch", { role: "group", "aria-label": "Range of time" });
  const body = h("div", {}, h("div.loading", { role: "status" }, "Computing…"));
  container.append(h("header.head", {}, h("h1", { tabindex: "-1" }, "Trends"), h("p.about", {}, "Faults, repairs, nodes and goodput, from all recorded incidents and attempts.")), h("div.bar", {}, choice), body);
  let last = null;
  let isClosed = false;

  async function load() {
    const wanted = range;
    try {
      const found = await read("trends", { hours: String(RANGES[wanted][0]) });
      if (isClosed || wanted !== range) return;
      last = found;
      paint();
    } catch (error) {
      if (!isClosed && !last) refill(body, h("div.nothing", {}, h("h2", {}, "Trends cannot be computed"), h("p", { role: "alert" }, error.message)));
    }
  }

  function choose(next) {
    range = next;
    setQuery({ range });
    paintChoice();
    loads.again();
  }

  function paintChoice() {
    refill(
      choice,
      Object.entries(RANGES).map(([name, [, word]]) => h("button", { type: "button", "aria-pressed": String(name === range), "data-focus": name, onclick: () => choose(name) }, word)),
    );
  }

  function paint() {
    const wide = Math.min(760, Math.max(280, (body.clientWidth > 900 ? body.clientWidth / 2 : body.clientWidth) - 60));
    const isOpen = body.querySelector("details")?.open ?? false;
    refill(body, figures(last), h("div.columns", {}, faults(last, wide), share(last, wide), states(last, wide), out(last, wide)), listed(last, isOpen));
  }

  paintChoice();
  const loads = repeated(load, AGAIN_MS);
  const resized = new ResizeObserver(() => last && paint());
  resized.observe(container);
  return () => {
    isClosed = true;
    loads.stop();
    resized.disconnect();
  };
}

function figures(found) {
  const tile = (name, value, about) => h("div.tile", {}, h("span.name", {}, name), h("span.value", {}, value), h("span.about", {}, about));
  return h(
    "div.tiles",
    {},
    tile("Incidents", number(found.incidents), found.incidents_per_day === null ? "none" : `${number(found.incidents_per_day, 1)} a day`),
    tile("MTBF of a node", found.mtbf_s === null ? "–" : duration(found.mtbf_s), `${count(found.nodes, "node")} since ${dateTime(found.known_since)}`),
    tile("Time to repair", found.repair_s === null ? "–" : duration(found.repair_s), found.repairs ? `mean of ${number(found.repairs)}, longest ${duration(found.longest_repair_s)}` : "no repair has ended"),
    tile("Goodput", percent(found.goodput), "of all job time"),
  );
}

/** The columns of a plot; `parts(row)` are the parts of one. */
function columnsOf(found, parts) {
  const step = (Date.parse(found.end) - Date.parse(found.begin)) / found.intervals.length;
  return found.intervals.map((row) => ({ at: Date.parse(row.at), end: Date.parse(row.at) + step, parts: parts(row) }));
}

function plot(name, about, found, parts, wide, more) {
  const columns = columnsOf(found, parts);
  const keys = columns[0].parts;
  return h(
    "section.card",
    {},
    h("h2", {}, name),
    columnPlot(`${name}: ${about}; the table below has the values`, columns, wide, more),
    h("ul.key", {}, keys.map((part) => h("li", {}, h(`i.part-${part.kind}`), part.name))),
  );
}

function faults(found, wide) {
  const hours = Math.round((Date.parse(found.end) - Date.parse(found.begin)) / found.intervals.length / HOUR_MS * 10) / 10;
  const parts = (row) => [
    { name: "incidents", kind: "fault", value: row.incidents },
    { name: "planned work", kind: "planned", value: row.planned },
  ];
  return plot(`Incidents every ${number(hours, 1)} h`, count(found.incidents, "incident"), found, parts, wide, { isWhole: true });
}

/** Out of service first, at the bottom: a few nodes of thousands are seen there. */
function states(found, wide) {
  const parts = (row) => [...outOf(row), { kind: "serving", name: "in service", value: row.in_service }];
  const last = found.intervals.at(-1);
  return plot("Nodes by state", `${number(last.in_service, 1)} in service at last`, found, parts, wide);
}

function outOf(row) {
  return PHASES.map(([kind, name]) => ({ kind, name, value: row[kind] }));
}

function out(found, wide) {
  const parts = outOf;
  return plot("Nodes out of service", "mean number", found, parts, wide);
}

function share(found, wide) {
  const parts = (row) => [{ name: "productive training", kind: "productive", value: row.goodput ?? 0 }];
  return plot("Goodput", percent(found.goodput), found, parts, wide, { top: 1, shown: (value) => percent(value, 0) });
}

function listed(found, isOpen) {
  const rows = [...found.intervals].reverse().map((row) => [
    dateTime(row.at),
    number(row.incidents),
    number(row.planned),
    ...PHASES.map(([kind]) => number(row[kind], 2)),
    number(row.in_service, 2),
    percent(row.goodput),
  ]);
  const titles = ["From", "Incidents", "Planned", ...PHASES.map(([, name]) => `Nodes ${name}`), "Nodes in service", "Goodput"];
  return h("section.card", {}, h("details", { open: isOpen }, h("summary", {}, "Values"), plainTable("Values", titles, rows, ["moment", ...titles.slice(1).map(() => "number")])));
}
