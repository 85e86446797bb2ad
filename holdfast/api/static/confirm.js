// Questions before something is asked for.

import { h, notice, say } from "./dom.js";

/**
 * Ask, and do it if the answer is yes.
 *
 * fields: elements shown between the text and the buttons; act() may refuse with an error, which is
 * told in the dialog.
 */
export function confirmDialog({ title, text, yes, fields = [], isGrave = false, act }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const go = h(`button.${isGrave ? "grave" : "main"}`, { type: "submit" }, yes);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "asked" }, title),
    h("p", { id: "asked-text" }, text),
    fields,
    wrong,
    h("div.buttons", {}, h("button.quiet", { type: "button", onclick: () => dialog.close() }, "Cancel"), go),
  );
  const dialog = h("dialog", { "aria-labelledby": "asked", "aria-describedby": "asked-text" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    wrong.hidden = true;
    try {
      const told = await act();
      dialog.close();
      if (told?.message) {
        notice(told.message);
        say(told.message);
      }
    } catch (error) {
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
    go.disabled = false;
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
