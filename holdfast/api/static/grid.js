// Nodes of one group on a canvas, each as a shape and a color.

import { h } from "./dom.js";
import { LOOKS, badge, nodeLink, shortName } from "./appearance.js";

const GAP = 3;

/** Cell size in pixels: thousands of nodes fit a screen, and few are easy to click. */
function cellSize(total) {
  if (total > 2000) return 11;
  if (total > 600) return 14;
  return total > 120 ? 18 : 24;
}

/** A grid; `update(rows, total)` draws the rows. */
export function nodeGrid(name) {
  const canvas = h("canvas.cells");
  const tip = h("div.tip", { hidden: true });
  const spoken = h("span.unseen", { role: "status", "aria-live": "polite" });
  const element = h(
    "div.gridded",
    {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "grid of nodes",
      "aria-label": `Nodes of ${name}. Arrow keys move, Enter opens a node. The same nodes are in the table.`,
    },
    canvas,
    tip,
    spoken,
  );
  let rows = [];
  let size = 24;
  let across = 1;
  let at = -1; // index of the cell with keyboard focus
  let over = -1; // index of the cell under the pointer
  let wide = 0;
  let due = false;
  let drawn = { layout: "", cells: [] }; // what is on the canvas now

  function later() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      draw();
    });
  }

  function measure() {
    const pitch = size + GAP;
    wide = element.clientWidth;
    across = Math.max(1, Math.floor((wide + GAP) / pitch));
    const high = Math.max(1, Math.ceil(rows.length / across)) * pitch - GAP;
    const sharp = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(wide * sharp), Math.round((high + 4) * sharp)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.height = `${high + 4}px`;
      drawn = { layout: "", cells: [] };
    }
    return sharp;
  }

  function draw() {
    const sharp = measure();
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(element);
    const color = (token) => style.getPropertyValue(token).trim();
    const focused = document.activeElement === element ? at : -1;
    const layout = [wide, size, sharp, rows.length, over, focused, color("--text")].join(" ");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    if (layout !== drawn.layout) {
      pen.clearRect(0, 0, wide, canvas.height);
      drawn = { layout, cells: [] };
    }
    rows.forEach((row, place) => {
      const cell = `${row.look}${row.pause_reason ? " held" : ""}${row.requested ? " requested" : ""}`;
      if (drawn.cells[place] === cell) return; // few of thousands change at a time
      drawn.cells[place] = cell;
      drawCell(pen, row, place, sharp, color);
    });
    outline(pen, over, color("--muted"));
    outline(pen, focused, color("--accent"));
  }

  function corner(place) {
    const pitch = size + GAP;
    return [(place % across) * pitch, Math.floor(place / across) * pitch + 2];
  }

  function drawCell(pen, row, place, sharp, color) {
    const [x, y] = corner(place);
    pen.clearRect(x, y, size, size + 2);
    pen.drawImage(stamp(row.look, Math.ceil(size * sharp), color(`--look-${row.look}`)), x, y, size, size);
    pen.fillStyle = color("--text");
    if (row.pause_reason) pen.fillRect(x, y + size, size, 2);
    if (row.requested) pen.fillRect(x + size - 4, y, 4, 4);
  }

  function outline(pen, place, color) {
    if (place < 0 || place >= rows.length) return;
    const [x, y] = corner(place);
    pen.strokeStyle = color;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, y - 1, size + 2, size + 2);
  }

  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    const pitch = size + GAP;
    const column = Math.floor((event.clientX - box.left) / pitch);
    const place = Math.floor((event.clientY - box.top - 2) / pitch) * across + column;
    return column >= 0 && column < across && place >= 0 && place < rows.length ? place : -1;
  }

  function show(place) {
    over = place;
    tip.hidden = place < 0;
    canvas.classList.toggle("hit", place >= 0);
    if (place >= 0) {
      const row = rows[place];
      const pitch = size + GAP;
      tip.replaceChildren(h("strong", {}, shortName(row.name)), badge(row.look), ...described(row).map((one) => h("span", {}, one)));
      const left = Math.min((place % across) * pitch, Math.max(0, wide - 250));
      tip.style.left = `${left}px`;
      tip.style.top = `${(Math.floor(place / across) + 1) * pitch + 6}px`;
    }
    later();
  }

  function open(place) {
    const row = rows[place];
    if (row) location.hash = nodeLink(row.fleet, row.name);
  }

  const steps = {
    ArrowRight: () => at + 1,
    ArrowLeft: () => at - 1,
    ArrowDown: () => at + across,
    ArrowUp: () => at - across,
    Home: () => 0,
    End: () => rows.length - 1,
    PageDown: () => at + across * 10,
    PageUp: () => at - across * 10,
  };

  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(at);
    } else if (event.key === "Escape") {
      show(-1);
    } else if (steps[event.key]) {
      event.preventDefault();
      at = Math.min(rows.length - 1, Math.max(0, steps[event.key]()));
      speak();
      show(at);
      scrollToIt();
    }
  });
  element.addEventListener("focus", () => {
    if (at < 0 && rows.length) at = 0;
    speak();
    later();
  });
  element.addEventListener("blur", () => show(-1));
  canvas.addEventListener("pointermove", (event) => {
    const place = placeOf(event);
    if (place !== over) show(place);
  });
  canvas.addEventListener("pointerleave", () => show(-1));
  canvas.addEventListener("click", (event) => open(placeOf(event)));
  const resized = new ResizeObserver(later);
  resized.observe(element);
  document.addEventListener("holdfast:theme", later);

  function speak() {
    const row = rows[at];
    if (row) spoken.textContent = [row.name, LOOKS[row.look].word, ...described(row)].join(", ");
  }

  function scrollToIt() {
    const box = element.getBoundingClientRect();
    const y = box.top + Math.floor(at / across) * (size + GAP);
    if (y < 80) window.scrollBy(0, y - 80);
    else if (y > innerHeight - 120) window.scrollBy(0, y - innerHeight + 120);
  }

  function update(next, total) {
    rows = next;
    size = cellSize(total);
    if (at >= rows.length) at = rows.length - 1;
    if (over >= rows.length) show(-1);
    later();
  }

  function close() {
    resized.disconnect();
    document.removeEventListener("holdfast:theme", later);
  }

  return { element, update, close };
}

const stamps = new Map();

/** A cached drawing of a shape in a color and a size in pixels: copying it is faster than filling a path. */
function stamp(look, pixels, color) {
  const key = `${look} ${pixels} ${color}`;
  if (!stamps.has(key)) {
    const sheet = Object.assign(document.createElement("canvas"), { width: pixels, height: pixels });
    const pen = sheet.getContext("2d");
    pen.scale(pixels / 16, pixels / 16);
    pen.fillStyle = color;
    pen.fill(new Path2D(LOOKS[look].path), "evenodd");
    stamps.set(key, sheet);
  }
  return stamps.get(key);
}

/** Facts about a node besides its state. */
export function described(row) {
  const job = row.job ? `${row.rank === undefined ? "" : `rank ${row.rank} of `}${row.job}` : "";
  return [
    row.reason && (row.remedy && row.remedy !== "none" ? `${row.reason}: ${row.remedy}` : row.reason),
    row.requested && `${row.requested} requested`,
    row.pause_reason && `repairs paused: ${row.pause_reason}`,
    job,
    row.type,
  ].filter(Boolean);
}
