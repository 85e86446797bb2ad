// Loads the page again while one of its files cannot be read: a network that changes breaks all connections of a browser.
{
  const FIRST_PAUSE_MS = 500;
  const LONGEST_PAUSE_MS = 8000;
  const TRIES = "holdfast-load-tries"; // app.js removes it
  let isDue = false;

  function isNeeded(element) {
    return element instanceof HTMLScriptElement || (element instanceof HTMLLinkElement && element.rel === "stylesheet");
  }

  function explain() {
    const text = document.createElement("p");
    text.className = "plain";
    text.setAttribute("role", "alert");
    text.textContent = "The console could not be loaded. Trying again.";
    document.getElementById("door").replaceChildren(text);
  }

  function loadAgain({ target }) {
    if (isDue || !isNeeded(target)) return;
    isDue = true;
    const tries = Number(sessionStorage.getItem(TRIES));
    sessionStorage.setItem(TRIES, tries + 1);
    setTimeout(() => location.reload(), Math.min(FIRST_PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS));
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", explain);
    else explain();
  }

  window.addEventListener("error", loadAgain, true); // such events do not bubble
}
