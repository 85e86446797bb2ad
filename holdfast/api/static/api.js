// HTTP calls to the server.

let session = null;

/** The session of the user who logged in; null before login. */
export function whoIsThere() {
  return session;
}

/** Whether the user may request an action. */
export function may(act) {
  return session?.acts.includes(act) ?? false;
}

/** A call failed; `status` is the HTTP status, or 0 if the server is unreachable. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(method, path, content) {
  const headers = {};
  const asked = session;
  if (content !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session) headers["x-holdfast-proof"] = session.proof;
  let response;
  try {
    response = await fetch(path, { method, headers, body: content && JSON.stringify(content) });
  } catch {
    throw new Refused(0, "The server cannot be reached. Is holdfast api running?");
  }
  if (response.status === 204) return null;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // a proxy may return a body that is not JSON
  }
  if (response.ok) return body;
  if (response.status === 401 && session && session === asked) {
    session = null;
    document.dispatchEvent(new Event("holdfast:out"));
  }
  throw new Refused(response.status, body.message ?? `The server returned HTTP status ${response.status}.`);
}

export async function findSession() {
  session = await call("GET", "/console/session");
  return session;
}

export function waysToLogIn() {
  return call("GET", "/console/ways");
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

export function cancelJob(job) {
  return call("POST", "/console/jobs/cancel", { job });
}

/** Perform an operation of the API that changes a cluster. */
export function changeCluster(operation, request) {
  return call("POST", "/console/clusters", { operation, request });
}

export function scaleGroup(cluster, group, count) {
  return call("POST", "/console/clusters/scale", { cluster, group, count });
}

/**
 * Call an asynchronous function now, every `pause` ms, and on request (`again`); never two calls at a time,
 * because slow responses may arrive out of order.
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
