// Tables that keep their rows by key: a cell is rendered again only if its text changes.

import { h } from "./dom.js";
import { count } from "./format.js";

const PAGE = 100;

/**
 * columns: [{title, cell(row) -> text or element, text(row) -> text to compare, kind, narrow}]
 * key(row): unique key of a row.
 */
export function keyedTable({ caption, columns, key, empty }) {
  // Roles are explicit because CSS that shows rows as cards on a phone removes the implicit ones.
  const body = h("tbody", { role: "rowgroup" });
  const head = columns.map((one) => h(classes("th", one), { scope: "col", role: "columnheader" }, one.title));
  const table = h(
    "table.kept",
    { role: "table" },
    h("caption.unseen", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    body,
  );
  const more = h("button.quiet.more", { type: "button", onclick: showMore });
  const none = h("p.empty", {}, empty);
  const element = h("div.tabled", {}, h("div.scrolled", { tabindex: "0", role: "region", "aria-label": caption }, table), more, none);
  const kept = new Map();
  let rows = [];
  let shown = PAGE;

  function showMore() {
    shown += PAGE;
    paint();
  }

  function paint() {
    const visible = rows.slice(0, shown);
    const keys = new Set(visible.map(key));
    for (const [one, old] of kept) {
      if (!keys.has(one)) {
        old.line.remove();
        kept.delete(one);
      }
    }
    let before = null;
    for (const row of visible) {
      const line = filled(row);
      const next = before ? before.nextSibling : body.firstChild;
      if (next !== line) body.insertBefore(line, next);
      before = line;
    }
    more.hidden = rows.length <= shown;
    more.textContent = `Show ${count(Math.min(PAGE, rows.length - shown), "more row")} of ${count(rows.length - shown, "row")}`;
    table.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  }

  function filled(row) {
    let old = kept.get(key(row));
    if (!old) {
      const cells = columns.map((one, place) =>
        place === 0
          ? h(classes("th", one), { scope: "row", role: "rowheader" })
          : h(classes("td", one), { role: "cell", "data-title": one.title }),
      );
      old = { line: h("tr", { role: "row" }, cells), cells, texts: [] };
      kept.set(key(row), old);
    }
    columns.forEach((one, place) => {
      const text = one.text ? one.text(row) : one.cell(row);
      if (old.texts[place] === text) return;
      old.texts[place] = text;
      old.cells[place].replaceChildren(one.cell(row) ?? "–");
    });
    return old.line;
  }

  function update(next, nothing = empty) {
    rows = next;
    none.textContent = nothing;
    paint();
  }

  return { element, update };
}

function classes(tag, column) {
  return [tag, column.kind, column.narrow].filter(Boolean).join(".");
}

/** A table that is rendered once; with more than four columns it becomes cards on a phone. */
export function plainTable(caption, titles, rows, kinds = []) {
  const kind = (tag, place) => (kinds[place] ? `${tag}.${kinds[place]}` : tag);
  const cell = (one, place) =>
    place === 0
      ? h(kind("th", 0), { scope: "row", role: "rowheader" }, one ?? "–")
      : h(kind("td", place), { role: "cell", "data-title": titles[place] }, one ?? "–");
  return h(
    "div.scrolled",
    { tabindex: "0", role: "region", "aria-label": caption },
    h(
      titles.length > 4 ? "table.kept" : "table",
      { role: "table" },
      h("caption.unseen", {}, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, titles.map((one, place) => h(kind("th", place), { scope: "col", role: "columnheader" }, one)))),
      h("tbody", { role: "rowgroup" }, rows.map((cells) => h("tr", { role: "row" }, cells.map(cell)))),
    ),
  );
}
