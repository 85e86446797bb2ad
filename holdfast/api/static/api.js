// Calls of the server.

let session = null;

/** Who has logged in; null before. */
export function whoIsThere() {
  return session;
}

export function mayOperate() {
  return session?.role === "operate";
}

/** A call was refused; `status` is 0 where the server cannot be reached. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(method, path, content) {
  const headers = {};
  if (content !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session) headers["x-holdfast-proof"] = session.proof;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: content && JSON.stringify(content) });
  } catch {
    throw new Refused(0, "The server cannot be reached. Is holdfast api running?");
  }
  if (answer.status === 204) return null;
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // what stands between may answer in words of its own
  }
  if (answer.ok) return told;
  if (answer.status === 401 && session) {
    session = null;
    document.dispatchEvent(new Event("holdfast:out"));
  }
  throw new Refused(answer.status, told.message ?? `The server returned HTTP status ${answer.status}.`);
}

export async function findSession() {
  session = await call("GET", "/console/session");
  return session;
}

export async function logIn(token) {
  session = await call("POST", "/console/session", { token });
  return session;
}

export async function logOut() {
  await call("DELETE", "/console/session");
  session = null;
  document.dispatchEvent(new Event("holdfast:out"));
}

export function submitRepair(repair) {
  return call("POST", "/console/repairs", repair);
}

/**
 * Call an asynchronous function now, again and again, and whenever asked to; never twice at a time, for
 * answers may be slow and come in another order.
 */
export function repeated(load, pause) {
  let isBusy = false;
  let isDue = false;
  async function again() {
    isDue = true;
    if (isBusy) return;
    isBusy = true;
    while (isDue) {
      isDue = false;
      await load();
    }
    isBusy = false;
  }
  again();
  const timer = setInterval(() => document.hidden || isBusy || again(), pause);
  return { again, stop: () => clearInterval(timer) };
}

export function read(view, query = {}) {
  const text = new URLSearchParams(query).toString();
  return call("GET", `/console/${view}${text ? `?${text}` : ""}`);
}
