// Log page of one rank of a job: live, with a search, and as a file.

import { read, repeated } from "./api.js";
import { h, icon, refill } from "./dom.js";
import { count, number } from "./format.js";
import { listen, table } from "./live.js";
import { jobLink } from "./appearance.js";

const AGAIN_MS = 1000;
const KEPT = 1 << 21; // characters of a log in the page
const SHOWN = 2000; // lines in the document; more make scrolling slow
const RANKS = 200; // more are entered as a number

export const title = "Log";

export function open(container, { parts: [job], query, setQuery }) {
  const wanted = { rank: Number(query.get("rank")) || 0, attempt: Number(query.get("attempt")) || 0, text: query.get("q") ?? "" };
  const rank = rankField(table("jobs").get(job)?.nodes ?? 0, wanted.rank, (value) => change({ rank: value }));
  const attempt = h("select.narrow", { "aria-label": "Attempt", onchange: () => change({ attempt: Number(attempt.value) }) });
  const search = h("input.search", { type: "search", placeholder: "Show lines that contain…", "aria-label": "Search the log", value: wanted.text, oninput: () => change({ text: search.value }) });
  const follow = h("input", { type: "checkbox", id: "follow", checked: true, onchange: () => scrollDown() });
  const file = h("a.button", {}, icon("download"), "Download");
  const shown = h("p.shown", { role: "status" });
  const trouble = h("p.wrong", { role: "alert", hidden: true });
  const text = h("pre.log", { tabindex: "0", role: "region", "aria-label": "Log" });
  let log = ""; // the last KEPT characters
  let cursor = "";
  let isCut = false;
  let isDone = false; // all output of an ended attempt was read
  let source = 0; // changes with the rank or the attempt
  let isClosed = false;

  container.append(
    h("header.head", {}, h("a.up", { href: jobLink(job) }, icon("back"), job), h("h1", { tabindex: "-1" }, "Log")),
    h(
      "section.card",
      {},
      h("div.bar", {}, h("div.tools", {}, rank.element, attempt, search), h("div.tools", {}, h("label.choice", { for: "follow" }, follow, "Follow"), file)),
      shown,
      trouble,
      text,
    ),
  );

  function change(next) {
    Object.assign(wanted, next);
    setQuery({ rank: String(wanted.rank), attempt: wanted.attempt ? String(wanted.attempt) : "", q: wanted.text });
    if (next.text === undefined) restart();
    else paint();
  }

  function restart() {
    [log, cursor, isCut, isDone] = ["", "", false, false];
    source += 1;
    paint();
    loads.again();
  }

  async function load() {
    if (isDone) return;
    const begun = source;
    const row = table("jobs").get(job);
    const isOver = row && (!row.is_active || (wanted.attempt && wanted.attempt < row.attempt));
    try {
      let part;
      do {
        part = await read("log", { job, rank: wanted.rank, attempt: wanted.attempt, after: cursor });
        if (isClosed || begun !== source) return;
        cursor = part.cursor;
        isCut ||= part.is_cut;
        log += part.text;
        if (log.length > KEPT) {
          log = log.slice(log.indexOf("\n", log.length - KEPT) + 1);
          isCut = true;
        }
        if (part.text) paint();
      } while (part.has_more);
      isDone = isOver;
      trouble.hidden = true;
      if (!log) paint();
    } catch (error) {
      if (isClosed || begun !== source) return;
      trouble.hidden = false;
      if (trouble.textContent !== error.message) trouble.textContent = error.message;
    }
  }

  function paint() {
    const all = clean(log);
    const needle = wanted.text.toLowerCase();
    const found = needle ? all.filter((line) => line.toLowerCase().includes(needle)) : all;
    const part = found.slice(-SHOWN);
    text.replaceChildren(...(needle ? part.flatMap((line) => [...marked(line, needle), "\n"]) : [part.join("\n")]));
    const kept = `${isCut ? "the last " : ""}${count(all.length, "line")}${isCut ? "; download for all" : ""}`;
    const words = needle ? `${number(found.length)} of ${kept}` : kept;
    shown.textContent = words + (found.length > SHOWN ? `; the last ${number(SHOWN)} are shown` : "");
    file.href = `/console/log/file?${new URLSearchParams({ job, rank: wanted.rank, attempt: wanted.attempt })}`;
    paintAttempts();
    scrollDown();
  }

  function scrollDown() {
    if (follow.checked) text.scrollTop = text.scrollHeight;
  }

  function paintAttempts() {
    const latest = table("jobs").get(job)?.attempt ?? wanted.attempt;
    if (attempt.options.length === latest + 1) return;
    const names = Array.from({ length: latest }, (_, place) => latest - place);
    refill(attempt, h("option", { value: "0" }, "Latest attempt"), names.map((one) => h("option", { value: one }, `Attempt ${one}`)));
    attempt.value = String(wanted.attempt);
  }

  text.addEventListener("scroll", () => {
    // Reading older lines ends following, and the end of the log resumes it.
    follow.checked = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
  });
  let latest = null;
  const stop = listen((changed) => {
    if (changed && !changed.jobs?.has(job)) return;
    const row = table("jobs").get(job);
    if (row) rank.setCount(row.nodes);
    paintAttempts();
    if (latest !== null && row && row.attempt !== latest && !wanted.attempt) restart();
    latest = row?.attempt ?? latest;
  });
  latest = table("jobs").get(job)?.attempt ?? null;
  paint();
  const loads = repeated(load, AGAIN_MS);
  return () => {
    isClosed = true;
    loads.stop();
    stop();
  };
}

/** Field for the node rank: a list, or a number for large jobs. */
function rankField(ranks, chosen, choose) {
  const element = h("span");
  let total = -1;
  function setCount(next) {
    if (next === total) return;
    total = next;
    const field =
      total && total <= RANKS
        ? h("select.narrow", { "aria-label": "Rank" }, Array.from({ length: total }, (_, one) => h("option", { value: one }, `Rank ${one}`)))
        : h("input", { type: "number", min: 0, max: total ? total - 1 : null, "aria-label": "Rank" });
    field.value = String(chosen);
    field.addEventListener("change", () => {
      chosen = Number(field.value);
      choose(chosen);
    });
    element.replaceChildren(field);
  }
  setCount(ranks);
  return { element, setCount };
}

/** The lines of a log as a terminal shows them: no colors, and only the last state of a progress bar. */
function clean(log) {
  const lines = log.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1));
}

/** A line whose occurrences of a text in lower case are marked. */
function marked(line, needle) {
  const parts = [];
  const low = line.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(needle); at >= 0; at = low.indexOf(needle, from)) {
    parts.push(line.slice(from, at), h("mark", {}, line.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  return [...parts, line.slice(from)];
}
