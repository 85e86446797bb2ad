// Runs before the first paint, so that no page flashes in the wrong colors.
const dark = matchMedia("(prefers-color-scheme: dark)");

function setTheme() {
  const chosen = localStorage.getItem("holdfast-theme");
  document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
  document.dispatchEvent(new Event("holdfast:theme"));
}

setTheme();
dark.addEventListener("change", setTheme);
