// Tables that keep their rows by key: a cell is rendered again only if its text changes.

import { h, icon } from "./dom.js";
import { count } from "./format.js";

const PAGE = 100;
const BY_NAME = new Intl.Collator(undefined, { numeric: true }); // node-2 before node-10

/**
 * columns: [{title, cell(row) -> text or element, text(row) -> text to compare, sort(row) -> value, kind, narrow}]
 * key(row): unique key of a row.
 * sorted: title of the column to sort by, with a minus for descending order; empty for the order of the rows.
 * resorted(sorted): the user has chosen another order.
 */
export function keyedTable({ caption, columns, key, empty, sorted = "", resorted = () => {} }) {
  // Roles are explicit because CSS that shows rows as cards on a phone removes the implicit ones.
  const body = h("tbody", { role: "rowgroup" });
  const head = columns.map((one) => h(classes("th", one), { scope: "col", role: "columnheader" }, one.sort ? sortButton(one) : one.title));
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
  let order = chosenOrder(sorted);
  paintOrder();

  function chosenOrder(text) {
    const isDown = text.startsWith("-");
    const column = columns.find((one) => one.sort && one.title.toLowerCase() === text.slice(Number(isDown)));
    return { column, isDown };
  }

  function sortButton(column) {
    return h("button.sort", { type: "button", onclick: () => sortBy(column) }, column.title, icon("sorted", 10));
  }

  /** Sort by a column: ascending, then descending, then in the order of the rows. */
  function sortBy(column) {
    const name = column.title.toLowerCase();
    const next = order.column !== column ? name : order.isDown ? "" : `-${name}`;
    order = chosenOrder(next);
    paintOrder();
    paint();
    resorted(next);
  }

  function paintOrder() {
    columns.forEach((one, place) => {
      if (one === order.column) head[place].setAttribute("aria-sort", order.isDown ? "descending" : "ascending");
      else head[place].removeAttribute("aria-sort");
    });
  }

  function ordered() {
    const { column, isDown } = order;
    if (!column) return rows;
    const values = new Map(rows.map((row) => [row, column.sort(row) ?? ""]));
    const sign = isDown ? -1 : 1;
    return [...rows].sort((a, b) => {
      const [one, other] = [values.get(a), values.get(b)];
      if (one === "" || other === "") return (one === "") - (other === ""); // empty cells last
      return sign * compared(one, other);
    });
  }

  function showMore() {
    shown += PAGE;
    paint();
  }

  function paint() {
    const visible = ordered().slice(0, shown);
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

function compared(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return BY_NAME.compare(String(one), String(other));
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
