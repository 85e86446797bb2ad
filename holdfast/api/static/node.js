// Node page.

import { submitRepair, may, read, repeated } from "./api.js";
import { confirmDialog } from "./confirm.js";
import { devices } from "./devices.js";
import { broken, h, icon, refill } from "./dom.js";
import { count, dateTime, duration, measure, number, since } from "./format.js";
import { listen, table } from "./live.js";
import { badge, incidentBadge, incidentLink, jobOf, mark, nodeLink, shortName } from "./appearance.js";
import { measurePlot } from "./plots.js";
import { plainTable } from "./table.js";

const AGAIN_MS = 5000; // the stream does not report heartbeats

export const title = "Node";

const REPAIRS = {
  reboot: { word: "Reboot", sign: "reboot", isGrave: true, idle: true, about: "The node is drained and rebooted, within the unavailable-node budget." },
  replace: { word: "Replace", sign: "replace", isGrave: true, idle: true, about: "The node is drained and replaced by another machine, within the unavailable-node budget." },
  "deep-check": { word: "Deep check", sign: "check", idle: true, afterJobs: true, about: "The node accepts no jobs during the check, which respects the unavailable-node budget. If it fails, it is replaced." },
  hold: { word: "Pause repairs", sign: "hold", why: true, about: "No repair of the node starts. Faults are still detected and marked." },
  unhold: { word: "Resume repairs", sign: "play", about: "Repairs of the node can start again." },
  release: { word: "Release", sign: "release", isGrave: true, about: "Clears the faults of the node and makes it schedulable." },
};

export function open(container, { parts: [fleet, name] }) {
  const head = h("header.head");
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the node…"));
  const buttons = h("div.actions");
  const heading = h("h1", { tabindex: "-1" }, shortName(name));
  const state = h("span");
  head.append(h("a.up", { href: "#/fleet" }, icon("back"), "Fleet"), h("div.titled", {}, heading, state), h("p.about", {}, name), buttons);
  container.append(head, body);
  let isClosed = false;
  let last = "";
  let painted = "";
  let offered = "";

  async function load() {
    let node;
    try {
      node = await read("node", { fleet, name });
    } catch (error) {
      if (!isClosed && (!last || error.status === 404)) {
        buttons.replaceChildren();
        state.replaceChildren();
        offered = last = painted = "";
        body.replaceChildren(h("div.nothing", {}, h("h2", {}, error.status === 404 ? "Node not found" : "The node cannot be read"), h("p", { role: "alert" }, error.message), error.status === 404 && traces(fleet, name), h("p", {}, h("a", { href: "#/fleet" }, "Back to fleet"))));
      }
      return;
    }
    const text = JSON.stringify(node);
    const next = `${text} ${isStopped(fleet)}`;
    if (isClosed || next === painted) return;
    [last, painted] = [text, next];
    paint(node);
  }

  function paint(node) {
    refill(state, badge(node.row.look), node.pause_reason && h("span.badge.tint-joining", {}, "Repairs paused"));
    paintButtons(node);
    refill(body, h("div.columns", {}, h("div", {}, repairProgress(node), facts(node), findings(node)), h("div", {}, checks(node), history(node))), devices(node));
  }

  function paintButtons(node) {
    const offers = node.is_active ? ["reboot", "replace", "deep-check", node.pause_reason ? "unhold" : "hold", "release"].filter(may) : [];
    if (offered === offers.join()) return;
    offered = offers.join();
    refill(
      buttons,
      offers.map((act) => {
        const { word, sign } = REPAIRS[act];
        return h("button.quiet", { type: "button", "data-focus": act, onclick: () => openRepairDialog(act) }, icon(sign), word);
      }),
    );
  }

  function openRepairDialog(act) {
    const { word, about, isGrave, idle, afterJobs, why } = REPAIRS[act];
    const node = JSON.parse(last);
    const stops = afterJobs ? "is stopped only if you clear the checkbox" : "is stopped and resumes from its last checkpoint";
    const job = node.row.job && idle ? ` The job ${node.row.job} on it ${stops}.` : "";
    const whenIdle = h("input", { type: "checkbox", id: "when-idle", checked: Boolean(afterJobs) });
    const reason = h("input", { type: "text", id: "why", maxlength: 200, autocomplete: "off" });
    confirmDialog({
      title: `${word} ${shortName(name)}?`,
      text: about + job,
      yes: word,
      isGrave,
      fields: [
        idle && h("label.choice", { for: "when-idle" }, whenIdle, "Wait until no job runs on the node"),
        why && h("label", { for: "why" }, "Reason to show to other operators (optional)"),
        why && reason,
      ].filter(Boolean),
      act: async () => {
        const result = await submitRepair({ act, fleet, node: name, when_idle: whenIdle.checked, why: reason.value.trim() });
        loads.again();
        return result;
      },
    });
  }

  const loads = repeated(load, AGAIN_MS);
  const stop = listen((changed) => {
    if (!changed || changed.nodes?.has(`${fleet} ${name}`) || changed.incidents || changed.fleets) loads.again();
  });
  return () => {
    isClosed = true;
    loads.stop();
    stop();
  };
}

/** Links for a node that was removed: its last incident, and the node that replaced it. */
function traces(fleet, name) {
  const past = [...table("incidents").values()].filter((row) => row.fleet === fleet && row.node === name).at(-1);
  if (!past) return null;
  const { successor } = past;
  return [
    successor && h("p", {}, h("a", { href: nodeLink(fleet, successor) }, `Show its replacement, ${shortName(successor)}`)),
    h("p", {}, h("a", { href: incidentLink(fleet, past.id) }, "Show its last incident")),
  ];
}

function card(name, ...children) {
  return h("section.card", {}, h("h2", {}, name), children);
}

const STEPS = ["quarantined", "draining", "repairing", "checking", "released"];

function repairProgress(node) {
  if (!node.remediation && !node.request) return null;
  const at = { quarantined: 0, draining: 1, rebooting: 2, replacing: 2, joining: 2, checking: 3 }[node.phase] ?? -1;
  const { reason, remedy, incident_id: incident } = node.remediation ?? {};
  const wanted = node.request;
  return card(
    node.remediation ? "Current repair" : "Pending request",
    node.remediation && h("p", {}, h("strong", {}, reason), remedy === "none" ? "" : `: ${remedy}, ${node.remediation.urgency === "deferred" ? "when no job runs on it" : "at once"}`),
    node.remediation && h("ol.progress", {}, STEPS.map((step, place) => h(`li${place < at ? ".done" : place === at ? ".now" : ""}`, place === at ? { "aria-current": "step" } : {}, step === "repairing" && node.phase !== "joining" && at === 2 ? node.phase : step))),
    node.remediation && h("p", {}, h("a", { href: incidentLink(node.run, incident) }, "Its incident")),
    (wanted || at === 0) && waits(node),
    wanted && h("p", {}, `${wanted.verb} requested by ${wanted.requested_by || "somebody"}${wanted.urgency === "deferred" ? ", when no job runs on it" : ""}, `, since(wanted.requested_at, " ago"), node.row.waits && `; it ${node.row.waits}`),
  );
}

/** Reason why a repair does not start; null if it may. */
function waits(node) {
  const why = node.pause_reason ? `repairs on the node are paused: ${node.pause_reason}` : isStopped(node.run) ? "the circuit breaker has paused all repairs" : "";
  return why && h("p", {}, h("strong", {}, "Deferred"), `: ${why}`);
}

function isStopped(fleet) {
  return Boolean(table("fleets").get(fleet)?.stopped_at);
}

function facts(node) {
  const row = node.row;
  const fields = [
    ["Phase", h("span", {}, node.phase, " for ", since(node.phase_since))],
    ["Job", row.job ? jobOf(row, row.rank === undefined ? row.job : `rank ${row.rank} of ${row.job}`) : "none"],
    ["Repairs paused", node.pause_reason],
    ["Unschedulable", node.closed],
    ["Machine", node.provider_id],
    ["Instance type", node.instance_type],
    ["Group", node.group],
    ["Fleet", node.run],
    ["Power", node.powered_on === null ? "" : node.powered_on ? "on" : "off"],
    ["Last heartbeat", node.heartbeat_at ? since(node.heartbeat_at, " ago") : "none since boot"],
    ["Boot ID", node.boot_id],
    ["Health label", node.health_status],
    ["Deep check label", node.deep_check_status],
    ["Replaces", node.replaces],
    ["Age", node.created_at ? since(node.created_at) : ""],
  ].filter(([, value]) => value);
  return card("Details", h("dl.facts", {}, fields.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
}

function findings(node) {
  const conditions = Object.entries(node.conditions);
  const faults = node.faults.map((one) => finding(one, one.remedy === "none" ? one.severity : one.remedy, since(one.since, " ago"), "faulty"));
  const notices = node.notices.map((one) => finding(one, one.severity, since(one.observed_at, " ago"), "warning"));
  return card(
    "Conditions",
    conditions.length
      ? plainTable("Conditions that are true", ["Condition", "Reason"], conditions.map((names) => names.map((one) => h("span", {}, broken(one)))))
      : h("p.calm", {}, mark("healthy"), "No condition is true."),
    faults.length > 0 && [h("h3", {}, "Faults"), h("ul.found", {}, faults)],
    notices.length > 0 && [h("h3", {}, "Notices"), h("ul.found", {}, notices)],
  );
}

function finding(one, word, when, look) {
  return h("li", {}, h("strong", {}, one.reason), badge(look, word), h("span.about", {}, one.device || "whole node", ", ", when), h("code", {}, one.message));
}

function checks(node) {
  if (!node.checks.length) return card("Deep checks", h("p.empty", {}, "No deep health check has run on this machine."));
  const names = [...new Set(node.checks.flatMap((one) => Object.keys(one.measured)))].sort();
  const plots = names.map((name) => {
    const [word, unit] = measure(name);
    const points = node.checks
      .filter((one) => name in one.measured)
      .map((one) => ({ at: Date.parse(one.ended_at), value: one.measured[name], isGood: one.passed }));
    const bound = node.checks.findLast((one) => name in one.bounds)?.bounds[name];
    const judged = bound === undefined ? "" : `, threshold ${number(bound, 2)}`;
    return h(
      "figure",
      {},
      h("figcaption", {}, word, h("span.about", {}, ` in ${unit}${judged}`)),
      measurePlot(`${word} over ${count(points.length, "check")}, last ${number(points.at(-1).value, 2)} ${unit}${judged}`, points, unit, bound),
    );
  });
  const rows = [...node.checks].reverse().map((one) => [
    dateTime(one.ended_at),
    outcome(one),
    h(
      "ul.lines",
      {},
      Object.entries(one.measured).map(([name, value]) => h("li", {}, `${measure(name)[0]} ${number(value, 2)} ${measure(name)[1]}`)),
      one.detail && h("li.detail", {}, one.detail),
      one.kinds.map((kind) => h("li.detail", {}, `${kind.kind} ${kind.outcome}${kind.detail ? `: ${kind.detail}` : ""}`)),
    ),
  ]);
  return card("Deep checks", h("div.plots", {}, plots), plainTable("Deep checks", ["Ended", "Result", "Measured"], rows, ["moment"]));
}

/** Badge with the result of a check; `Skipped` if no part of it could be run. */
function outcome(check) {
  if (!check.passed) return badge("faulty", "Failed");
  const hasRun = !check.kinds.length || check.kinds.some((one) => one.outcome === "passed");
  return hasRun ? badge("healthy", "Passed") : badge("warning", "Skipped");
}

function history(node) {
  const incidents = [...node.incidents].reverse().map((one) => {
    const over = one.released_at ?? one.vanished_at;
    return [
      h("a", { href: incidentLink(node.run, one.id) }, broken(one.reason)),
      one.remedy,
      incidentBadge({ ...one, state: one.released_at ? "released" : one.vanished_at ? "vanished" : "open" }),
      dateTime(one.detected_at),
      over ? duration((Date.parse(over) - Date.parse(one.detected_at)) / 1000) : "–",
    ];
  });
  const past = [...node.history].reverse().map((one) => [
    one.reason,
    one.remedy === "none" ? "recovered without repair" : one.remedy,
    dateTime(one.opened_at),
    duration((Date.parse(one.closed_at) - Date.parse(one.opened_at)) / 1000),
  ]);
  return [
    card("Incidents", incidents.length ? plainTable("Incidents of the node", ["Reason", "Remedy", "State", "Detected", "Duration"], incidents, ["", "", "", "moment", "number"]) : h("p.empty", {}, "No incidents.")),
    past.length > 0 && card("Previous repairs of this machine", plainTable("Previous repairs", ["Reason", "Remedy", "Started", "Duration"], past, ["", "", "moment", "number"])),
  ];
}
