// Events: level, repeated ones as one line, names as links.

import { h } from "./dom.js";
import { badge, incidentLink, jobLink, nodeLink } from "./appearance.js";
import { rowWith, table } from "./live.js";

const NUMBER = /(?<![\w-])\d[\d.,]*(?:ms|[smhd%])?(?![\w-])/g; // not those in names
const NAME = /[\w./@-]*\w/g;

const LEVELS = { Error: ["faulty", "Error"], Warn: ["warning", "Warning"], Info: ["joining", "Info"] };

/** Level of an event: shape, word and color differ. */
export function levelBadge(level) {
  return badge(...(LEVELS[level] ?? LEVELS.Info));
}

/** Events, newest first, with those in succession that differ in numbers only as one: {last, first, times}. */
export function grouped(events) {
  const found = [];
  let before = null;
  for (const one of [...events].reverse()) {
    const key = `${one.event} ${one.message.replace(NUMBER, "0")}`;
    if (key === before) {
      found.at(-1).first = one;
      found.at(-1).times += 1;
    } else {
      found.push({ last: one, first: one, times: 1 });
    }
    before = key;
  }
  return found;
}

/** A text in which the names of nodes, jobs and incidents that have a page are links. */
export function withLinks(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(NAME)) {
    const page = pageOf(match[0]);
    if (!page) continue;
    parts.push(text.slice(from, match.index), h("a", { href: page }, match[0]));
    from = match.index + match[0].length;
  }
  return [...parts, text.slice(from)];
}

/** Address of the page of a node, a job or an incident; null if the name is none of them. */
function pageOf(name) {
  const node = rowWith("nodes", "name", name);
  if (node) return nodeLink(node.fleet, name);
  if (table("jobs").has(name)) return jobLink(name);
  const incident = rowWith("incidents", "id", name);
  return incident ? incidentLink(incident.fleet, name) : null;
}
