// One group: lag over time and by partition; reset it.

import { get, live } from "../api.js";
import { confirmed } from "../confirm.js";
import { h, show } from "../dom.js";
import { number, rate } from "../format.js";
import { line } from "../plot.js";
import { table } from "../table.js";

export const title = "Group";

export function render(place, name) {
  const summary = h("p", { class: "quiet", role: "status" });
  const chart = h("div", { class: "sheet" });
  const topics = h("select", { "aria-label": "Topic" });
  const to = h("select", { "aria-label": "To" }, h("option", { value: "earliest" }, "the first record"), h("option", { value: "latest" }, "the end"));
  const reset = h("button", { type: "button" }, "Reset…");
  const rows = table("Offsets", [
    { title: "Topic", cell: (row) => h("a", { href: `#/topic/${encodeURIComponent(row[0])}` }, row[0]) },
    { title: "Partition", number: true, cell: (row) => row[1] },
    { title: "Next offset", number: true, cell: (row) => number(row[2]) },
    { title: "Lag", number: true, cell: (row) => number(row[3]) },
  ]);
  reset.addEventListener("click", async () => {
    const explanation = `${name} will read ${topics.value} again from ${to.selectedOptions[0].text}. It must have no members now.`;
    if (await confirmed(`Reset ${name}?`, explanation, "reset-group", { group: name, topic: topics.value, to: to.value })) draw();
  });
  show(place, h("h1", {}, name), summary, chart, h("form", { class: "filters" }, h("label", {}, "Topic", topics), h("label", {}, "Read again from", to), reset), h("div", { class: "sheet" }, rows.element));
  const plot = line(chart, "records behind", 150);
  const draw = async () => {
    try {
      const group = await get(`api/groups/${encodeURIComponent(name)}`);
      summary.textContent = `${group.state} · ${number(group.lag)} behind · ${rate(group.rate)}`;
      rows.set(group.offsets);
      plot.set(group.history);
      if (topics.options.length !== group.topics.length) show(topics, group.topics.map((topic) => h("option", {}, topic)));
    } catch (error) {
      summary.textContent = error.message;
    }
  };
  live.addEventListener("overview", draw);
  draw();
  return () => (live.removeEventListener("overview", draw), plot.close());
}
