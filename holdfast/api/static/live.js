// All rows as the server has them, kept up to date by its events.

import { setServerTime } from "./format.js";

const SILENCE_MS = 16000; // three beats of the server, and a little
const RETRY_MS = 1000;

const tables = { fleets: new Map(), nodes: new Map(), jobs: new Map(), incidents: new Map(), notes: new Map() };
const readers = new Set();

let source = null;
let heard = 0;
let state = "connecting"; // or "live", "lost"
let trouble = "";
let asOf = null; // when the rows were last as they are shown, by the server's clock
let isFilled = false;
let isWanted = false;

/** `table(name)` is a Map from key to row. */
export function table(name) {
  return tables[name];
}

export function note(name) {
  return tables.notes.get(name) ?? {};
}

export function connection() {
  return { state, trouble, isFilled, asOf };
}

/** Be told of changes: `reader({nodes: Set of keys, ...})`, or null for everything. */
export function listen(reader) {
  readers.add(reader);
  return () => readers.delete(reader);
}

function tell(changed) {
  for (const reader of [...readers]) reader(changed);
}

/** What stands for rows that have not come yet. */
export function awaited(what) {
  return trouble ? "Nothing could be read yet." : `Reading the ${what}…`;
}

/**
 * Open the stream; it finds its way back by itself.
 *
 * A page that nobody sees has none: a browser keeps six connections to a server and no more, and with
 * six pages open the seventh would never load.
 */
export function connect() {
  disconnect();
  isWanted = true;
  if (document.hidden) return;
  heard = Date.now();
  source = new EventSource("/console/live");
  source.addEventListener("snapshot", (event) => take(event, true));
  source.addEventListener("change", (event) => take(event, false));
  source.addEventListener("beat", (event) => hear(event));
  source.addEventListener("trouble", (event) => {
    const content = hear(event);
    trouble = content.message;
    asOf = content.as_of;
    tell({});
  });
  source.addEventListener("open", () => {
    heard = Date.now();
    trouble = ""; // if it lasts, it is told again
    become("live");
    tell({});
  });
  source.addEventListener("error", () => {
    become("lost");
    // A browser comes again by itself unless it was answered with an error.
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

/** Forget everything: somebody else may log in. */
export function forget() {
  disconnect();
  for (const rows of Object.values(tables)) rows.clear();
  isFilled = false;
  trouble = "";
  asOf = null;
}

function hear(event) {
  const content = JSON.parse(event.data);
  heard = Date.now();
  setServerTime(content.now);
  if (!trouble) asOf = content.now;
  become("live");
  return content;
}

function become(next) {
  if (state === next) return;
  state = next;
  tell({});
}

function take(event, isWhole) {
  const content = hear(event);
  const changed = {};
  for (const [name, rows] of Object.entries(content.tables)) {
    if (isWhole) tables[name].clear();
    for (const [key, row] of Object.entries(rows)) {
      if (row === null) tables[name].delete(key);
      else tables[name].set(key, row);
    }
    changed[name] = new Set(Object.keys(rows));
  }
  isFilled = true;
  tell(isWhole ? null : changed);
}

document.addEventListener("visibilitychange", () => {
  if (!isWanted) return;
  become("connecting");
  connect();
});

// A connection may be dead without a word, for instance after the machine has slept.
setInterval(() => {
  if (source && source.readyState !== EventSource.CLOSED && Date.now() - heard > SILENCE_MS) {
    become("lost");
    connect();
  }
}, 2000);
