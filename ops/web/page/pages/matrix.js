// Matrix: who loses or is slow towards whom, from pods down to single 5-tuples.
import { NOT_PROBED } from "../lib/cells.js";
import { Heatmap } from "../lib/heatmap.js";
import { html } from "../lib/html.js";
import { go, to } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { Name, visible } from "../lib/text.js";
import { PairWindows } from "./pair.js";

const QUANTITIES = { loss: "loss", p50: "P50 against its own history", p99: "P99 against its own history" };
const FOLDS = { mean: "mean of the 5-tuples", worst: "worst of the 5-tuples" };
const LEVELS = { pod: ["pod", "pods"], leaf: ["leaf", "leaves"], endpoint: ["endpoint", "endpoints"] };
const MAX_SIDE = 2048;

// The chosen pair is no part of the matrix: it has a stream of its own.
export const matrix = { name: "matrix", title: "Matrix", render: Matrix, own: ["src", "dst"] };

function Matrix({ document, params, at }) {
  const { level, rows, cols, legend, sizes } = document;
  const change = (more) => {
    const next = { ...params, ...more };
    for (const key of Object.keys(next)) if (next[key] === undefined) delete next[key];
    go("matrix", next);
  };
  const below = { level: undefined, src: undefined, dst: undefined };
  const openNames = (src, dst) =>
    level === "endpoint" ? { ...params, src, dst } : { ...view(params), rows: `${level}/${src}`, cols: `${level}/${dst}` };
  const open = ({ row, col }) => go("matrix", openNames(rows.names[row], cols.names[col]));
  const say = ({ row, col }, code) =>
    html`<bdi>${visible(rows.names[row])}</bdi> → <bdi>${visible(cols.names[col])}</bdi>: <strong>${QUANTITIES[document.of]}: ${legend[code]?.text}</strong>`;
  // The eye falls on the chosen cell first, else on the worst.
  const chosen =
    params.src === undefined
      ? document.worst["0"]
      : { row: Math.max(0, rows.names.indexOf(params.src)), col: Math.max(0, cols.names.indexOf(params.dst)) };
  const empty = rows.names.length === 0 || cols.names.length === 0;
  return html`
    <section aria-labelledby="matrix">
      <h1 id="matrix">Matrix <span class="count">from ${many(rows.names.length, level)} to ${many(cols.names.length, level)}</span></h1>
      <${Within} params=${params} document=${document} />
      <form class="choices" onSubmit=${(event) => event.preventDefault()}>
        <${Choice} label="Show" value=${document.of} of=${QUANTITIES} change=${(of) => change({ of })} />
        <${Choice} label="of each cell the" value=${document.fold} of=${FOLDS} change=${(fold) => change({ fold })} />
        <${Choice} label="by" value=${level}
          of=${Object.fromEntries(Object.entries(LEVELS).filter(([key]) => sizes[key] <= MAX_SIDE || key === level).map(([key, [, name]]) => [key, `${name} (${sizes[key].toLocaleString("en")})`]))}
          change=${(chosenLevel) => change({ ...below, level: chosenLevel })} />
      </form>
      ${document.note && html`<p class="note" role="note">${document.note}</p>`}
      ${document.dropped > 0 && html`<p class="note" role="note">${document.dropped.toLocaleString("en")} not kept: too many 5-tuples.</p>`}
    </section>
    ${empty
      ? html`<p class="none">No endpoint is registered and no window came yet: agents and worker write them.</p>`
      : html`<section class="matrix" aria-label="Cells">
          <${Heatmap} rows=${rows} cols=${cols} cells=${document.cells} worst=${Math.max(...Object.keys(legend))} say=${say} open=${open} chosen=${chosen && { row: chosen.row, col: chosen.col }} />
          <${Legend} legend=${legend} of=${document.of} />
        </section>`}
    ${params.src !== undefined && html`<${PairWindows} src=${params.src} dst=${params.dst} at=${at} close=${to("matrix", { ...params, ...{ src: undefined, dst: undefined } })} />`}
    <${Lines} lines=${Object.values(document.lines)} level=${level} />
    <${Worst} worst=${Object.values(document.worst)} of=${document.of} address=${(cell) => to("matrix", openNames(cell.src, cell.dst))} />`;
}

function many(number, level) {
  return `${number.toLocaleString("en")} ${LEVELS[level][number === 1 ? 0 : 1]}`;
}

/** Return the parameters that say how to look, not at what. */
function view({ of, fold }) {
  return { ...(of && { of }), ...(fold && { fold }) };
}

function Within({ params, document }) {
  const { rows, cols } = document;
  if (!rows.within && !cols.within) return null;
  const name = (within) => (within ? html`<${Name} text=${within.slice(within.indexOf("/") + 1)} />` : "everything");
  const above = { ...view(params), ...(rows.above && { rows: rows.above }), ...(cols.above && { cols: cols.above }) };
  return html`<nav class="within" aria-label="Place in the network">
    <a href=${to("matrix", view(params))}>whole cluster</a>
    ${(rows.above || cols.above) && html` › <a href=${to("matrix", above)}>${name(rows.above)} → ${name(cols.above)}</a>`}
    ${" › "}<span>${name(rows.within)} → ${name(cols.within)}</span></nav>`;
}

function Choice({ label, value, of, change }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => change(event.target.value)}>${Object.entries(of).map(
    ([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`,
  )}</select></label>`;
}

function Legend({ legend, of }) {
  const worst = Math.max(...Object.keys(legend));
  return html`<div class="legend"><h2>${QUANTITIES[of]}</h2><ul>${Object.entries(legend).map(
    ([code, { text, count }]) => html`<li key=${code}>
      <span class=${`swatch code-${code}${Number(code) === worst ? " worst" : ""}`} aria-hidden="true"></span>
      <span>${text}</span> <span class="count">${Number(code) === NOT_PROBED || count > 0 ? count.toLocaleString("en") : "–"}</span></li>`,
  )}</ul></div>`;
}

function Lines({ lines, level }) {
  if (lines.length === 0) return null;
  return html`<section aria-labelledby="lines"><h2 id="lines">Bad over their whole length</h2>
    <ul class="lines">${lines.map(
      (line) => html`<li key=${line.name + line.source}>${line.source ? "From" : "Towards"} <${Name} text=${line.name} />: bad
        ${line.source ? " towards " : " from "}${line.bad} of ${many(line.probed, level)}</li>`,
    )}</ul></section>`;
}

function Worst({ worst, of, address }) {
  return html`<section aria-labelledby="worst"><h2 id="worst">Worst cells</h2>
    ${worst.length === 0
      ? html`<p class="none">None: all that is measured is well.</p>`
      : html`<${Scroll} label="Worst cells"><table>
          <thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col">${QUANTITIES[of]}</th>
            <th scope="col" class="number">5-tuples</th><th scope="col" class="number">lost of sent</th><th scope="col">look</th></tr></thead>
          <tbody>${worst.map(
            (cell) => html`<tr key=${`${cell.row} ${cell.col}`}>
              <td><${Name} text=${cell.src} /></td><td><${Name} text=${cell.dst} /></td><td>${cell.value}</td>
              <td class="number">${cell.flows.toLocaleString("en")}</td>
              <td class="number">${cell.lost.toLocaleString("en")} of ${cell.sent.toLocaleString("en")}</td>
              <td><a href=${address(cell)}>open<span class="unseen"> ${visible(cell.src)} to ${visible(cell.dst)}</span></a></td></tr>`,
          )}</tbody></table><//>`}
  </section>`;
}
