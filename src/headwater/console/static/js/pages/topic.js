// One topic: its rate, its partitions, its records.

import { get, live } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, number, rate } from "../format.js";
import { line } from "../plot.js";
import { browser } from "../records.js";
import { table } from "../table.js";

export const title = "Topic";

export function render(place, name) {
  const summary = h("p", { class: "quiet" });
  const chart = h("div", { class: "sheet" });
  const partitions = table("Partitions", [
    { title: "Partition", cell: (row) => row[0] },
    { title: "First offset", number: true, cell: (row) => number(row[1]) },
    { title: "Next offset", number: true, cell: (row) => number(row[2]) },
    { title: "Records", number: true, cell: (row) => number(row[2] - row[1]) },
  ]);
  const records = browser(name);
  show(place, h("h1", {}, name), summary, chart, h("h2", {}, "Records"), records.element, h("h2", {}, "Partitions"), h("div", { class: "sheet" }, partitions.element));
  const plot = line(chart, "records/s", 130);
  const draw = async () => {
    try {
      const topic = await get(`api/topics/${encodeURIComponent(name)}`);
      summary.textContent = `${number(topic.partitions)} partitions · ${number(topic.records)} records · ${rate(topic.rate)} · ${bytes(topic.bytes)} on disk`;
      partitions.set(topic.offsets);
      plot.set(topic.history);
    } catch (error) {
      summary.textContent = error.message;
    }
  };
  live.addEventListener("overview", draw);
  draw();
  return () => (live.removeEventListener("overview", draw), plot.close(), records.close());
}
