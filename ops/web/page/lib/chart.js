// A chart of a number over time, with moments marked. Who cannot see it reads the table beside it.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "./html.js";
import { utc } from "./time.js";

const HEIGHT = 180;
const DARK = matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(place, { series, label, marks }) {
  const seconds = series.bad.map((_, i) => (series.from_ms + i * series.step_ms) / 1000);
  const long = series.step_ms * series.bad.length > 86_400_000;
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const stepped = uPlot.paths.stepped({ align: -1 });
  return new uPlot(
    {
      width: Math.max(240, place.clientWidth),
      height: HEIGHT,
      tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), "UTC"),
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((s) => (long ? utc(s * 1000).slice(5, 16) : utc(s * 1000).slice(11))), space: 90 },
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
      ],
      series: [{}, { label, stroke: colour("--bad"), fill: `${colour("--bad")}33`, width: 2, paths: stepped, points: { show: false } }],
      hooks: {
        draw: [
          (plot) => {
            const { ctx, bbox } = plot;
            ctx.save();
            ctx.strokeStyle = colour("--link");
            ctx.lineWidth = 2;
            ctx.setLineDash([6, 4]);
            for (const ms of marks) {
              const x = plot.valToPos(ms / 1000, "x", true);
              if (x < bbox.left || x > bbox.left + bbox.width) continue;
              ctx.beginPath();
              ctx.moveTo(x, bbox.top);
              ctx.lineTo(x, bbox.top + bbox.height);
              ctx.stroke();
            }
            ctx.restore();
          },
        ],
      },
    },
    [seconds, series.bad],
    place,
  );
}

/** Draw a number over time; `marks` are moments in milliseconds since the epoch. */
export function Chart({ series, label, marks }) {
  const place = useRef(null);
  const content = JSON.stringify([series, marks]);
  useEffect(() => {
    // When the page has gone its size is still told of, and the reference is empty.
    const held = place.current;
    let plot = draw(held, { series, label, marks });
    const anew = () => {
      plot.destroy();
      plot = draw(held, { series, label, marks });
    };
    const sized = new ResizeObserver(() =>
      plot.setSize({ width: Math.max(240, held.clientWidth), height: HEIGHT }),
    );
    sized.observe(held);
    DARK.addEventListener("change", anew);
    return () => {
      sized.disconnect();
      DARK.removeEventListener("change", anew);
      plot.destroy();
    };
  }, [content]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${place}></div>`;
}
