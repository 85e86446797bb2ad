// Job pages: list and details.

import { read, repeated } from "./api.js";
import { broken, h, icon, refill } from "./dom.js";
import { count, dateTime, duration, moment, number, percent, since, zoned } from "./format.js";
import { awaited, connection, listen, note, table } from "./live.js";
import { incidentLink, jobBadge, jobLink, nodeLink, shortName } from "./appearance.js";
import { PARTS, partsKey, partsOf } from "./goodput.js";
import { stackedBar, timeline } from "./plots.js";
import { keyedTable, plainTable } from "./table.js";

const AGAIN_MS = 5000;

export const title = "Jobs";

export function open(container) {
  const list = keyedTable({
    caption: "Jobs",
    key: (row) => row.name,
    empty: "No jobs yet.",
    columns: [
      { title: "Job", cell: (row) => h("a", { href: jobLink(row.name) }, row.name), text: (row) => row.name },
      { title: "Phase", cell: (row) => jobBadge(row.phase), text: (row) => row.phase },
      { title: "Nodes", cell: (row) => number(row.nodes), kind: "number" },
      { title: "Attempt", cell: (row) => number(row.attempt), kind: "number" },
      { title: "Step", cell: (row) => (row.step === undefined ? "–" : number(row.step)), kind: "number" },
      { title: "Retries", cell: (row) => retries(row), narrow: "roomy" },
      { title: "For", cell: (row) => since(row.since), text: (row) => row.since, kind: "number" },
      { title: "Reason", cell: (row) => row.reason ?? "–", narrow: "roomy" },
    ],
  });
  container.append(
    h("header.head", {}, h("h1", { tabindex: "-1" }, "Jobs"), h("p.about", {}, "All jobs, newest first. A job that fails because of its hardware resumes automatically.")),
    h("section.card", {}, list.element),
  );
  const paint = () => {
    const rows = [...table("jobs").values()].sort((one, other) => (one.started_at < other.started_at ? 1 : -1));
    list.update(rows, connection().isFilled ? note("jobs").message || "No jobs yet." : awaited("jobs"));
  };
  paint();
  return listen((changed) => {
    if (!changed || changed.jobs || changed.notes || !connection().isFilled) paint();
  });
}

function retries(row) {
  return `${row.hardware_retries} of ${row.max_retries} hardware, ${row.app_retries} of ${row.max_app_retries} application`;
}

export const one = { title: "Job", open: openOne };

function openOne(container, { parts: [name] }) {
  const state = h("span");
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the job…"));
  container.append(
    h("header.head", {}, h("a.up", { href: "#/jobs" }, icon("back"), "Jobs"), h("div.titled", {}, h("h1", { tabindex: "-1" }, name), state)),
    body,
  );
  let isClosed = false;
  let last = null;

  async function load() {
    try {
      last = await read("job", { name });
      if (!isClosed) paint();
    } catch (error) {
      if (!isClosed && !last) refill(body, h("div.nothing", {}, h("h2", {}, error.status === 404 ? "Job not found" : "The job cannot be read"), h("p", { role: "alert" }, error.message), h("a", { href: "#/jobs" }, "Back to jobs")));
    }
  }

  function paint() {
    refill(state, jobBadge(last.phase));
    refill(body, h("div.columns", {}, h("div", {}, facts(last), spent(last)), h("div", {}, ranks(last))), attempts(last, body.clientWidth - 40), events(last));
  }

  const loads = repeated(load, AGAIN_MS);
  let step = null;
  const stop = listen((changed) => {
    if (changed && !changed.jobs?.has(name)) return;
    const row = table("jobs").get(name);
    const key = row && `${row.phase} ${row.attempt} ${row.reason}`;
    if (key !== step) loads.again(); // new steps are shown by the next poll
    step = key;
  });
  const resized = new ResizeObserver(() => last && paint());
  resized.observe(container);
  return () => {
    isClosed = true;
    loads.stop();
    resized.disconnect();
    stop();
  };
}

function facts(job) {
  const rows = [
    ["Phase", h("span", {}, job.phase, " for ", since(job.phase_since))],
    ["Reason", job.reason],
    ["Started", zoned(job.started_at)],
    ["Nodes", number(job.nodes)],
    ["Attempt", number(job.attempt)],
    ["Step", job.step === null ? "not reported" : number(job.step)],
    ["Retries", retries(job)],
    ["Command", job.command && h("code", {}, job.command)],
    ["Checkpoints", job.checkpoint_dir && h("code", {}, job.checkpoint_dir)],
  ].filter(([, value]) => value);
  return h("section.card", {}, h("h2", {}, "Details"), h("dl.facts", {}, rows.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
}

function spent(job) {
  const found = job.goodput?.jobs[0];
  if (!found) return null;
  const lost = found.losses.reduce((sum, one) => sum + one.whole, 0);
  return h(
    "section.card",
    {},
    h("h2", {}, "Time by use"),
    h("p.figure", {}, h("strong", {}, percent(found.share)), " in productive training"),
    stackedBar(`${percent(found.share)} of its time was productive training`, partsOf(found)),
    partsKey(found.parts),
    h("p", {}, found.losses.length ? `${count(found.losses.length, "failure")} cost ${duration(lost)} in total.` : "No time was lost to failures."),
    !found.reports_steps && h("p.about", {}, "For some failures the number of repeated steps is unknown; they count as productive training."),
  );
}

function ranks(job) {
  const rows = job.ranks.length
    ? job.ranks.map((rank) => [rank.rank === null ? "–" : String(rank.rank), nodeName(job, rank.node), rank.state, rank.detail || "–"])
    : job.placement.map((node, rank) => [String(rank), nodeName(job, node), job.is_active ? job.phase : "ended", "–"]);
  return h(
    "section.card",
    {},
    h("h2", {}, "Ranks"),
    rows.length ? plainTable("Ranks", ["Rank", "Node", "State", "Detail"], rows, ["number"]) : h("p.empty", {}, "No rank has been placed on a node."),
  );
}

function nodeName(job, node) {
  if (!node) return "–";
  const found = [...table("nodes").values()].find((row) => row.name === node);
  return found ? h("a", { href: nodeLink(found.fleet, node) }, shortName(node)) : shortName(node);
}

const time = (iso) => Date.parse(iso);

function line(stay) {
  const [begun, running, failed, ended] = [stay.begun_at, stay.running_at, stay.failed_at, stay.ended_at].map(time);
  const lasted = failed - stay.redone * 1000;
  return {
    name: `#${stay.attempt}`,
    parts: [
      { name: "Starting", from: begun, to: running, kind: "starting" },
      { name: "Productive training", from: running, to: lasted, kind: "productive" },
      { name: "Repeated training", from: lasted, to: failed, kind: "redone" },
      { name: "Stopping", from: failed, to: ended, kind: "stopping" },
    ].filter((part) => part.to > part.from),
    ended,
  };
}

function attempts(job, wide) {
  if (!job.attempts.length) return h("section.card", {}, h("h2", {}, "Attempts"), h("p.empty", {}, "The job has not started yet."));
  const { stays } = job.goodput.jobs[0];
  const lines = stays.map(line);
  const from = time(stays[0].begun_at);
  const to = Math.max(...lines.map((one) => one.ended));
  const rows = [...job.attempts].reverse().map((one) => [
    `#${one.attempt}`,
    moment(one.started_at),
    one.stopped_at ? duration((time(one.stopped_at) - time(one.started_at)) / 1000) : "active",
    one.first_step === null ? "–" : `${number(one.first_step)} to ${number(one.last_step ?? one.first_step)}`,
    one.lost_steps === null ? "–" : number(one.lost_steps),
    one.kind ? h("div.cause", {}, h("span", {}, `${one.kind}: `, broken(one.reason)), one.evidence && h("code", {}, one.evidence)) : one.stopped_at ? "done" : "–",
    one.node ? nodeName(job, one.node) : "–",
    one.incident_id ? h("a", { href: incidentLink(job.name, one.incident_id) }, "incident") : "–",
  ]);
  return h(
    "section.card",
    {},
    h("h2", {}, "Attempts"),
    h("div.scrolled", { tabindex: "0", role: "region", "aria-label": "Timeline of attempts" }, timeline(`${count(lines.length, "attempt")} from ${moment(from)} to ${moment(to)}; the table below lists each`, lines, from, to, Math.max(300, wide))),
    h("ul.key", {}, PARTS.filter(([kind]) => kind !== "waiting").map(([kind, word]) => h("li", {}, h(`i.part-${kind}`), word))),
    plainTable("Attempts", ["Attempt", "Started", "Duration", "Steps", "Lost steps", "Cause", "Node", "Incident"], rows, ["", "", "number", "number", "number"]),
  );
}

function events(job) {
  const rows = [...job.events].reverse().slice(0, 200).map((one) => [dateTime(one.at), one.message]);
  return h("section.card", {}, h("h2", {}, "Events"), rows.length ? plainTable("Events, newest first", ["Time", "Event"], rows, ["moment"]) : h("p.empty", {}, "No events."));
}
