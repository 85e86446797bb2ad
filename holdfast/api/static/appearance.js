// Color and shape of each node state; color is never the only distinction.

import { h, s } from "./dom.js";
import { table } from "./live.js";

/** States, most urgent first; each path fits a box of 16 by 16. */
export const LOOKS = {
  faulty: {
    word: "Faulty",
    about: "quarantined; waiting for its repair",
    path: "M3.600 1 8 5.400 12.400 1 15 3.600 10.600 8 15 12.400 12.400 15 8 10.600 3.600 15 1 12.400 5.400 8 1 3.600z",
  },
  warning: {
    word: "Warning",
    about: "has findings, and still accepts jobs",
    path: "M8 1.200 15.200 14.500H.8z",
  },
  rebooting: {
    word: "Rebooting",
    about: "rebooting",
    path: "M8 .8a7.200 7.200 0 1 0 0 14.400A7.200 7.200 0 0 0 8 .8zm0 4a3.200 3.200 0 1 1 0 6.400 3.200 3.200 0 0 1 0-6.400z",
  },
  replacing: {
    word: "Replacing",
    about: "being replaced by another machine",
    path: "M8 0 16 8 8 16 0 8zM8 4.600 4.600 8 8 11.400 11.400 8z",
  },
  checking: {
    word: "Checking",
    about: "running a deep health check",
    path: "M8 .8a7.200 7.200 0 1 1 0 14.400A7.200 7.200 0 0 1 8 .8z",
  },
  planned: {
    word: "Planned",
    about: "out of service for work that was requested or scheduled",
    path: "M1.500 2.500h3V.800h2v1.700h3V.800h2v1.700h3v12.500h-13zM3.500 6.500v6.500h9V6.500z",
  },
  joining: {
    word: "Joining",
    about: "waiting for its agent to report it healthy",
    path: "M6 1.500h4V6h4.500v4H10v4.500H6V10H1.500V6H6z",
  },
  closed: {
    word: "Closed",
    about: "cordoned by a person or by its scheduler",
    path: "M8 .8a7.200 7.200 0 1 0 0 14.400A7.200 7.200 0 0 0 8 .8zM4 6.800h8v2.400H4z",
  },
  healthy: {
    word: "Healthy",
    about: "accepts jobs",
    path: "M3.500 1.500h9a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-9a2 2 0 0 1-2-2v-9a2 2 0 0 1 2-2z",
  },
};

export function mark(look, size = 12) {
  return s(
    `svg.mark.look-${look}`,
    { viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    s("path", { d: LOOKS[look].path, "fill-rule": "evenodd" }),
  );
}

/** Badge with the state of a node. */
export function badge(look, word = LOOKS[look].word) {
  return h(`span.badge.tint-${look}`, {}, mark(look, 10), word);
}

const JOB_LOOKS = {
  running: "healthy",
  succeeded: "healthy",
  failed: "faulty",
  starting: "checking",
  waiting: "rebooting",
  stopping: "rebooting",
  interrupted: "warning",
};

export function jobBadge(phase) {
  const look = JOB_LOOKS[phase] ?? "joining";
  return h(`span.badge.tint-${look}`, {}, mark(look, 10), phase[0].toUpperCase() + phase.slice(1));
}

/** Whether the incident is open: its repair has not ended. One of a checkpoint ends with its move. */
export function isOpen(incident) {
  return incident.node !== "" && !incident.released_at && !incident.vanished_at && incident.state !== "unfinished";
}

/** What the incident is about: a node, or a checkpoint of a job. */
export function subject(row) {
  return row.node || (row.checkpoint?.name ?? "a checkpoint");
}

/** Names of the jobs that the incident affected. */
export function jobsOf(row) {
  return row.job ? [row.job] : row.jobs.map((one) => one.job);
}

export function incidentBadge(row) {
  const look = !row.node ? "closed" : isOpen(row) ? (row.is_planned ? "planned" : "faulty") : row.released_at ? "healthy" : "joining";
  return h(`span.badge.tint-${look}`, {}, mark(look, 10), row.state[0].toUpperCase() + row.state.slice(1) + (row.is_planned ? " (planned)" : ""));
}

export function nodeLink(fleet, name) {
  return `#/node/${encodeURIComponent(fleet)}/${encodeURIComponent(name)}`;
}

export function jobLink(name) {
  return `#/job/${encodeURIComponent(name)}`;
}

export function stacksLink(job) {
  return `#/stacks/${encodeURIComponent(job)}`;
}

export function checkpointsLink(job) {
  return `#/checkpoints/${encodeURIComponent(job)}`;
}

export function logLink(job, rank) {
  return `#/log/${encodeURIComponent(job)}?rank=${rank}`;
}

/** The job of a node, as a link if it has a page; jobs that Holdfast does not resume have none. */
export function jobOf(row, text) {
  return table("jobs").has(row.job) ? h("a", { href: jobLink(row.job) }, text) : text;
}

export function incidentLink(fleet, id) {
  return `#/incident/${encodeURIComponent(fleet)}/${encodeURIComponent(id)}`;
}

/** Node name without the prefix that all nodes of HyperPod share. */
export function shortName(name) {
  return name.replace(/^hyperpod-/, "");
}
