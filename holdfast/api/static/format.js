// Formats times, durations and numbers.

import { h } from "./dom.js";

let ahead = 0; // milliseconds by which this machine's clock is ahead of the server's

/** Set the server's time. */
export function setServerTime(iso) {
  ahead = Date.now() - Date.parse(iso);
}

/** The server's current time, in milliseconds. */
export function now() {
  return Date.now() - ahead;
}

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

/** A duration in seconds, to two units: `45ms`, `12.3s`, `1h30m`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return "0s";
  if (seconds > 0 && seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))}ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1).replace(/\.0$/, "")}s`;
  const whole = Math.round(seconds);
  const place = UNITS.findIndex(([, size]) => whole >= size);
  const [unit, size] = UNITS[place];
  const [small, smallSize] = UNITS[place + 1] ?? ["", 1];
  const rest = small ? Math.floor((whole % size) / smallSize) : 0;
  return `${Math.floor(whole / size)}${unit}${rest ? `${rest}${small}` : ""}`;
}

/** An age in whole seconds, for text that is updated every second. */
function age(iso) {
  const seconds = Math.max(0, (now() - Date.parse(iso)) / 1000);
  return duration(seconds < 60 ? Math.floor(seconds) : seconds);
}

/** Time since a moment, updated every second. */
export function since(iso, after = "") {
  if (!iso) return "–";
  const title = zoned(iso);
  return h("time", { datetime: iso, title, "data-since": iso, "data-after": after }, age(iso) + after);
}

/** Update all ages; called every second. */
export function tick() {
  for (const one of document.querySelectorAll("time[data-since]")) {
    const text = age(one.dataset.since) + one.dataset.after;
    if (one.textContent !== text) one.textContent = text;
  }
}

/** Seconds between two moments; null if one is missing. */
export function between(from, to) {
  return from && to ? (Date.parse(to) - Date.parse(from)) / 1000 : null;
}

/** Date and time in the time zone of the browser; with the year if it is not the current one. */
export function dateTime(iso, more = {}) {
  const at = new Date(iso);
  return at.toLocaleString(undefined, {
    ...(at.getFullYear() === new Date(now()).getFullYear() ? {} : { year: "numeric" }),
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
    ...more,
  });
}

/** Date and time with the name of the time zone, to compare with logs of other machines. */
export function zoned(iso) {
  return dateTime(iso, { timeZoneName: "short" });
}

/** The time if it is today, else date and time. */
export function moment(iso) {
  const at = new Date(iso);
  const isToday = at.toDateString() === new Date(now()).toDateString();
  return isToday ? at.toLocaleTimeString(undefined, { hourCycle: "h23" }) : dateTime(iso);
}

export function day(iso) {
  return new Date(iso).toLocaleDateString(undefined, { month: "short", day: "numeric" });
}

export function number(value, digits = 0) {
  return value.toLocaleString(undefined, { maximumFractionDigits: digits });
}

export function percent(share, digits = 1) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(digits)} %`;
}

export function count(amount, one, many = `${one}s`) {
  return `${number(amount)} ${amount === 1 ? one : many}`;
}

/** A number of bytes in the largest unit that leaves at least 1, as the commands print it. */
export function bytes(value) {
  const place = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${(value / 1024 ** place).toFixed(place ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][place]}`;
}

const MEASURES = [
  [/_tflops$/, "TFLOPS"],
  [/_gb_per_s$/, "GB/s"],
  [/_mb_per_s$/, "MB/s"],
  [/_gbps$/, "Gbit/s"],
  [/_us$/, "µs"],
  [/_ms$/, "ms"],
  [/_celsius$/, "°C"],
  [/_s$/, "s"],
];

/** The name of a measurement and its unit: `nccl_gb_per_s` -> `["nccl", "GB/s"]`. */
export function measure(name) {
  const found = MEASURES.find(([pattern]) => pattern.test(name));
  if (!found) return [name.replaceAll("_", " "), ""];
  return [name.replace(found[0], "").replaceAll("_", " "), found[1]];
}
