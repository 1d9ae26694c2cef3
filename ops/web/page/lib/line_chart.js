// Lines over time, told apart by dashes too. Who cannot see them reads the table beside them.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { html } from "./html.js";
import { utc } from "./time.js";

const MS_PER_S = 1000;

/** Draw lines: `at` are times in ms since the epoch, of each line its name, dashes and values. */
export function LineChart({ label, at, lines, height = 220, points = true }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTurn((old) => old + 1);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  const data = [at.map((ms) => ms / MS_PER_S), ...lines.map(([, , values]) => values)];
  useEffect(() => {
    const element = place.current;
    const style = getComputedStyle(element);
    const ink = style.getPropertyValue("--dim");
    const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { stroke: ink, width: 1 } };
    const own = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        tzDate: (s) => uPlot.tzDate(new Date(s * MS_PER_S), "UTC"),
        legend: { live: false },
        cursor: { drag: { x: false, y: false } },
        axes: [{ ...axis, values: (_plot, ticks) => ticks.map((s) => utc(s * MS_PER_S).slice(11)), space: 80 }, { ...axis, size: 60 }],
        scales: {
          // A single point would get a day around it.
          x: { range: ({ data: [xs] }, min, max) => (xs.length === 1 ? [xs[0] - 30, xs[0] + 30] : [min, max]) },
          y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
        },
        series: [
          {},
          ...lines.map(([name, dash], i) => ({
            label: name, dash, width: 2, stroke: style.getPropertyValue(`--series-${i}`), points: { show: points, size: 5 }, spanGaps: false,
          })),
        ],
      },
      data,
      element,
    );
    plot.current = own;
    const observer = new ResizeObserver(() => own.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      own.destroy();
      plot.current = null;
    };
  }, [turn]);
  useEffect(() => plot.current?.setData(data));
  return html`<figure><figcaption>${label}</figcaption><div ref=${place} role="img" aria-label=${`${label}; the numbers are in the table below`}></div></figure>`;
}
