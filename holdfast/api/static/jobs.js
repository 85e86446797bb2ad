// Job pages: list and details.

import { cancelJob, may, read, repeated } from "./api.js";
import { confirmDialog } from "./confirm.js";
import { broken, h, icon, refill } from "./dom.js";
import { count, dateTime, duration, moment, number, percent, since, zoned } from "./format.js";
import { awaited, connection, listen, note, table } from "./live.js";
import { checkpointsLink, incidentLink, jobBadge, jobLink, logLink, nodeLink, shortName, stacksLink } from "./appearance.js";
import { grouped, levelBadge, withLinks } from "./events.js";
import { PARTS, partsKey, partsOf } from "./goodput.js";
import { stackedBar, timeline } from "./plots.js";
import { keyedTable, plainTable } from "./table.js";

const AGAIN_MS = 5000;
const EVENTS = 50;
const STATES = { all: "All", active: "Active", ended: "Ended" };

export const title = "Jobs";

export function open(container, { query, setQuery }) {
  const wanted = { state: STATES[query.get("state")] ? query.get("state") : "all", text: query.get("q") ?? "", sort: query.get("sort") ?? "" };
  const choice = h("div.switch", { role: "group", "aria-label": "Filter by state" });
  const search = h("input.search", { type: "search", placeholder: "Name, phase or reason", "aria-label": "Search jobs", value: wanted.text, oninput: () => change({ text: search.value.trim() }) });
  const shown = h("p.shown", { role: "status" });
  const list = keyedTable({
    caption: "Jobs",
    key: (row) => row.name,
    empty: "No jobs yet.",
    sorted: wanted.sort,
    resorted: (sort) => change({ sort }),
    columns: [
      { title: "Job", cell: (row) => h("a", { href: jobLink(row.name) }, row.name), text: (row) => row.name, sort: (row) => row.name },
      { title: "Phase", cell: (row) => jobBadge(row.phase), text: (row) => row.phase, sort: (row) => row.phase },
      { title: "Nodes", cell: (row) => number(row.nodes), sort: (row) => row.nodes, kind: "number" },
      { title: "Attempt", cell: (row) => number(row.attempt), sort: (row) => row.attempt, kind: "number" },
      { title: "Step", cell: (row) => (row.step === undefined ? "–" : number(row.step)), sort: (row) => row.step ?? -1, kind: "number" },
      { title: "Retries", cell: (row) => retries(row), sort: (row) => row.hardware_retries + row.app_retries, narrow: "roomy" },
      { title: "For", cell: (row) => since(row.since), text: (row) => row.since, sort: (row) => -Date.parse(row.since), kind: "number" },
      { title: "Reason", cell: (row) => row.reason ?? "–", sort: (row) => row.reason, narrow: "roomy" },
    ],
  });
  container.append(
    h("header.head", {}, h("h1", { tabindex: "-1" }, "Jobs"), h("p.about", {}, "All jobs, newest first. A job that fails because of its hardware resumes automatically.")),
    h("section.card", {}, h("div.bar", {}, choice, h("div.tools", {}, search)), shown, list.element),
  );
  function change(next) {
    Object.assign(wanted, next);
    setQuery({ state: wanted.state === "all" ? "" : wanted.state, q: wanted.text, sort: wanted.sort });
    paint();
  }
  const paint = () => {
    refill(
      choice,
      Object.entries(STATES).map(([state, word]) => h("button", { type: "button", "aria-pressed": String(wanted.state === state), "data-focus": state, onclick: () => change({ state }) }, word)),
    );
    const all = [...table("jobs").values()].sort((one, other) => (one.started_at < other.started_at ? 1 : -1));
    const text = wanted.text.toLowerCase();
    const rows = all
      .filter((row) => wanted.state === "all" || row.is_active === (wanted.state === "active"))
      .filter((row) => [row.name, row.phase, row.reason].join(" ").toLowerCase().includes(text));
    shown.textContent = rows.length === all.length ? count(all.length, "job") : `${number(rows.length)} of ${count(all.length, "job")}`;
    const none = all.length ? "No job matches." : note("jobs").message || "No jobs yet.";
    list.update(rows, connection().isFilled ? none : awaited("jobs"));
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
  const buttons = h("div.actions");
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the job…"));
  container.append(
    h("header.head", {}, h("a.up", { href: "#/jobs" }, icon("back"), "Jobs"), h("div.titled", {}, h("h1", { tabindex: "-1" }, name), state), buttons),
    body,
  );
  const ranks = rankCard(name);
  const left = h("div");
  const columns = h("div.columns", {}, left, h("div", {}, ranks.element)); // kept, and with it the keyboard's focus
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
    refill(state, jobBadge(last.phase), last.cancel_requested && last.is_active && h("span.badge.tint-joining", {}, "Cancellation requested"));
    refill(
      buttons,
      h("a.button.quiet", { href: logLink(name, 0) }, icon("log"), "Logs"),
      h("a.button.quiet", { href: checkpointsLink(name) }, "Checkpoints"),
      h("a.button.quiet", { href: stacksLink(name) }, "Stacks"),
      last.is_active && !last.cancel_requested && !last.cancel_command && may("cancel-job") && h("button.quiet", { type: "button", "data-focus": "cancel", onclick: confirmCancellation }, icon("stop"), "Cancel job"),
    );
    ranks.update(last);
    refill(left, facts(last), spent(last));
    refill(body, columns, attempts(last, body.clientWidth - 40), events(last, name));
  }

  function confirmCancellation() {
    confirmDialog({
      title: `Cancel ${name}?`,
      text: `Its ranks on ${count(last.nodes, "node")} get SIGTERM, and SIGKILL after the grace period. Holdfast does not resume a cancelled job.`,
      yes: "Cancel job",
      no: "Keep it running",
      isGrave: true,
      act: async () => {
        const result = await cancelJob(name);
        loads.again();
        return result;
      },
    });
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
    ["Step rate", job.steps_per_second && `${Number(job.steps_per_second.toPrecision(3))} steps/s`],
    ["Retries", retries(job)],
    ["Command", job.command && h("code", { tabindex: "0", role: "region", "aria-label": "Command" }, job.command)],
    ["Cancel with", job.is_active && job.cancel_command && h("code", {}, job.cancel_command)],
    ["Checkpoints", job.checkpoint_dir && h("code", {}, job.checkpoint_dir)],
  ].filter(([, value]) => value);
  return h("section.card", {}, h("h2", {}, "Details"), h("dl.facts", {}, rows.map(([key, value]) => h(value instanceof Element && value.matches("code") ? "div.whole" : "div", {}, h("dt", {}, key), h("dd", {}, value)))));
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

/** A card with the ranks, which keeps its rows: a large job has thousands. `update(job)` shows them. */
function rankCard(name) {
  let job = null;
  const log = (rank) => h("a", { href: logLink(name, rank), "aria-label": `Log of rank ${rank}` }, "log");
  const list = keyedTable({
    caption: "Ranks",
    key: (row) => `${row.rank} ${row.name ?? row.node}`,
    empty: "No rank has been placed on a node.",
    columns: [
      { title: "Rank", cell: (row) => (row.rank === null ? "–" : String(row.rank)), sort: (row) => row.rank ?? "", kind: "number" },
      { title: "Node", cell: (row) => nodeName(job, row.node), text: (row) => `${row.node} ${isKnown(job, row.node)}`, sort: (row) => row.node },
      { title: "State", cell: (row) => row.state, sort: (row) => row.state },
      { title: "Detail", cell: (row) => row.detail || "–", sort: (row) => row.detail },
      { title: "Log", cell: (row) => (row.rank === null ? "–" : log(row.rank)), text: (row) => String(row.rank) },
    ],
  });
  const more = h("p.shown", { hidden: true });
  const element = h("section.card", {}, h("h2", {}, "Ranks"), list.element, more);

  function update(next) {
    job = next;
    const state = job.is_active ? job.phase : "ended";
    const rows = job.ranks.length ? job.ranks : job.placement.map((node, rank) => ({ rank, node, state }));
    more.hidden = rows.length >= job.all_ranks;
    more.textContent = `The first ${number(rows.length)} of ${number(job.all_ranks)} ranks; all: holdfast jobs describe ${name}`;
    list.update(rows);
  }

  return { element, update };
}

/** A node of a job as a link. Of a local run, the fleet has the name of the job; thousands of rows are not searched. */
function nodeName(job, node) {
  if (!node) return "–";
  return isKnown(job, node) ? h("a", { href: nodeLink(job.fleet, node) }, shortName(node)) : shortName(node);
}

function isKnown(job, node) {
  return table("nodes").has(`${job.fleet} ${node}`);
}

const time = (iso) => Date.parse(iso);

/** Attempts of a job as lines of a timeline. The wait for the next attempt is on the line of that, or on the last. */
export function attemptLines({ stays, ended_at: end }) {
  const last = stays.at(-1);
  const found = stays.map((stay, place) => line(stay, place ? stays[place - 1].ended_at : stay.begun_at));
  found.at(-1).parts.push(...shownParts([{ name: "Waiting for nodes", from: time(last.ended_at), to: time(end), kind: "waiting" }]));
  found.at(-1).ended = Math.max(time(last.ended_at), time(end));
  return found;
}

function line(stay, before) {
  const [begun, running, failed, ended] = [stay.begun_at, stay.running_at, stay.failed_at, stay.ended_at].map(time);
  const lasted = failed - stay.redone * 1000;
  return {
    name: `#${stay.attempt}`,
    parts: shownParts([
      { name: "Waiting for nodes", from: time(before), to: begun, kind: "waiting" },
      { name: "Starting", from: begun, to: running, kind: "starting" },
      { name: "Productive training", from: running, to: lasted, kind: "productive" },
      { name: "Repeated training", from: lasted, to: failed, kind: "redone" },
      { name: "Stopping", from: failed, to: ended, kind: "stopping" },
    ]),
    ended,
  };
}

const shownParts = (parts) => parts.filter((part) => part.to > part.from);

function attempts(job, wide) {
  if (!job.attempts.length) return h("section.card", {}, h("h2", {}, "Attempts"), h("p.empty", {}, "The job has not started yet."));
  const lines = attemptLines(job.goodput.jobs[0]);
  const from = time(job.goodput.jobs[0].begun_at);
  const to = Math.max(...lines.map((one) => one.ended));
  const rows = [...job.attempts].reverse().map((one) => [
    `#${one.attempt}`,
    moment(one.started_at),
    one.stopped_at ? duration((time(one.stopped_at) - time(one.started_at)) / 1000) : "active",
    one.first_step === null ? "–" : `${number(one.first_step)} to ${number(one.last_step ?? one.first_step)}`,
    one.lost_steps === null ? "–" : number(one.lost_steps),
    one.kind ? h("div.cause", {}, h("span", {}, `${one.kind}: `, broken(one.reason)), one.evidence && h("code", {}, one.evidence)) : one.stopped_at ? "done" : "–",
    one.node ? nodeName(job, one.node) : "–",
    one.incident_id ? h("a", { href: incidentLink(job.fleet, one.incident_id) }, "incident") : "–",
  ]);
  return h(
    "section.card",
    {},
    h("h2", {}, "Attempts"),
    h("div.scrolled", { tabindex: "0", role: "region", "aria-label": "Timeline of attempts" }, timeline(`${count(lines.length, "attempt")} from ${moment(from)} to ${moment(to)}; the table below lists each`, lines, from, to, Math.max(300, wide))),
    h("ul.key", {}, PARTS.map(([kind, word]) => h("li", {}, h(`i.part-${kind}`), word))),
    plainTable("Attempts", ["Attempt", "Started", "Duration", "Steps", "Lost steps", "Cause", "Node", "Incident"], rows, ["", "", "number", "number", "number"]),
  );
}

function events(job, name) {
  const all = grouped(job.events);
  const rows = all.slice(0, EVENTS).map(({ last, first, times }) => [
    dateTime(last.at),
    levelBadge(last.level),
    h("div.linked", {}, withLinks(last.message), times > 1 && h("span.repeats", {}, ` × ${number(times)} since ${moment(first.at)}`)),
  ]);
  return h("section.card", {}, h("h2", {}, "Events"), rows.length ? plainTable("Events, newest first", ["Time", "Level", "Event"], rows, ["moment"]) : h("p.empty", {}, "No events."), all.length > EVENTS && h("p.shown", {}, `and ${number(all.length - EVENTS)} older: holdfast jobs describe ${name}`));
}
