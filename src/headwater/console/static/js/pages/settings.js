// The effective settings and where each comes from.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { table } from "../table.js";

export const title = "Settings";

export function render(place) {
  const rows = table("Settings", [
    { title: "Setting", code: true, cell: (setting) => setting.name },
    { title: "Value", code: true, cell: (setting) => setting.value || "–" },
    { title: "From", cell: (setting) => setting.source },
    { title: "What for", cell: (setting) => setting.purpose },
  ]);
  show(place, h("h1", {}, "Settings"), h("div", { class: "sheet" }, rows.element));
  get("api/config").then((settings) => rows.set(settings)).catch((error) => place.append(error.message));
}
