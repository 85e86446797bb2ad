// SVG plots. Each has a table or text beside it with the same data.

import { s } from "./dom.js";
import { dateTime, day, duration, moment, number } from "./format.js";

const DAY_MS = 86_400_000;

/** Round tick values for an axis from 0 to `top`, about four; of counts, whole ones. */
function steps(top, isWhole = false) {
  const rough = Math.max(top / 4, isWhole ? 1 : 0) || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= rough);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, place) => place * step);
}

/** Parts of a whole as one bar: `parts` is [{name, value, kind}]. */
export function stackedBar(label, parts, high = 18) {
  const whole = parts.reduce((sum, one) => sum + one.value, 0) || 1;
  let x = 0;
  const boxes = parts
    .filter((one) => one.value > 0)
    .map((one) => {
      const wide = (one.value / whole) * 1000;
      const box = s(
        `rect.part-${one.kind}`,
        { x, y: 0, width: Math.max(wide, 1), height: high },
        s("title", {}, `${one.name}: ${duration(one.value)}, ${((one.value / whole) * 100).toFixed(1)} %`),
      );
      x += wide;
      return box;
    });
  return s("svg.stacked", { viewBox: `0 0 1000 ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": label, height: high }, boxes);
}

const SHAPES = {
  complete: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
  unverified: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0zM-2.500 0a2.500 2.500 0 1 1 5 0a2.500 2.500 0 1 1-5 0z",
  suspected: "M0-6 6 5H-6z",
  bad: "M-5-5H5V5H-5z",
};

/** A mark for the state of a checkpoint: shape and color differ. */
export function checkpointMark(state, place = {}) {
  const kind = Object.hasOwn(SHAPES, state) ? state : state === "unknown" ? "unverified" : "bad";
  return [`path.saved-${kind}`, { d: SHAPES[kind], ...place }];
}

/**
 * Attempts of a job, one on each line: `lines` is [{name, parts: [{from, to, kind, name}], saves}], times in ms.
 *
 * saves: optional checkpoints on the line, [{at, state, name}].
 */
export function timeline(label, lines, from, to, wide) {
  const left = 34;
  const pitch = 24;
  const span = Math.max(1, to - from);
  const x = (at) => left + ((at - from) / span) * (wide - left - 8);
  const high = lines.length * pitch + 26;
  const ticks = Math.max(2, Math.min(6, Math.floor(wide / 150)));
  const marks = Array.from({ length: ticks }, (_, place) => from + (span * place) / (ticks - 1));
  return s(
    "svg.timeline",
    { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": label },
    marks.map((at, place) => [
      s("line.guide", { x1: x(at), x2: x(at), y1: 0, y2: high - 22 }),
      s("text", { x: x(at), y: high - 6, "text-anchor": place === 0 ? "start" : place === ticks - 1 ? "end" : "middle" }, moment(at)),
    ]),
    lines.map((line, place) => [
      s("text", { x: 0, y: place * pitch + 15 }, line.name),
      line.parts.map((one) =>
        s(
          `rect.part-${one.kind}`,
          { x: x(one.from), y: place * pitch + 3, width: Math.max(2, x(one.to) - x(one.from)), height: pitch - 8, rx: 3 },
          s("title", {}, `${one.name}: ${duration((one.to - one.from) / 1000)}`),
        ),
      ),
      (line.saves ?? []).map((one) => {
        const at = Math.min(to, Math.max(from, one.at));
        return s(...checkpointMark(one.state, { transform: `translate(${x(at)} ${place * pitch + 11})` }), s("title", {}, one.name));
      }),
    ]),
  );
}

/** Values over time: `points` is [{at, value, isGood}], `at` in ms; `bound` is their threshold. */
export function measurePlot(label, points, unit, bound) {
  const [wide, high, left, bottom] = [290, 150, 44, 24];
  const first = points[0].at;
  const span = Math.max(1, points.at(-1).at - first);
  const top = Math.max(bound ?? 0, ...points.map((one) => one.value)) * 1.1 || 1;
  const x = (at) => (points.length === 1 ? (left + wide) / 2 : left + 8 + ((at - first) / span) * (wide - left - 24));
  const y = (value) => high - bottom - (value / top) * (high - bottom - 12);
  const line = points.map((one) => `${x(one.at).toFixed(1)},${y(one.value).toFixed(1)}`).join(" ");
  const ends = points.length === 1 ? [points[0]] : [points[0], points.at(-1)];
  const when = span > DAY_MS ? day : moment;
  return s(
    "svg.measured",
    { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label },
    steps(top).map((value) => [
      s("line.guide", { x1: left, x2: wide, y1: y(value), y2: y(value) }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value, 2)),
    ]),
    bound !== undefined && s("line.bound", { x1: left, x2: wide, y1: y(bound), y2: y(bound) }, s("title", {}, `threshold ${number(bound, 2)} ${unit}`)),
    s("polyline.line", { points: line }),
    points.map((one) =>
      s(
        one.isGood ? "circle.good" : "rect.bad",
        one.isGood ? { cx: x(one.at), cy: y(one.value), r: 4 } : { x: x(one.at) - 4, y: y(one.value) - 4, width: 8, height: 8 },
        s("title", {}, `${number(one.value, 2)} ${unit}, ${dateTime(one.at)}, ${one.isGood ? "passed" : "failed"}`),
      ),
    ),
    ends.map((one, place) =>
      s("text", { x: x(one.at), y: high - 6, "text-anchor": ends.length === 1 ? "middle" : place ? "end" : "start" }, when(one.at)),
    ),
  );
}

/**
 * Columns over time: `columns` is [{at, end, parts: [{name, value, kind}]}], times in ms, the parts stacked.
 *
 * top: value at the upper edge; by default that of the highest column. isWhole: whether values are counts.
 * shown(value) formats a value.
 */
export function columnPlot(label, columns, wide, { shown = (value) => number(value, 2), top = 0, isWhole = false } = {}) {
  const [high, left, bottom] = [170, 44, 24];
  const sums = columns.map((one) => one.parts.reduce((sum, part) => sum + part.value, 0));
  const peak = top || Math.max(...sums) || 1;
  const pitch = (wide - left) / columns.length;
  const room = high - bottom - 10;
  const y = (value) => high - bottom - (value / peak) * room;
  const span = columns.at(-1).end - columns[0].at;
  const when = span > 2 * DAY_MS ? day : moment;
  return s(
    "svg.columns-plot",
    { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": label },
    steps(peak, isWhole).map((value) => [
      s("line.guide", { x1: left, x2: wide, y1: y(value), y2: y(value) }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, shown(value)),
    ]),
    columns.map((one, place) => {
      let sum = 0;
      return one.parts
        .filter((part) => part.value > 0)
        .map((part) => {
          sum += part.value;
          return s(
            `rect.part-${part.kind}`,
            { x: left + place * pitch + 1, y: y(sum), width: Math.max(1, pitch - 2), height: Math.max(1, (part.value / peak) * room) },
            s("title", {}, `${part.name}: ${shown(part.value)}, ${dateTime(one.at)} to ${dateTime(one.end)}`),
          );
        });
    }),
    [columns[0].at, columns.at(-1).end].map((at, place) => s("text", { x: place ? wide : left, y: high - 6, "text-anchor": place ? "end" : "start" }, when(at))),
  );
}

/** Bars beside their names: `rows` is [{name, value, kind}], values in seconds. */
export function bars(label, rows, wide) {
  const pitch = 40;
  const top = Math.max(...rows.map((one) => one.value)) || 1;
  const room = wide - 90;
  return s(
    "svg.bars",
    { viewBox: `0 0 ${wide} ${rows.length * pitch}`, width: wide, height: rows.length * pitch, role: "img", "aria-label": label },
    rows.map((one, place) => [
      s("text", { x: 0, y: place * pitch + 13 }, one.name),
      s(`rect.part-${one.kind}`, { x: 0, y: place * pitch + 19, width: Math.max(2, (one.value / top) * room), height: 12, rx: 3 }),
      s("text.value", { x: Math.max(2, (one.value / top) * room) + 8, y: place * pitch + 29.5 }, duration(one.value)),
    ]),
  );
}
