// The path of an event, with the rates of now on its arrows.

import { get, live } from "../api.js";
import { h, show } from "../dom.js";
import { number, rate } from "../format.js";
import { line } from "../plot.js";

export const title = "Overview";

export function render(place) {
  const path = h("div", { class: "sheet" });
  const chart = h("div", { class: "sheet" });
  const alerts = h("div", {});
  show(place, h("h1", {}, "The path of an event"), path, alerts, h("h2", {}, "Records a second into the log"), chart);
  const plot = line(chart, "records/s");
  const draw = () => {
    if (!live.overview) return;
    show(path, drawing(live.overview));
    show(alerts, list(live.overview.alerts));
    plot.set(live.history);
  };
  live.addEventListener("overview", draw);
  draw();
  if (live.history.length < 2) get("api/overview").then((first) => live.take(first)).catch(() => {});
  return () => (live.removeEventListener("overview", draw), plot.close());
}

function list(found) {
  if (!found.length) return h("p", { class: "quiet" }, "Nothing needs attention.");
  const rows = found.slice(0, 20).map((alert) => h("li", {}, h("span", { class: `state ${alert.level}` }, alert.level), " ", h("a", { href: `#/${alert.where}` }, alert.what)));
  return [h("h2", {}, `Alerts (${found.length})`), h("ul", { class: "alerts" }, rows)];
}

function drawing(overview) {
  const user = overview.topics.filter((topic) => !topic.name.startsWith("__"));
  const total = user.reduce((sum, topic) => sum + topic.rate, 0);
  const of = (kind) => overview.parts.filter((part) => part.kind === kind);
  const boxes = [
    box(20, 30, "captures", "Databases", `${of("capture").length} captured`),
    box(20, 150, "topics", "Applications, devices", "any Kafka client"),
    box(380, 90, "topics", "The log", `${number(user.length)} topics · ${rate(total)}`, "log"),
    box(740, 30, "pipelines", "Pipelines", `${of("pipeline").length} on Spark`),
    box(740, 150, "views", "Views", `${of("view").length} that follow`),
  ];
  const flows = [
    flow("M240 65 H310 V110 H380", sum(of("capture"), "rate"), 250, 55),
    flow("M240 185 H310 V140 H380", total, 250, 205),
    flow("M600 110 H670 V55 H740", sum(of("pipeline"), "input_rate"), 610, 45),
    flow("M740 78 H690 V120 H600", sum(of("pipeline"), "output_rate"), 610, 96),
    flow("M600 145 H670 V185 H740", sum(of("view"), "rate"), 610, 205),
  ];
  return h("svg", { class: "path", viewBox: "0 0 980 240", role: "img", "aria-label": `The log takes ${rate(total)} in ${user.length} topics` }, flows, boxes);
}

const sum = (parts, name) => (parts.length ? parts.reduce((all, part) => all + (Number(part.details[name]) || 0), 0) : null);

function box(x, y, page, name, note, kind) {
  const go = () => (location.hash = `#/${page}`);
  const key = (event) => event.key === "Enter" && go();
  return h("g", { onclick: go, onkeydown: key, role: "link", tabindex: 0, style: "cursor:pointer" }, h("title", {}, `${name}: ${note}`), h("rect", { x, y, width: 220, height: 70, rx: 9, class: kind }), h("text", { x: x + 16, y: y + 30, "font-weight": 600 }, name), h("text", { x: x + 16, y: y + 52, class: "small" }, note));
}

function flow(d, value, x, y) {
  return h("g", {}, h("path", { d, class: value > 0 ? "flow moving" : "flow" }), value === null ? null : h("text", { x, y, class: "small" }, rate(value)));
}
