// Consumer groups and how far they are behind.

import { live } from "../api.js";
import { h, show } from "../dom.js";
import { age, number, rate } from "../format.js";
import { table } from "../table.js";

export const title = "Groups";

export function render(place) {
  const rows = table("Consumer groups", [
    { title: "Group", cell: (group) => h("a", { href: `#/group/${encodeURIComponent(group.name)}` }, group.name) },
    { title: "State", cell: (group) => h("span", { class: "state" }, group.state) },
    { title: "Topics", cell: (group) => group.topics.join(", ") },
    { title: "Lag", number: true, cell: (group) => number(group.lag) },
    { title: "Rate", number: true, cell: (group) => rate(group.rate) },
    { title: "Caught up in", number: true, cell: (group) => (group.lag === 0 ? "now" : group.rate > 0 ? age(group.lag / group.rate) : "–") },
  ]);
  const note = h("p", { class: "quiet" });
  show(place, h("h1", {}, "Consumer groups"), note, h("div", { class: "sheet" }, rows.element));
  const draw = () => {
    rows.set(live.overview?.groups ?? []);
    note.textContent = live.overview?.groups.length ? "" : "No group has committed an offset yet.";
  };
  live.addEventListener("overview", draw);
  draw();
  return () => live.removeEventListener("overview", draw);
}
