// Alerts on the first page: the rules that Prometheus has, evaluated by the server.

import { broken, h, refill } from "./dom.js";
import { count, duration, number, since } from "./format.js";
import { note, table } from "./live.js";
import { badge, jobLink, nodeLink, shortName } from "./appearance.js";
import { plainTable } from "./table.js";

const NAMED = 3; // subjects of an alert that its line names
const SEVERITIES = { critical: "faulty", warning: "warning", info: "checking" };

/** A card with the current alerts; `paint()` draws it again. */
export function alertCard() {
  const title = h("h2", { id: "alerts-title" });
  const rows = h("ul.rows");
  const rules = h("div");
  const all = h("details", { ontoggle: paint }, h("summary", {}, "All rules"), rules);
  const element = h("section.card.alerts", { "aria-labelledby": "alerts-title", hidden: true }, title, rows, all);

  function paint() {
    const known = note("alerts").rules ?? [];
    const order = known.map((rule) => rule.name);
    const current = [...table("alerts").values()].sort((one, other) => order.indexOf(one.name) - order.indexOf(other.name));
    const firing = current.filter((one) => one.state === "firing");
    const pending = current.length - firing.length;
    element.hidden = known.length === 0;
    refill(title, "Alerts ", h("span.amount", {}, [firing.length ? `${number(firing.length)} firing` : "none firing", pending && `${number(pending)} pending`].filter(Boolean).join(", ")));
    rows.hidden = firing.length === 0;
    refill(rows, firing.map(line));
    if (all.open) refill(rules, rulesTable(known, current));
  }

  return { element, paint };
}

function line(alert) {
  return h(
    "li",
    {},
    badge(SEVERITIES[alert.severity], alert.severity[0].toUpperCase() + alert.severity.slice(1)),
    h("span.name", {}, broken(alert.name)),
    h("span.what", {}, subjects(alert)),
    h("span.when", {}, "for ", since(alert.since)),
  );
}

/** Links to what an alert is about, or the name of its fleet. */
function subjects(alert) {
  const links = [
    ...alert.nodes.map((name) => h("a", { href: nodeLink(alert.fleet, name) }, shortName(name))),
    ...alert.jobs.map((name) => h("a", { href: jobLink(name) }, name)),
  ];
  if (!links.length) return alert.fleet;
  const shown = links.slice(0, NAMED).flatMap((one, place) => (place ? [", ", one] : [one]));
  return alert.all > NAMED ? [...shown, ` and ${number(alert.all - NAMED)} more`] : shown;
}

/** State of a rule in all fleets. */
function stateOf(rule, current) {
  const states = current.filter((one) => one.name === rule.name).map((one) => one.state);
  return states.includes("firing") ? "firing" : (states[0] ?? "inactive");
}

function rulesTable(known, current) {
  const here = known.filter((rule) => rule.is_evaluated).length;
  const rows = known.map((rule) => [
    rule.name,
    rule.severity,
    rule.is_evaluated ? stateOf(rule, current) : "in Prometheus only",
    rule.lasts ? duration(rule.lasts) : "at once",
    rule.description,
  ]);
  return [
    h("p.shown", {}, `The chart installs these ${count(known.length, "rule")} in Prometheus. ${number(here)} of them follow from what Holdfast stores and are evaluated here, too.`),
    plainTable("Alert rules", ["Alert", "Severity", "State", "Fires after", "Meaning"], rows),
  ];
}
