// The last day of something as a strip: when it was bad. What it shows stands beside it in words.
import { html } from "./html.js";
import { counted } from "./text.js";
import { duration, utc } from "./time.js";

const DAY_MS = 86_400_000;
const WIDTH = 720;
// Less could not be seen.
const LEAST = 3;

/** Show when something was bad within the day that ends at `time`. */
export function Strip({ spans, time }) {
  const own = spans.map(({ from_ms: from, to_ms: to }) => [Math.max(from, time - DAY_MS), to ?? time]);
  const x = (ms) => ((ms - time + DAY_MS) / DAY_MS) * WIDTH;
  return html`<svg class="strip" viewBox=${`0 0 ${WIDTH} 12`} preserveAspectRatio="none" aria-hidden="true">
    <rect class="day" x="0" y="5" width=${WIDTH} height="2" />
    ${own.map(([from, to]) => {
      const wide = Math.max(LEAST, x(to) - x(from));
      return html`<rect class="bad" x=${Math.min(x(from), WIDTH - wide)} y="0" width=${wide} height="12" />`;
    })}</svg>`;
}

/** Say the same in words. */
export function said(spans, time) {
  const last = spans[spans.length - 1];
  const sum = spans.reduce((ms, { from_ms: from, to_ms: to }) => ms + (to ?? time) - Math.max(from, time - DAY_MS), 0);
  const now = last.to_ms === undefined ? `open since ${utc(last.from_ms).slice(0, 16)}` : `over since ${utc(last.to_ms).slice(0, 16)}`;
  return `${now}; ${counted(spans.length, "time")}, ${duration(sum)} in all`;
}
