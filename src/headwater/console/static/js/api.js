// The JSON API, and what is live: one stream of overviews that all pages share.

export async function get(path) {
  return answer(await fetch(path));
}

export async function act(action, body) {
  return post(`api/actions/${action}`, { ...body, confirm: true });
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Headwater": "1" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answer(response) {
  const body = await response.json().catch(() => ({ error: `the console answered ${response.status}` }));
  if (!response.ok) throw new Error(body.error ?? `the console answered ${response.status}`);
  return body;
}

const HISTORY_POINTS = 600;

class Live extends EventTarget {
  overview = null;
  history = []; // [seconds, records a second over all topics]

  start() {
    const source = new EventSource("api/events");
    source.addEventListener("overview", (event) => this.take(JSON.parse(event.data)));
    source.addEventListener("error", () => this.dispatchEvent(new CustomEvent("lost")));
  }

  take(overview) {
    this.overview = overview;
    if (overview.history) this.history = overview.history;
    const last = this.history.at(-1);
    const at = overview.time_ms / 1000;
    if (!last || at > last[0]) this.history.push([at, overview.topics.reduce((sum, topic) => sum + topic.rate, 0)]);
    if (this.history.length > HISTORY_POINTS) this.history.shift();
    this.dispatchEvent(new CustomEvent("overview"));
  }
}

export const live = new Live();
