// Numbers, sizes and times as people read them.

export const number = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${value >= 10 || value === 0 ? number(value) : value.toFixed(1)}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${value < 10 && at > 0 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export const clock = (ms) => (ms > 0 ? new Date(ms).toLocaleTimeString("en-GB") : "–");

export const moment = (ms) => (ms > 0 ? new Date(ms).toISOString().replace("T", " ").replace("Z", "") : "–");

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

export function decoded(part) {
  if (part === null || part === undefined) return "null";
  const text = part.form === "json" ? JSON.stringify(part.data) : part.data;
  return part.cut ? `${text}…` : text;
}
