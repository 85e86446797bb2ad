// Goodput page: time of all jobs by use.

import { read, repeated } from "./api.js";
import { broken, h, refill } from "./dom.js";
import { count, dateTime, duration, percent } from "./format.js";
import { note } from "./live.js";
import { jobLink } from "./appearance.js";
import { bars, stackedBar } from "./plots.js";
import { keyedTable, plainTable } from "./table.js";

const AGAIN_MS = 3000;

/** Kinds of time, in the order of the bars. */
export const PARTS = [
  ["productive", "Productive training"],
  ["redone", "Repeated training"],
  ["stopping", "Stopping"],
  ["waiting", "Waiting for nodes"],
  ["starting", "Starting"],
];

export function partsOf(job) {
  return PARTS.map(([kind, name]) => ({ kind, name, value: job.parts[kind] }));
}

export function partsKey(parts) {
  return h("ul.key", {}, PARTS.map(([kind, word]) => h("li", {}, h(`i.part-${kind}`), `${word} ${duration(parts[kind])}`)));
}

export const title = "Goodput";

export function open(container) {
  const body = h("div", {}, h("div.loading", { role: "status" }, "Computing…"));
  container.append(h("header.head", {}, h("h1", { tabindex: "-1" }, "Goodput"), h("p.about", {}, "Share of all job time spent in productive training, and the cost of failures.")), body);
  const list = jobTable();
  const jobs = h("section.card", {}, h("h2", {}, "By job"), list.element); // kept, and with it the keyboard's focus
  let last = null;
  let isClosed = false;

  async function load() {
    try {
      last = await read("goodput");
      if (!isClosed) paint();
    } catch (error) {
      if (!isClosed && !last) refill(body, h("div.nothing", {}, h("h2", {}, "Goodput cannot be computed"), h("p", { role: "alert" }, error.message)));
    }
  }

  function paint() {
    if (!last.jobs.length) {
      refill(body, h("div.nothing", {}, h("h2", {}, "No job has started yet"), h("p", {}, note("jobs").message ?? "")));
      return;
    }
    list.update([...last.jobs].reverse());
    refill(body, whole(last), causes(last, body.clientWidth), jobs);
  }

  const loads = repeated(load, AGAIN_MS);
  const resized = new ResizeObserver(() => last && paint());
  resized.observe(container);
  return () => {
    isClosed = true;
    loads.stop();
    resized.disconnect();
  };
}

function whole({ jobs }) {
  const parts = Object.fromEntries(PARTS.map(([kind]) => [kind, jobs.reduce((sum, one) => sum + one.parts[kind], 0)]));
  const all = Object.values(parts).reduce((sum, one) => sum + one, 0);
  const share = all ? parts.productive / all : null;
  const silent = jobs.filter((one) => !one.reports_steps).length;
  return h(
    "section.card",
    {},
    h("h2", {}, "All jobs"),
    h("p.figure", {}, h("strong", {}, percent(share)), ` of ${duration(all)} in ${count(jobs.length, "job")}`),
    stackedBar(`${percent(share)} of all time was productive training`, partsOf({ parts }), 28),
    plainTable("Time of all jobs by use", ["Time", "Spent", "Share"], PARTS.map(([kind, word]) => [h("span.keyed", {}, h(`i.part-${kind}`), word), duration(parts[kind]), percent(all ? parts[kind] / all : null)]), ["", "number", "number"]),
    silent > 0 && h("p.about", {}, `In ${count(silent, "job")} the number of repeated steps is unknown for some failures; they count as productive training.`),
  );
}

function causes({ causes: found }, wide) {
  if (!found.length) return h("section.card", {}, h("h2", {}, "Lost time by cause"), h("p.calm", {}, "No time was lost: no attempt of a job has failed."));
  const all = found.reduce((sum, one) => sum + one.seconds, 0);
  const plotted = found.slice(0, 8).map((one) => ({ name: `${one.reason} (${one.kind})`, value: one.seconds, kind: one.kind === "hardware" ? "redone" : "waiting" }));
  return h(
    "section.card",
    {},
    h("h2", {}, "Lost time by cause"),
    h("p.about", {}, "From each failure until all ranks were running again, plus the repeated training."),
    h(
      "div.columns",
      {},
      bars(plotted.map((one) => `${one.name} ${duration(one.value)}`).join(", "), plotted, Math.min(560, Math.max(260, wide - 60))),
      plainTable("Lost time by cause", ["Cause", "Kind", "Lost", "Share"], found.map((one) => [h("span", {}, broken(one.reason)), one.kind, duration(one.seconds), percent(all ? one.seconds / all : null)]), ["", "", "number", "number"]),
    ),
  );
}

/** The table of jobs, which keeps its rows: a cluster has hundreds. */
function jobTable() {
  const lost = (row) => row.losses.reduce((sum, loss) => sum + loss.whole, 0);
  const shares = (row) => partsOf(row).map((part) => `${part.name} ${duration(part.value)}`).join(", ");
  return keyedTable({
    caption: "By job",
    key: (row) => `${row.job} ${row.begun_at}`,
    empty: "No job has started yet.",
    columns: [
      { title: "Job", cell: (row) => h("a", { href: jobLink(row.job) }, row.job), text: (row) => row.job, sort: (row) => row.job },
      { title: "Time", cell: (row) => stackedBar(shares(row), partsOf(row), 12), text: shares, kind: "wide" },
      { title: "Goodput", cell: (row) => percent(row.share), sort: (row) => row.share ?? "", kind: "number" },
      { title: "Failures", cell: (row) => String(row.losses.length), sort: (row) => row.losses.length, kind: "number" },
      { title: "Lost", cell: (row) => duration(lost(row)), sort: lost, kind: "number" },
      { title: "Started", cell: (row) => dateTime(row.begun_at), sort: (row) => row.begun_at, kind: "moment", narrow: "roomy" },
    ],
  });
}
