// Dead letters: why, from where, and again.

import { live } from "../api.js";
import { confirmed } from "../confirm.js";
import { h, show } from "../dom.js";
import { number } from "../format.js";
import { browser } from "../records.js";

export const title = "Dead letters";

export function render(place, name) {
  const list = h("ul", {});
  const chosen = h("div", {});
  show(place, h("h1", {}, "Dead letters"), list, chosen);
  let records = null;

  function offer(record, detail) {
    const where = record.headers["headwater.topic"];
    const button = h("button", { class: "main", type: "button" }, `Send again to ${where}…`);
    button.addEventListener("click", () =>
      confirmed("Send it again?", `The record goes to ${where} as it first came. Is what it was refused for mended? (${record.headers["headwater.reason"]})`, "replay-dead-letter", { topic: record.topic, partition: record.partition, offset: record.offset }),
    );
    detail.prepend(button);
  }

  const draw = () => {
    const topics = (live.overview?.topics ?? []).filter((topic) => topic.dead_letters);
    show(list, topics.length ? topics.map((topic) => h("li", {}, h("a", { href: `#/dead/${encodeURIComponent(topic.name)}` }, topic.name), ` ${number(topic.records)}`)) : h("li", { class: "quiet" }, "None: every record could be processed."));
  };
  if (name) {
    records = browser(name, { onselect: offer });
    show(chosen, h("h2", {}, name), records.element);
  }
  live.addEventListener("overview", draw);
  draw();
  return () => (live.removeEventListener("overview", draw), records?.close());
}
