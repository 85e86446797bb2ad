// Creates elements in one call. Text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `h("a.quiet", {href: "#/jobs"}, "Jobs")`. */
export function h(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  return filled(document.createElement(tag), classes, attributes, children);
}

/** An SVG element, with the same arguments as `h`. */
export function s(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  return filled(document.createElementNS(SVG, tag), classes, attributes, children);
}

function filled(element, classes, attributes, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false && one !== ""));
  return element;
}

const ICONS = {
  fleet: "M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z",
  jobs: "M2 4h7M5 8h9M3 12h6",
  incidents: "M8 2.200 14.500 13.500h-13zM8 6.500v3M8 11.600v.1",
  goodput: "M2 13.500h12M4 11V8M8 11V3M12 11V6",
  reboot: "M12.800 6A5.200 5.200 0 1 0 13.200 9M13 2.500V6H9.500",
  replace: "M2.500 6h10M9.500 3l3 3-3 3M13.500 10.500h-10",
  check: "M2.500 8.500 6 12l7.500-8",
  hold: "M5.500 3v10M10.500 3v10",
  release: "M4 7V5a4 4 0 0 1 7.700-1.500M3 7h10v6.500H3z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.500 9.500A6 6 0 1 1 6.500 2.500a5 5 0 0 0 7 7",
  leave: "M6 2.500H3v11h3M7 8h7M11 5l3 3-3 3",
  table: "M2 3.500h12M2 8h12M2 12.500h12",
  back: "M9.500 3 4.500 8l5 5",
  log: "M3 2.500h10v11H3zM5.500 5.500h5M5.500 8h5M5.500 10.500h3",
  copy: "M6 5.500h7v8H6zM3 10.500v-8h7",
  clusters: "M2.500 3h11v3.500h-11zM2.500 9.500h11V13h-11zM5 4.700h.1M5 11.200h.1",
  audit: "M4 2h8v12H4zM6.500 5.500h3M6.500 8h3M6.500 10.500h2",
  trends: "M2 13.500h12M3 10.500l3.500-4 3 2.500L13 3.500",
  sorted: "M4.500 6.500 8 2.500l3.500 4M4.500 9.500 8 13.500l3.500-4",
  stop: "M3.500 3.500h9v9h-9z",
  download: "M8 2v8M4.500 7 8 10.500 11.500 7M3 13.500h10",
  play: "M5 3l8 5-8 5z",
};

/** An icon in the color of the text. */
export function icon(name, size = 16) {
  return s(
    "svg.icon",
    { viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    s("path", { d: ICONS[name] }),
  );
}

/** Key that identifies an element after it was created again. */
function known(element) {
  return element?.getAttribute("href") ?? element?.dataset.focus ?? element?.getAttribute("aria-label");
}

/** Replace the children of an element; keep keyboard focus and scroll positions. */
export function refill(element, ...children) {
  const held = element.contains(document.activeElement) ? known(document.activeElement) : null;
  const scrolled = new Map([...element.querySelectorAll(".scrolled")].map((one) => [known(one), one.scrollLeft]));
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const one of element.querySelectorAll(".scrolled")) one.scrollLeft = scrolled.get(known(one)) ?? 0;
  if (!held) return;
  const again = [...element.querySelectorAll("[href],[data-focus],[aria-label]")].find((one) => known(one) === held);
  again?.focus({ preventScroll: true });
}

/** A name that may wrap before each capital, such as `AgentSilent`. */
export function broken(name) {
  return name.split(/(?<=[a-z])(?=[A-Z])/).flatMap((word, place) => (place ? [h("wbr"), word] : [word]));
}

/** Announce text to a screen reader without showing it. */
export function announce(text) {
  document.getElementById("announced").textContent = text;
}

/** Show a notice for some seconds. */
export function notice(text, kind = "good") {
  const box = h(`div.notice.${kind}`, {}, text);
  document.getElementById("notices").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 12000 : 6000);
}
