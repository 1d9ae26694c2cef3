// Marks of severity and status: a shape and a word beside the colour, never the colour alone.
import { html } from "./html.js";
import { visible } from "./text.js";

const SEVERITIES = { critical: "▲", error: "◆", warning: "●", info: "○" };
const STATUSES = { good: "✓", odd: "!", bad: "✕", unknown: "?" };
const ORDER = Object.keys(SEVERITIES);

/** Mark a severity. */
export function Severity({ of }) {
  const known = of in SEVERITIES;
  return html`<span class=${`mark severity ${known ? of : "unknown"}`}>
    <span aria-hidden="true">${known ? SEVERITIES[of] : "?"}</span> ${visible(of)}</span>`;
}

/** Mark a status. */
export function Status({ of }) {
  const known = of in STATUSES;
  return html`<span class=${`mark status ${known ? of : "unknown"}`}>
    <span aria-hidden="true">${known ? STATUSES[of] : "?"}</span> ${visible(of)}</span>`;
}

/** Compare severities, the worst first. */
export function bySeverity(a, b) {
  const place = (s) => (ORDER.includes(s) ? ORDER.indexOf(s) : ORDER.length);
  return place(a) - place(b);
}
