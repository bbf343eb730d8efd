// Elements without markup in strings: nothing that came from a record can become code.

const SVG = new Set(["svg", "g", "rect", "text", "path", "line", "title"]);

export function h(name, properties = {}, ...children) {
  const element = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// Replaces what a page shows without touching what did not change, so that focus and scrolling stay.
export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
}
