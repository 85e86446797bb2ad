// Copy of the server's tables, updated by its event stream.

import { setServerTime } from "./format.js";

const SILENCE_MS = 16000; // three heartbeats of the server plus a margin
const RETRY_MS = 1000;

const tables = { fleets: new Map(), nodes: new Map(), jobs: new Map(), incidents: new Map(), attention: new Map(), alerts: new Map(), notes: new Map() };
const readers = new Set();

let source = null;
let lastEventAt = 0;
let state = "connecting"; // or "live", "lost"
let trouble = "";
let asOf = null; // time of the shown rows, by the server's clock
let isFilled = false;
let isWanted = false;

/** `table(name)` is a Map from key to row. */
export function table(name) {
  return tables[name];
}

const indexes = new Map(); // table -> Map from the value of a column to row, until the table changes

/** The row of a table with this value in a column that identifies it; thousands of rows are not searched. */
export function rowWith(name, column, value) {
  if (!indexes.has(name)) indexes.set(name, new Map([...tables[name].values()].map((row) => [row[column], row])));
  return indexes.get(name).get(value);
}

export function note(name) {
  return tables.notes.get(name) ?? {};
}

export function connection() {
  return { state, trouble, isFilled, asOf };
}

/** Call `reader({nodes: Set of keys, ...})` on each change; with null after a new snapshot. */
export function listen(reader) {
  readers.add(reader);
  return () => readers.delete(reader);
}

function notify(changed) {
  for (const reader of [...readers]) reader(changed);
}

/** Placeholder text for rows that have not arrived. */
export function awaited(what) {
  return trouble ? "No data has been read yet." : `Reading the ${what}…`;
}

/**
 * Open the event stream; it reconnects by itself.
 *
 * A hidden page has no stream: a browser opens six connections to a server at most, so with six open pages
 * the seventh would never load.
 */
export function connect() {
  disconnect();
  isWanted = true;
  if (document.hidden) return;
  lastEventAt = Date.now();
  source = new EventSource("/console/live");
  source.addEventListener("snapshot", (event) => take(event, true));
  source.addEventListener("change", (event) => take(event, false));
  source.addEventListener("heartbeat", (event) => receive(event));
  source.addEventListener("trouble", (event) => {
    const content = receive(event);
    trouble = content.message;
    asOf = content.as_of;
    notify({});
  });
  source.addEventListener("open", () => {
    lastEventAt = Date.now();
    trouble = ""; // the server reports it again if it persists
    become("live");
    notify({});
  });
  source.addEventListener("error", () => {
    become("lost");
    // A browser reconnects by itself unless the response was an error.
    if (source?.readyState === EventSource.CLOSED) {
      document.dispatchEvent(new Event("holdfast:refused"));
    }
  });
}

export function disconnect() {
  isWanted = false;
  source?.close();
  source = null;
}

export function connectLater() {
  setTimeout(connect, RETRY_MS);
}

/** Delete all rows: the next login may be another user's. */
export function forget() {
  disconnect();
  for (const rows of Object.values(tables)) rows.clear();
  indexes.clear();
  isFilled = false;
  trouble = "";
  asOf = null;
}

function receive(event) {
  const content = JSON.parse(event.data);
  lastEventAt = Date.now();
  setServerTime(content.now);
  if (!trouble) asOf = content.now;
  become("live");
  return content;
}

function become(next) {
  if (state === next) return;
  state = next;
  notify({});
}

function take(event, isWhole) {
  const content = receive(event);
  const changed = {};
  for (const [name, rows] of Object.entries(content.tables)) {
    if (!tables[name]) continue; // a newer server has more tables than this open page
    if (isWhole) tables[name].clear();
    for (const [key, row] of Object.entries(rows)) {
      if (row === null) tables[name].delete(key);
      else tables[name].set(key, row);
    }
    changed[name] = new Set(Object.keys(rows));
    indexes.delete(name);
  }
  isFilled = true;
  notify(isWhole ? null : changed);
}

document.addEventListener("visibilitychange", () => {
  if (!isWanted) return;
  become("connecting");
  connect();
});

// A connection may be dead without an error, for example after the machine was suspended.
setInterval(() => {
  if (source && source.readyState !== EventSource.CLOSED && Date.now() - lastEventAt > SILENCE_MS) {
    become("lost");
    connect();
  }
}, 2000);
