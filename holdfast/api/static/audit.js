// Audit page: the changes that people requested, newest first.

import { read, repeated } from "./api.js";
import { h } from "./dom.js";
import { count, dateTime, number, zoned } from "./format.js";
import { badge } from "./appearance.js";
import { keyedTable } from "./table.js";

const AGAIN_MS = 5000;
const LOOKS = { accepted: "healthy", refused: "closed", failed: "faulty" };

export const title = "Audit";

export function open(container, { query, setQuery }) {
  const wanted = { text: query.get("q") ?? "", sort: query.get("sort") ?? "" };
  const search = h("input.search", { type: "search", placeholder: "Person, operation, cluster or address", "aria-label": "Search the audit log", value: wanted.text, oninput: () => change({ text: search.value.trim() }) });
  const shown = h("p.shown", { role: "status" });
  const list = keyedTable({
    caption: "Audit log",
    key: (row) => row.key,
    empty: "No change has been requested yet.",
    sorted: wanted.sort,
    resorted: (sort) => change({ sort }),
    columns: [
      { title: "Time", cell: (row) => h("time", { datetime: row.at, title: zoned(row.at) }, dateTime(row.at)), text: (row) => row.at, sort: (row) => row.at },
      { title: "Person", cell: (row) => row.person ?? (row.claimed_key ? `unknown, claims key ${row.claimed_key}` : "unknown"), sort: (row) => row.person },
      { title: "Operation", cell: (row) => row.operation, sort: (row) => row.operation },
      { title: "Outcome", cell: (row) => badge(LOOKS[row.outcome] ?? "closed", row.outcome), text: (row) => row.outcome, sort: (row) => row.outcome },
      { title: "Request", cell: (row) => details(row), text: (row) => row.key },
      { title: "Address", cell: (row) => row.address ?? "–", sort: (row) => row.address, narrow: "roomy" },
      { title: "Via", cell: (row) => row.via ?? "–", sort: (row) => row.via, narrow: "roomy" },
    ],
  });
  container.append(
    h("header.head", {}, h("h1", { tabindex: "-1" }, "Audit"), h("p.about", {}, "Changes that people requested through the API and the console, including rejected requests.")),
    h("section.card", {}, h("div.bar", {}, h("div.tools", {}, search)), shown, list.element),
  );
  let entries = [];
  let isClosed = false;

  function change(next) {
    Object.assign(wanted, next);
    setQuery({ q: wanted.text, sort: wanted.sort });
    paint();
  }

  async function load() {
    try {
      const answer = await read("audit");
      entries = answer.entries.map((row) => ({ ...row, key: JSON.stringify(row) }));
    } catch (error) {
      shown.textContent = error.message;
      return;
    }
    if (!isClosed) paint();
  }

  function paint() {
    const text = wanted.text.toLowerCase();
    const rows = entries.filter((row) => row.key.toLowerCase().includes(text));
    shown.textContent = rows.length === entries.length ? `The last ${count(entries.length, "entry", "entries")}; the file on the server has all.` : `${number(rows.length)} of ${count(entries.length, "entry", "entries")}`;
    list.update(rows, entries.length ? "No entry matches." : "No change has been requested yet.");
  }

  const loads = repeated(load, AGAIN_MS);
  return () => {
    isClosed = true;
    loads.stop();
  };
}

function details(row) {
  const omitted = row.omitted_refusals ? `${count(row.omitted_refusals, "refused request")} before it not recorded` : "";
  return h("div.cause", {}, row.message && h("span", {}, row.message), row.request && h("code", {}, JSON.stringify(row.request)), omitted && h("span", {}, omitted));
}
