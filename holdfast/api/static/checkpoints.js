// Page of the checkpoints of a job: their states, and the attempts that resumed from them.

import { read, repeated } from "./api.js";
import { broken, h, icon, refill, s } from "./dom.js";
import { bytes, count, dateTime, moment, number } from "./format.js";
import { listen, table } from "./live.js";
import { incidentLink, jobLink } from "./appearance.js";
import { attemptLines } from "./jobs.js";
import { checkpointMark, timeline } from "./plots.js";
import { plainTable } from "./table.js";

const AGAIN_MS = 10_000; // sizes of all files are compared each time
const DEPTHS = { sizes: "names and sizes", hashes: "checksums" };
const KEY = [
  ["complete", "Complete"],
  ["unverified", "Not verified, or cannot be"],
  ["suspected", "Suspected"],
  ["damaged", "Incomplete, damaged or quarantined"],
];

export const title = "Checkpoints";

export function open(container, { parts: [name] }) {
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the checkpoints…"));
  let isClosed = false;
  let last = null;
  container.append(
    h("header.head", {}, h("a.up", { href: jobLink(name) }, icon("back"), name), h("div.titled", {}, h("h1", { tabindex: "-1" }, "Checkpoints")), h("p.about", {}, `Saves of ${name}, the newest first. Names and sizes are compared here, checksums by holdfast checkpoint watch.`)),
    body,
  );

  async function load() {
    try {
      const [job, found] = await Promise.all([read("job", { name }), read("checkpoints", { name })]);
      last = { job, found };
      if (!isClosed) paint();
    } catch (error) {
      if (!isClosed && !last) refill(body, h("div.nothing", {}, h("h2", {}, error.status === 404 ? "Job not found" : "The checkpoints cannot be read"), h("p", { role: "alert" }, error.message), h("a", { href: "#/jobs" }, "Back to jobs")));
    }
  }

  function paint() {
    const rows = withIncidents(last.found.rows, name);
    const directory = last.found.directory && h("p", {}, h("code", {}, last.found.directory));
    if (!rows.length) {
      refill(body, h("section.card", {}, directory, h("p.empty", {}, last.found.message || "No checkpoint yet.")));
      return;
    }
    refill(body, overTime(last.job, rows, body.clientWidth - 40), listed(rows, name, directory, last.found.message));
  }

  const loads = repeated(load, AGAIN_MS);
  const stop = listen((changed) => {
    if (changed && (changed.incidents || changed.jobs?.has(name))) loads.again();
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

/** Rows with their incidents; where the directory cannot be read, the incidents alone are known. */
function withIncidents(rows, job) {
  const cases = [...table("incidents").values()].filter((one) => one.job === job && one.checkpoint);
  const own = (row) => cases.find((one) => one.checkpoint.name === row.name && one.checkpoint.at === row.moved_at);
  const shown = rows.map((row) => (row.moved_at ? { ...row, incident: own(row) } : row));
  const known = new Set(shown.map((row) => row.incident));
  const others = cases.filter((one) => !known.has(one)).reverse().map((one) => ({ ...one.checkpoint, state: "quarantined", moved_at: one.checkpoint.at, is_loaded: false, attempts: one.checkpoint.attempts.map((attempt) => ({ attempt, end: null })), incident: one }));
  return [...shown, ...others];
}

function overTime(job, rows, wide) {
  const saved = rows.filter((row) => row.saved_at);
  const stays = job.goodput?.jobs[0]?.stays ?? [];
  if (!stays.length) return null;
  const lines = attemptLines(job.goodput.jobs[0]).map((one) => ({ ...one, saves: [] }));
  for (const row of saved) {
    const at = Date.parse(row.saved_at);
    const place = Math.max(0, stays.findLastIndex((stay) => Date.parse(stay.begun_at) <= at));
    lines[place].saves.push({ at, state: row.state, name: `${row.name}: ${row.state}, saved ${dateTime(row.saved_at)}` });
  }
  const from = Date.parse(stays[0].begun_at);
  const to = Math.max(...lines.map((one) => one.ended));
  const label = `${count(saved.length, "checkpoint")} on ${count(lines.length, "attempt")} from ${moment(from)} to ${moment(to)}; the table below lists each`;
  return h(
    "section.card",
    {},
    h("h2", {}, "Saves over time"),
    h("div.scrolled", { tabindex: "0", role: "region", "aria-label": "Timeline of saves" }, timeline(label, lines, from, to, Math.max(300, wide))),
    h("ul.key", {}, KEY.map(([state, word]) => h("li", {}, mark(state), word))),
  );
}

function mark(state) {
  return s("svg.mark-save", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, s(...checkpointMark(state)));
}

function listed(rows, job, directory, message) {
  const cells = rows.map((row) => [
    h("span", {}, mark(row.state), " ", row.state),
    h("div.cause", {}, h("span", {}, broken(row.name), row.is_loaded && h("b", {}, " (loaded next)")), row.problems.length > 0 && h("code", {}, row.problems.slice(0, 3).join("; "))),
    row.step === null ? "–" : number(row.step),
    row.size === null ? "–" : bytes(row.size),
    DEPTHS[row.depth] ?? "–",
    row.saved_at ? dateTime(row.saved_at) : "–",
    row.attempts.length ? row.attempts.map((one) => `#${one.attempt}${one.end?.reason ? ` (${one.end.reason})` : ""}`).join(", ") : "–",
    row.incident ? h("a", { href: incidentLink(row.incident.fleet, row.incident.id) }, "incident") : "–",
  ]);
  return h(
    "section.card",
    {},
    h("h2", {}, "Checkpoints"),
    directory,
    message && h("p.about", {}, message),
    plainTable(`Checkpoints of ${job}`, ["State", "Checkpoint", "Step", "Size", "Verified", "Saved", "Resumed by", "Incident"], cells, ["", "", "number", "number", "", "moment"]),
  );
}
