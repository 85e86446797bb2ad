// Login page.

import { h } from "./dom.js";
import { logIn, waysToLogIn } from "./api.js";

export function showLogin(door, entered) {
  const token = h("input", {
    id: "token",
    type: "password",
    autocomplete: "current-password",
    required: true,
    "aria-describedby": "token-about",
    spellcheck: "false",
  });
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const provider = h("p.about", { hidden: true });
  const go = h("button.main", { type: "submit" }, "Log in");
  const form = h(
    "form.card",
    {},
    h("img", { src: new URL("mark.svg", import.meta.url).href, alt: "", width: 44, height: 44 }),
    h("h1", {}, "Holdfast"),
    h("p.about", {}, "Keeps training jobs running through hardware failure."),
    h("label", { for: "token" }, "Token"),
    token,
    h("p.about", { id: "token-about" }, "Use the console token of your key; ", h("code", {}, "holdfast api --new-key"), " creates one."),
    wrong,
    go,
    provider,
  );
  waysToLogIn().then((ways) => {
    if (!ways.provider) return;
    provider.replaceChildren(h("a", { href: ways.provider }, "Log in with your identity provider"));
    provider.hidden = false;
  }, () => {}); // the form remains
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    wrong.hidden = true;
    try {
      await logIn(token.value.trim());
      door.replaceChildren();
      entered();
    } catch (error) {
      wrong.textContent = `Not logged in: ${error.message}`;
      wrong.hidden = false;
      token.select();
    }
    go.disabled = false;
  });
  door.replaceChildren(h("main.door", {}, form));
  token.focus();
}
