// The frame of all pages: user, navigation, and state of the connection.

import { findSession, logOut, may, whoIsThere } from "./api.js";
import { h, icon, notice, refill, announce } from "./dom.js";
import { moment, now, tick } from "./format.js";
import { connect, connectLater, connection, disconnect, forget, listen, table } from "./live.js";
import { LOOKS } from "./appearance.js";
import { showLogin } from "./login.js";
import * as audit from "./audit.js";
import * as checkpoints from "./checkpoints.js";
import * as clusters from "./clusters.js";
import * as fleet from "./fleet.js";
import * as goodput from "./goodput.js";
import * as incident from "./incident.js";
import * as incidents from "./incidents.js";
import * as jobs from "./jobs.js";
import * as log from "./log.js";
import * as newCluster from "./new_cluster.js";
import * as stacks from "./stacks.js";
import * as trends from "./trends.js";
import * as node from "./node.js";

const PAGES = {
  fleet,
  node,
  jobs,
  job: jobs.one,
  log,
  checkpoints,
  incidents,
  incident,
  goodput,
  trends,
  stacks,
  clusters,
  cluster: clusters.one,
  "new-cluster": newCluster,
  audit,
};
/** Shown for an address that is no page, such as one that was cut in a message. */
const UNKNOWN = {
  title: "Page not found",
  open(container) {
    container.append(
      h("header.head", {}, h("h1", { tabindex: "-1" }, "Page not found")),
      h("div.nothing", {}, h("p", { role: "alert" }, `There is no page ${location.hash}.`), h("a", { href: "#/fleet" }, "Go to the fleet")),
    );
    return null;
  },
};
const TABS = [
  ["fleet", "Fleet", ["node"]],
  ["jobs", "Jobs", ["job", "log", "checkpoints", "stacks"]],
  ["incidents", "Incidents", ["incident"]],
  ["goodput", "Goodput", []],
  ["trends", "Trends", []],
  ["clusters", "Clusters", ["cluster", "new-cluster"], "list-clusters"],
  ["audit", "Audit", [], "read-audit"], // only for who may read it
];

const BLIP_MS = 8000; // one heartbeat of the server plus the time to reconnect
const RETRY_MS = 2000; // until the first response of the server

const app = document.getElementById("app");
const main = document.getElementById("main");
const door = document.getElementById("door");
const nav = document.querySelector(".nav");
const account = document.querySelector(".account");
const status = h("span.status", { role: "status" });
const old = h("div.away", { role: "alert", hidden: true });
const theme = h("button.quiet.round", { type: "button", onclick: switchTheme });
let closePage = null;

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/");
  return { name: name || "fleet", parts: parts.map(readPart), query: new URLSearchParams(query) };
}

function readPart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

/** Store the filters of a page in its URL without a new history entry. */
function setQuery(values) {
  const given = Object.entries(values).filter(([, value]) => value);
  const text = new URLSearchParams(given).toString();
  const path = location.hash.split("?")[0] || "#/fleet";
  history.replaceState(null, "", text ? `${path}?${text}` : path);
}

function openPage(isFirst) {
  if (!whoIsThere()) return;
  const { name, parts, query } = route();
  const page = Object.hasOwn(PAGES, name) ? PAGES[name] : UNKNOWN;
  closePage?.();
  main.replaceChildren(old);
  closePage = page.open(main, { parts, query, setQuery });
  document.title = `${page === UNKNOWN ? page.title : (parts.at(-1) ?? page.title)} · Holdfast`;
  for (const tab of nav.querySelectorAll("a")) {
    const [own, , others] = TABS.find(([one]) => tab.getAttribute("href") === `#/${one}`);
    if (own === name || others.includes(name)) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
  if (!isFirst) main.querySelector("h1")?.focus({ preventScroll: true });
}

function paintStatus() {
  const { state, trouble, isFilled, asOf } = connection();
  const lost = state === "lost" ? "Reconnecting…" : "Connecting…";
  const [kind, text] = trouble ? ["bad", "Cannot read"] : state === "live" && isFilled ? ["good", "Live"] : ["wait", lost];
  const before = status.textContent;
  if (before !== text) {
    status.className = `status ${kind}`;
    status.textContent = text;
  }
  main.classList.toggle("stale", kind !== "good" && isFilled);
  const isSilent = state === "lost" && !(asOf && now() - Date.parse(asOf) < BLIP_MS);
  paintOld(trouble || (isSilent ? "The server cannot be reached." : ""), isFilled && asOf);
}

/** Show the age of the data while no updates arrive. */
function paintOld(why, since) {
  old.hidden = !why;
  if (!why) return;
  const text = `${since ? `Data as of ${moment(since)}. ` : ""}Retrying until it responds.`;
  if (old.textContent.endsWith(why + text)) return; // a screen reader would repeat it
  old.replaceChildren(h("div", {}, h("strong", {}, "The nodes cannot be read"), h("p", {}, why), h("p", {}, text)));
}

function paintFrame() {
  nav.replaceChildren(...TABS.filter(([, , , act]) => !act || may(act)).map(([name, word]) => h("a", { href: `#/${name}` }, icon(name, 20), h("span", {}, word))));
  const { person, role } = whoIsThere();
  refill(
    account,
    status,
    h("span.person", {}, h("strong", {}, person), h("span", {}, role === "admin" ? "can administer" : `can ${role}`)),
    h("span.signs", {}, theme, h("button.quiet.round", { type: "button", "aria-label": "Log out", title: "Log out", onclick: leave }, icon("leave"))),
  );
}

function paintTheme() {
  const next = isDark() ? "light" : "dark";
  theme.title = `Switch to the ${next} theme`;
  theme.setAttribute("aria-label", theme.title);
  theme.replaceChildren(icon(isDark() ? "sun" : "moon"));
}

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function switchTheme() {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("holdfast-theme", next);
  document.dispatchEvent(new Event("holdfast:theme"));
}

async function leave() {
  try {
    await logOut();
  } catch (error) {
    notice(error.message, "bad");
  }
}

function enter() {
  door.replaceChildren();
  app.hidden = false;
  paintFrame();
  paintStatus();
  openPage(true);
}

/** Show the page that the user may see; try again while the server cannot be reached. */
async function begin() {
  try {
    await findSession();
  } catch (error) {
    if (error.status === 401) out();
    else {
      showTrouble(error.message);
      setTimeout(begin, RETRY_MS);
    }
    return;
  }
  enter();
}

function showTrouble(why) {
  if (door.textContent.includes(why)) return; // a screen reader would repeat it
  const again = h("button.main", { type: "button", onclick: () => location.reload() }, "Try again");
  const alert = h("p", { role: "alert" }, `${why} Retrying until it responds.`);
  door.replaceChildren(h("main.door", {}, h("div.card", {}, h("h1", {}, "Holdfast"), alert, again)));
}

function out() {
  for (const question of document.querySelectorAll("dialog")) question.close();
  forget();
  closePage?.();
  closePage = null;
  main.replaceChildren();
  app.hidden = true;
  document.title = "Log in · Holdfast";
  showLogin(door, () => {
    connect();
    enter();
  });
}

/** Reconnect after the stream was rejected: the session may have ended, or the server be down. */
async function reconnect() {
  disconnect();
  try {
    await findSession();
  } catch (error) {
    if (error.status === 401) return; // the login page opens the stream again
  }
  connectLater();
}

/** Announce nodes whose state changed to a screen reader; several nodes as a count. */
function announceFaults(changed) {
  if (!changed?.nodes) return;
  const rows = [...changed.nodes].map((key) => [key, table("nodes").get(key)]).filter(([, row]) => row);
  const fresh = rows.filter(([key, row]) => !["healthy", "planned"].includes(row.look) && announced.get(key) !== row.look).map(([, row]) => row);
  for (const [key, row] of rows) announced.set(key, row.look);
  if (fresh.length === 1) announce(`${fresh[0].name}: ${LOOKS[fresh[0].look].word}${fresh[0].reason ? `, ${fresh[0].reason}` : ""}`);
  else if (fresh.length > 1) announce(`${fresh.length} nodes are not healthy`);
}
const announced = new Map();

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is the page
  main.focus();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, select, textarea, dialog");
  const search = main.querySelector("input.search");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping || !search) return;
  event.preventDefault();
  search.focus();
});
document.addEventListener("holdfast:theme", paintTheme);
document.addEventListener("holdfast:out", out);
document.addEventListener("holdfast:refused", reconnect);
window.addEventListener("hashchange", () => openPage(false));
listen(paintStatus);
listen(announceFaults);
setInterval(() => {
  tick();
  if (whoIsThere()) paintStatus();
}, 1000);

paintTheme();

// Opened before the session is known, so that the first rows arrive while it is read.
connect();
await begin();
