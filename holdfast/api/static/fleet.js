// Fleet page.

import { h, icon, refill } from "./dom.js";
import { count, number, since } from "./format.js";
import { submitRepair, may } from "./api.js";
import { alertCard } from "./alerts.js";
import { confirmDialog } from "./confirm.js";
import { awaited, connection, listen, note, table } from "./live.js";
import { described, nodeGrid } from "./grid.js";
import { LOOKS, badge, isOpen, jobLink, jobOf, mark, nodeLink, shortName } from "./appearance.js";
import { keyedTable } from "./table.js";

const ASKED = 12; // items that need a person
const URGENT = 8; // nodes listed above the grid
const URGENCY = Object.keys(LOOKS);
const NO_GROUP = "All nodes";

export const title = "Fleet";

export function open(container, { query, setQuery }) {
  const wanted = {
    look: new Set((query.get("state") ?? "").split(",").filter((one) => LOOKS[one])),
    group: query.get("group") ?? "",
    text: query.get("q") ?? "",
    view: query.get("view") === "table" ? "table" : "grid",
    sort: query.get("sort") ?? "",
  };
  const tiles = h("div.tiles");
  const alarms = h("div.alarms");
  const alerts = alertCard();
  const asked = h("section.card.asked", { "aria-labelledby": "asked-title", hidden: true });
  const urgent = h("section.card.urgent", { "aria-labelledby": "urgent-title", hidden: true });
  const chips = h("div.chips", { role: "group", "aria-label": "Show only these states" });
  const search = h("input.search", {
    type: "search",
    placeholder: "Name, fleet, reason or job",
    "aria-label": "Search nodes",
    value: wanted.text,
    oninput: () => change({ text: search.value.trim() }),
  });
  const groups = h("select", { "aria-label": "Instance group", onchange: () => change({ group: groups.value }) });
  const views = h("div.switch", { role: "group", "aria-label": "How nodes are shown" });
  const shown = h("p.shown", { role: "status" });
  const stage = h("div.stage");
  const marks = h("p.about", {}, "Line below a node: repairs paused. Dot at its corner: request pending.");
  const grids = new Map();
  let order = []; // keys of all nodes
  const list = nodeTable(wanted.sort, (sort) => change({ sort }));

  container.append(
    h("header.head", {}, h("h1", { tabindex: "-1" }, "Fleet"), h("p.about", {}, "Current state of all nodes that Holdfast manages.")),
    alarms,
    asked,
    tiles,
    alerts.element,
    urgent,
    h("section.card", { "aria-label": "All nodes" }, h("div.bar", {}, chips, h("div.tools", {}, groups, search, views)), shown, stage, marks),
  );

  function change(next) {
    Object.assign(wanted, next);
    const kept = {
      state: [...wanted.look].join(","),
      group: wanted.group,
      q: wanted.text,
      view: wanted.view === "table" ? "table" : "",
      sort: wanted.view === "table" ? wanted.sort : "",
    };
    setQuery(kept);
    paint();
  }

  /** All nodes by name; sorted again only if nodes came or went, which is rare. */
  function byName() {
    const rows = table("nodes");
    if (order.length !== rows.size || !order.every((key) => rows.has(key))) {
      order = [...rows].sort(([, one], [, other]) => (one.name < other.name ? -1 : 1)).map(([key]) => key);
    }
    return order.map((key) => rows.get(key));
  }

  function paint() {
    const nodes = byName();
    const totals = Object.fromEntries(Object.keys(LOOKS).map((look) => [look, 0]));
    for (const row of nodes) totals[row.look] += 1;
    paintTiles(nodes, totals);
    paintAlarms();
    paintAsked();
    alerts.paint();
    paintUrgent(nodes);
    paintChips(totals);
    paintGroups(nodes);
    paintViews();
    const text = wanted.text.toLowerCase();
    const matching = nodes
      .filter(
        (row) =>
          (!wanted.look.size || wanted.look.has(row.look)) &&
          (!wanted.group || groupOf(row) === wanted.group) &&
          (!text || searched(row).includes(text)),
      );
    const isPart = matching.length !== nodes.length;
    shown.textContent = isPart ? `${number(matching.length)} of ${count(nodes.length, "node")}` : count(nodes.length, "node");
    marks.hidden = wanted.view === "table" || !matching.some((row) => row.pause_reason || row.requested);
    if (wanted.view === "table") paintTable(matching, nodes.length);
    else paintGrids(matching, nodes.length);
    if (!nodes.length) stage.replaceChildren(emptyFleet());
  }

  function paintTiles(nodes, totals) {
    const repairs = totals.rebooting + totals.replacing + totals.checking + totals.joining;
    const running = [...table("jobs").values()].filter((job) => job.phase === "running").length;
    const replaced = (window) => [...table("fleets").values()].reduce((sum, one) => sum + (one[window] ?? 0), 0);
    const cases = [...table("incidents").values()].filter((row) => isOpen(row) && !row.is_planned).length;
    refill(
      tiles,
      tile("Nodes", number(nodes.length), nodes.length ? `${number(totals.healthy + totals.warning)} schedulable` : "none yet"),
      tile("Faulty", number(totals.faulty), totals.warning ? `${number(totals.warning)} with a warning` : "waiting for repair", totals.faulty ? "faulty" : ""),
      tile("In repair", number(repairs), totals.planned ? `and ${number(totals.planned)} for planned work` : "reboot, replace, check, join", repairs ? "rebooting" : ""),
      tile("Replaced", number(replaced("replaced_last_day")), `in 24 h, automatically; ${number(replaced("replaced_last_hour"))} in the last hour`),
      tile("Jobs running", number(running), h("a", { href: "#/jobs" }, "All jobs")),
      tile("Open incidents", number(cases), h("a", { href: "#/incidents?state=open" }, "All incidents"), cases ? "faulty" : ""),
    );
  }

  function paintAlarms() {
    const stopped = [...table("fleets").values()].filter((one) => one.stopped_at);
    refill(
      alarms,
      stopped.map((one) =>
        h(
          "div.alarm",
          { role: "alert" },
          h("div", {}, h("strong", {}, `Circuit breaker open: all repairs of ${one.name} paused for `, since(one.stopped_at)), h("p", {}, `${one.stopped_for ?? ""}. Inspect the nodes before you resume repairs.`)),
          may("reset-breaker") &&
            h("button", { type: "button", "data-focus": `breaker ${one.name}`, onclick: () => resetBreaker(one.name) }, icon("play"), "Resume repairs"),
        ),
      ),
    );
  }

  /** What needs a person, in the order of the server: the same items as of `holdfast status`. */
  function paintAsked() {
    const rows = [...table("attention").entries()].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, row]) => row);
    const items = rows.filter((item) => item.topic !== "breaker open"); // it has an alarm with a button
    const all = (note("attention").all ?? rows.length) - (rows.length - items.length);
    const shown = items.slice(0, ASKED);
    const hidden = all - shown.reduce((sum, item) => sum + 1 + (item.more ?? 0), 0);
    asked.hidden = items.length === 0;
    refill(
      asked,
      h("h2", { id: "asked-title" }, "Needs attention ", h("span.amount", {}, number(all))),
      h(
        "ul.rows",
        {},
        shown.map((item) =>
          h(
            "li",
            {},
            badge(item.level === "Info" ? "planned" : "faulty", item.topic[0].toUpperCase() + item.topic.slice(1)),
            h("span.what", {}, attentionLink(item), h("span.next", {}, item.next), item.more && h("strong", {}, `and ${number(item.more)} more like this: holdfast status`)),
          ),
        ),
      ),
      hidden > 0 && h("p.shown", {}, `and ${number(hidden)} more: holdfast status`),
    );
  }

  function paintUrgent(nodes) {
    const bad = nodes.filter((row) => ["faulty", "warning", "rebooting", "replacing"].includes(row.look));
    bad.sort((one, other) => URGENCY.indexOf(one.look) - URGENCY.indexOf(other.look) || (one.since < other.since ? -1 : 1));
    urgent.hidden = bad.length === 0;
    refill(
      urgent,
      h("h2", { id: "urgent-title" }, "Nodes out of service or with a warning ", h("span.amount", {}, number(bad.length))),
      h(
        "ul.rows",
        {},
        bad.slice(0, URGENT).map((row) =>
          h(
            "li",
            {},
            badge(row.look),
            h("a.name", { href: nodeLink(row.fleet, row.name) }, shortName(row.name)),
            h("span.what", {}, described({ ...row, type: "" }).join(", ")),
            h("span.when", {}, "for ", since(row.since)),
          ),
        ),
      ),
      bad.length > URGENT && h("p.shown", {}, `and ${number(bad.length - URGENT)} more: choose a state below`),
    );
  }

  function paintChips(totals) {
    refill(
      chips,
      Object.entries(LOOKS).map(([look, { word, about }]) =>
        h(
          `button.chip.tint-${look}`,
          {
            type: "button",
            "aria-pressed": String(wanted.look.has(look)),
            "data-focus": `chip ${look}`,
            title: about,
            onclick: () => {
              const next = new Set(wanted.look);
              if (!next.delete(look)) next.add(look);
              change({ look: next });
            },
          },
          mark(look),
          word,
          h("span.amount", {}, number(totals[look])),
        ),
      ),
    );
  }

  function paintGroups(nodes) {
    const names = [...new Set(nodes.map(groupOf))].sort();
    groups.hidden = names.length < 2 && !wanted.group;
    if (groups.dataset.names === names.join("\n") && groups.value === wanted.group) return;
    groups.dataset.names = names.join("\n");
    groups.replaceChildren(h("option", { value: "" }, "All groups"), ...names.map((one) => h("option", { value: one }, one)));
    groups.value = wanted.group;
  }

  function paintViews() {
    refill(
      views,
      [["grid", "fleet", "Grid"], ["table", "table", "Table"]].map(([view, sign, word]) =>
        h("button", { type: "button", "aria-pressed": String(wanted.view === view), "data-focus": `view ${view}`, onclick: () => change({ view }) }, icon(sign), word),
      ),
    );
  }

  function paintTable(matching, total) {
    if (!stage.contains(list.element)) stage.replaceChildren(list.element);
    list.update(matching, total ? "No node matches. Clear the search or the states above." : "There are no nodes.");
  }

  function paintGrids(matching, total) {
    const grouped = new Map();
    for (const row of matching) {
      const name = groupOf(row);
      if (!grouped.has(name)) grouped.set(name, []);
      grouped.get(name).push(row);
    }
    const names = [...grouped.keys()].sort();
    for (const [name, one] of grids) {
      if (!grouped.has(name)) {
        one.grid.close();
        grids.delete(name);
      }
    }
    const sections = names.map((name) => {
      if (!grids.has(name)) grids.set(name, groupSection(name));
      const { element, about, grid } = grids.get(name);
      const rows = grouped.get(name);
      const bad = rows.filter((row) => !["healthy", "planned"].includes(row.look)).length;
      about.textContent = `${count(rows.length, "node")}, ${bad ? `${number(bad)} not healthy` : "all healthy"}`;
      return { element, update: () => grid.update(rows, total) };
    });
    const next = sections.length ? sections.map((one) => one.element) : [h("p.empty", {}, "No node matches. Clear the search or the states above.")];
    if (stage.childNodes.length !== next.length || next.some((one, place) => stage.childNodes[place] !== one)) stage.replaceChildren(...next);
    sections.forEach((one) => one.update());
  }

  function groupSection(name) {
    const about = h("span.about");
    const grid = nodeGrid(name);
    return { element: h("section.group", { "aria-label": `Group ${name}` }, h("h3", {}, name, about), grid.element), about, grid };
  }

  function show() {
    const { isFilled, trouble } = connection();
    if (isFilled) paint();
    else if (trouble) stage.replaceChildren(h("p.empty", {}, awaited("nodes")));
    else stage.replaceChildren(h("div.loading", { role: "status" }, awaited("nodes")));
  }

  show();
  let due = false;
  const stop = listen(() => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      show();
    });
  });
  return () => {
    stop();
    for (const { grid } of grids.values()) grid.close();
  };
}

/** What happened, as a link to the job or the node that it is about. */
function attentionLink(item) {
  if (item.job && table("jobs").has(item.job)) return h("a", { href: jobLink(item.job) }, item.what);
  if (item.node) return h("a", { href: nodeLink(item.fleet, item.node) }, item.what);
  return h("span", {}, item.what);
}

function groupOf(row) {
  if (table("fleets").size < 2) return row.group ?? NO_GROUP;
  return row.group ? `${row.fleet} / ${row.group}` : row.fleet;
}

function searched(row) {
  return [row.name, row.machine, row.fleet, row.reason, row.job, row.type, row.pause_reason && `paused ${row.pause_reason}`, row.requested].join(" ").toLowerCase();
}

function tile(name, value, about, look = "") {
  return h(`div.tile${look ? `.tint-${look}` : ""}`, {}, h("span.name", {}, name), h("span.value", {}, value), h("span.about", {}, about));
}

function emptyFleet() {
  return h(
    "div.nothing",
    {},
    h("h2", {}, "No nodes yet"),
    h("p", {}, "Nodes appear here as soon as Holdfast manages them."),
    h("p", {}, note("jobs").message ?? ""),
  );
}

function resetBreaker(fleet) {
  confirmDialog({
    title: `Resume repairs of ${fleet}?`,
    text: "The circuit breaker paused them because too many nodes turned faulty at once. If a detector is wrong, healthy nodes would be repaired.",
    yes: "Resume repairs",
    act: () => submitRepair({ act: "reset-breaker", fleet }),
  });
}

function nodeTable(sorted, resorted) {
  return keyedTable({
    caption: "Nodes",
    key: (row) => `${row.fleet} ${row.name}`,
    empty: "There are no nodes.",
    sorted,
    resorted,
    columns: [
      { title: "Node", cell: (row) => h("a", { href: nodeLink(row.fleet, row.name) }, shortName(row.name)), text: (row) => row.name, sort: (row) => row.name },
      { title: "State", cell: (row) => badge(row.look), text: (row) => row.look, sort: (row) => URGENCY.indexOf(row.look) },
      { title: "Group", cell: (row) => groupOf(row), sort: groupOf, narrow: "roomy" },
      { title: "Reason", cell: (row) => described({ ...row, job: "", type: "" }).join(", ") || "–", sort: (row) => row.reason },
      { title: "Job", cell: (row) => (row.job ? jobOf(row, row.rank === undefined ? row.job : `${row.rank} / ${row.job}`) : "–"), text: (row) => `${row.rank} ${row.job}`, sort: (row) => (row.job ? `${row.job} ${row.rank ?? ""}` : "") },
      { title: "For", cell: (row) => since(row.since), text: (row) => row.since, sort: (row) => -Date.parse(row.since), kind: "number" },
    ],
  });
}
