// Confirmation dialogs.

import { h, notice, announce } from "./dom.js";

/**
 * Show a confirmation dialog and call act() when the user confirms.
 *
 * fields: elements shown between the text and the buttons. The dialog shows the message of an error that
 * act() throws.
 */
export function confirmDialog({ title, text, yes, no = "Cancel", fields = [], isGrave = false, act }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const go = h(`button.${isGrave ? "grave" : "main"}`, { type: "submit" }, yes);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "confirm-title" }, title),
    h("p", { id: "confirm-text" }, text),
    fields,
    wrong,
    h("div.buttons", {}, h("button.quiet", { type: "button", onclick: () => dialog.close() }, no), go),
  );
  const dialog = h("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    wrong.hidden = true;
    try {
      const result = await act();
      dialog.close();
      if (result?.message) {
        notice(result.message);
        announce(result.message);
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
