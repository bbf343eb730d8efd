// Routes: #/page/argument. A page is { title, render(place, argument) → close function }.

import { live } from "./api.js";
import { h, show } from "./dom.js";
import * as overview from "./pages/overview.js";
import * as topics from "./pages/topics.js";
import * as topic from "./pages/topic.js";
import * as groups from "./pages/groups.js";
import * as group from "./pages/group.js";
import * as parts from "./pages/parts.js";
import * as view from "./pages/view.js";
import * as windows from "./pages/windows.js";
import * as dead from "./pages/dead.js";
import * as settings from "./pages/settings.js";

const PAGES = { overview, topics, topic, groups, group, captures: parts.of("capture"), pipelines: parts.of("pipeline"), views: parts.of("view"), view, windows, dead, settings };
const NAVIGATION = ["overview", "topics", "groups", "captures", "pipelines", "views", "windows", "dead", "settings"];
const place = document.getElementById("page");
let close = () => {};

function route() {
  const [name, ...rest] = location.hash.replace(/^#\//, "").split("/");
  const page = PAGES[name] ?? overview;
  const argument = decodeURIComponent(rest.join("/"));
  close();
  show(place);
  document.title = `${page.title} – Headwater`;
  navigation(name);
  close = page.render(place, argument) ?? (() => {});
}

function navigation(current) {
  const links = NAVIGATION.map((name) => {
    const here = name === current || name === `${current}s`;
    return h("li", {}, h("a", { href: `#/${name}`, "aria-current": here ? "page" : undefined }, PAGES[name].title));
  });
  show(document.getElementById("nav"), links);
}

function status() {
  const link = document.getElementById("link");
  const notice = document.getElementById("notice");
  link.className = live.overview.error ? "lost" : "live";
  link.textContent = `v${live.overview.version} · ${new Date(live.overview.time_ms).toLocaleTimeString("en-GB")}`;
  notice.hidden = !live.overview.error;
  notice.textContent = live.overview.error ?? "";
}

function theme(chosen) {
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem("theme", chosen);
}

document.getElementById("theme").addEventListener("click", () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  route();
});
theme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
live.addEventListener("overview", status);
live.addEventListener("lost", () => {
  document.getElementById("link").className = "lost";
  document.getElementById("link").textContent = "the console does not answer; trying again…";
});
addEventListener("hashchange", route);
live.start();
route();
