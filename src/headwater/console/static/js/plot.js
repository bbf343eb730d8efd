// A line over time (uPlot), in the page's colours, resized with its place.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function line(place, label, height = 170) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const options = {
    width: Math.max(place.clientWidth, 300),
    height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [axis, { ...axis, size: 60 }],
    series: [{}, { label, stroke: colour("--accent"), width: 2, fill: `${colour("--accent")}22` }],
  };
  const plot = new uPlot(options, [[], []], place);
  const watch = new ResizeObserver(() => plot.setSize({ width: Math.max(place.clientWidth, 300), height }));
  watch.observe(place);
  return {
    set: (points) => plot.setData([points.map((point) => point[0]), points.map((point) => point[1])]),
    close: () => (watch.disconnect(), plot.destroy()),
  };
}
