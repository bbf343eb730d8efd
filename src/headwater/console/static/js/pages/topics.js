// All topics; a choice leads to one.

import { live } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, number, rate } from "../format.js";
import { table } from "../table.js";

export const title = "Topics";

export function render(place) {
  const filter = h("input", { type: "search", placeholder: "part of a name", "aria-label": "Filter topics" });
  const rows = table("Topics", [
    { title: "Topic", cell: (topic) => h("a", { href: `#/topic/${encodeURIComponent(topic.name)}` }, topic.name) },
    { title: "Partitions", number: true, cell: (topic) => number(topic.partitions) },
    { title: "Records", number: true, cell: (topic) => number(topic.records) },
    { title: "Rate", number: true, cell: (topic) => rate(topic.rate) },
    { title: "On disk", number: true, cell: (topic) => bytes(topic.bytes) },
  ]);
  const count = h("p", { class: "quiet" });
  show(place, h("h1", {}, "Topics"), h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, h("label", {}, "Filter", filter)), count, h("div", { class: "sheet" }, rows.element));
  const draw = () => {
    const all = live.overview?.topics ?? [];
    const found = all.filter((topic) => topic.name.includes(filter.value));
    count.textContent = all.length ? `${number(found.length)} of ${number(all.length)}` : "No topics yet: produce something, or capture a database.";
    rows.set(found);
  };
  filter.addEventListener("input", draw);
  live.addEventListener("overview", draw);
  draw();
  return () => live.removeEventListener("overview", draw);
}
