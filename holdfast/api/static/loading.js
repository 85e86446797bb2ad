// Loads the page again if one of its files cannot be read: a network that changes breaks all connections of a browser.
{
  const PAUSES_MS = [500, 1000, 2000, 4000];
  const TRIES = "holdfast-load-tries";
  let hasFailed = false;

  function isNeeded(element) {
    return element instanceof HTMLScriptElement || (element instanceof HTMLLinkElement && element.rel === "stylesheet");
  }

  function explain(what) {
    const text = document.createElement("p");
    text.className = "plain";
    text.setAttribute("role", "alert");
    text.textContent = `The console could not be loaded completely. ${what}`;
    document.body.prepend(text);
  }

  function loadAgain({ target }) {
    if (hasFailed || !isNeeded(target)) return;
    hasFailed = true;
    const tries = Number(sessionStorage.getItem(TRIES));
    const isLast = tries >= PAUSES_MS.length;
    if (isLast) sessionStorage.removeItem(TRIES); // a reload by the user begins anew
    else {
      sessionStorage.setItem(TRIES, tries + 1);
      setTimeout(() => location.reload(), PAUSES_MS[tries]);
    }
    const what = isLast ? `Check the network, and reload the page: ${target.src ?? target.href}` : "Trying again.";
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => explain(what));
    else explain(what);
  }

  window.addEventListener("error", loadAgain, true); // such events do not bubble
  window.addEventListener("load", () => hasFailed || sessionStorage.removeItem(TRIES));
}
