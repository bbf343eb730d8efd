// Asks before anything is changed, says what will happen, and what came of it.

import { act } from "./api.js";
import { h } from "./dom.js";

export function confirmed(question, explanation, action, body) {
  return new Promise((resolve) => {
    const outcome = h("p", { role: "status", "aria-live": "polite" });
    const yes = h("button", { class: "main", type: "button" }, "Do it");
    const no = h("button", { type: "button" }, "Cancel");
    const dialog = h("dialog", { "aria-label": question }, h("h2", {}, question), h("p", {}, explanation), outcome, h("div", { class: "buttons" }, no, yes));
    const end = (done) => (dialog.close(), dialog.remove(), resolve(done));
    no.addEventListener("click", () => end(false));
    dialog.addEventListener("cancel", () => end(false));
    yes.addEventListener("click", async () => {
      yes.disabled = true;
      try {
        await act(action, body);
        end(true);
      } catch (error) {
        outcome.textContent = error.message;
        no.textContent = "Close";
      }
    });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
