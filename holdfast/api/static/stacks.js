// Page of a hang of a job: the verdict, and the stacks of its ranks side by side.

import { read } from "./api.js";
import { h, icon, refill } from "./dom.js";
import { count, zoned } from "./format.js";
import { jobLink, shortName } from "./appearance.js";
import { plainTable } from "./table.js";

const SHOWN_RANKS = 64;

export const title = "Hang";

export function open(container, { parts: [name] }) {
  const body = h("div", {}, h("div.loading", { role: "status" }, "Reading the evidence…"));
  let isClosed = false;
  container.append(
    h("header.head", {}, h("a.up", { href: jobLink(name) }, icon("back"), name), h("div.titled", {}, h("h1", { tabindex: "-1" }, "Hang")), h("p.about", {}, `What the ranks of ${name} did when it was last found to hang. Save it with: `, h("code", {}, `holdfast jobs evidence ${name}`))),
    body,
  );
  read("evidence", { name }).then(
    (found) => isClosed || refill(body, summary(found), stacks(found), ranks(found), kernel(found)),
    (error) => isClosed || refill(body, h("div.nothing", {}, h("h2", {}, error.status === 404 ? "No evidence" : "The evidence cannot be read"), h("p", { role: "alert" }, error.message), h("a", { href: jobLink(name) }, "Back to the job"))),
  );
  return () => {
    isClosed = true;
  };
}

function summary(found) {
  const rows = [
    ["Verdict", `${found.verdict} (${found.kind})`],
    ["Attempt", String(found.attempt)],
    ["Hung since", found.hung_since && zoned(found.hung_since)],
    ["Looked at", zoned(found.suspected_at)],
    ["Evidence", found.evidence],
  ].filter(([, value]) => value);
  return h("section.card", {}, h("h2", {}, "Verdict"), h("dl.facts", {}, rows.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
}

/** One column for each different stack, that of the named ranks first. */
function stacks(found) {
  const named = new Set(found.named);
  const isNamed = (group) => group.ranks.some((rank) => named.has(rank));
  const groups = [...found.groups.filter(isNamed), ...found.groups.filter((group) => !isNamed(group))];
  return h(
    "section.card",
    {},
    h("h2", {}, "Stacks"),
    h("p.about", {}, "Ranks with the same functions on their stacks are one group; the innermost function comes first."),
    h("div.stacks", { tabindex: "0", role: "region", "aria-label": "Stacks side by side" }, groups.map((group) => h("section", {}, h("h3", {}, `${count(group.ranks.length, "rank")}: ${listed(group.ranks)}`), isNamed(group) && h("span.badge.tint-faulty", {}, "the others wait for it"), h("pre.evidence", {}, group.stack.join("\n"))))),
  );
}

function listed(ranks) {
  const more = ranks.length - SHOWN_RANKS;
  return ranks.slice(0, SHOWN_RANKS).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function ranks(found) {
  const rows = found.ranks.map((one) => [String(one.rank), shortName(one.node), one.pid === null ? "–" : String(one.pid), one.state || "–", one.wait_channel || "–", one.accelerator || "–", one.note || "–"]);
  return h("section.card", {}, h("h2", {}, "Ranks"), plainTable("Ranks", ["Rank", "Node", "PID", "State", "Wait channel", "Accelerator", "Note"], rows, ["number"]));
}

function kernel(found) {
  if (!found.kernel.length) return null;
  const silent = found.kernel.filter((one) => !one.lines.length && !one.note);
  const shown = found.kernel.filter((one) => one.lines.length || one.note);
  return h(
    "section.card",
    {},
    h("h2", {}, "Kernel logs"),
    h("p.about", {}, "Warnings and worse since the last step, at most 20 of a node."),
    silent.length > 0 && h("p", {}, `No warnings: ${silent.map((one) => shortName(one.node)).join(", ")}`),
    shown.map((one) => h("section", {}, h("h3", {}, one.node), one.note && h("p", {}, one.note), one.lines.length > 0 && h("pre.evidence", { tabindex: "0" }, one.lines.join("\n")))),
  );
}
