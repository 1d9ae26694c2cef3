// The windows of one pair's 5-tuples: round trips with the delays of prober and responder, and loss.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { LineChart } from "../lib/line_chart.js";
import { useDocument } from "../lib/recorded.js";
import { Scroll } from "../lib/scroll.js";
import { useStream } from "../lib/stream.js";
import { Name } from "../lib/text.js";
import { clock } from "../lib/time.js";

const NS_PER_US = 1000;
const LINES = [
  ["p50_ns", "P50 of the RTT", []],
  ["p99_ns", "P99 of the RTT", [6, 3]],
  ["prober_delay_ns", "prober's delay", [2, 3]],
  ["responder_delay_ns", "responder's delay", [9, 3, 2, 3]],
];

/** Show a pair; `close` is the address without it, `at` the time of a recording, null: live. */
export function PairWindows({ src, dst, at, close }) {
  return at === null
    ? html`<${Live} key=${`${src}>${dst}`} src=${src} dst=${dst} close=${close} />`
    : html`<${Recorded} key=${`${src}>${dst}`} src=${src} dst=${dst} at=${at} close=${close} />`;
}

function Live({ src, dst, close }) {
  const { document: shown } = useStream("pair", { src, dst });
  return html`<${Pair} src=${src} dst=${dst} shown=${shown} close=${close} />`;
}

function Recorded({ src, dst, at, close }) {
  const { document: shown, problem } = useDocument("pair", { src, dst }, String(at));
  return html`<${Pair} src=${src} dst=${dst} shown=${problem ? { unknown: problem } : shown} close=${close} />`;
}

function Pair({ src, dst, shown, close }) {
  const place = useRef(null);
  const there = shown !== null;
  useEffect(() => place.current.scrollIntoView({ block: "nearest" }), [there]);
  return html`<section class="pair" aria-labelledby="pair" ref=${place}>
    <h2 id="pair"><${Name} text=${src} /> → <${Name} text=${dst} /> <a class="close" href=${close}>close</a></h2>
    ${shown === null
      ? html`<p class="loading">Loading…</p>`
      : shown.unknown
        ? html`<p class="none"><${Name} text=${`${shown.unknown.what}: ${shown.unknown.todo}`} long /></p>`
        : html`<${Flows} shown=${shown} />`}
  </section>`;
}

function Flows({ shown }) {
  const numbers = Object.keys(shown.flows);
  const lost = (flow) => shown.flows[flow].lost.reduce((sum, n) => sum + n, 0);
  // The first to look at is the one that loses most.
  const [chosen, setChosen] = useState(() => numbers.reduce((a, b) => (lost(b) > lost(a) ? b : a)));
  const flow = shown.flows[chosen] ?? shown.flows[numbers[0]];
  const { hosts } = shown;
  return html`
    <p class="facts">
      ${hosts.src && html`<span>probed by <${Name} text=${hosts.src} /></span>`}
      ${hosts.dst && html`<span>answered by <${Name} text=${hosts.dst} /></span>`}
      <label>5-tuple <select value=${chosen} onChange=${(event) => setChosen(event.target.value)}>${numbers.map(
        (n) => html`<option key=${n} value=${n} selected=${n === chosen}>${n}: ${lost(n).toLocaleString("en")} lost</option>`,
      )}</select></label>
      ${flow.usual_p50_ns !== undefined && html`<span>usual: P50 ${us(flow.usual_p50_ns)} µs, P99 ${us(flow.usual_p99_ns)} µs</span>`}
    </p>
    <${LineChart} label="Round trip and delays, µs" at=${flow.at_ms} lines=${LINES.map(([key, label, dash]) => [label, dash, flow[key].map((ns) => (ns === null ? null : ns / NS_PER_US))])} />
    <${LineChart} label="Lost probes, %" at=${flow.at_ms} height=${130} lines=${[["lost", [], flow.sent.map((n, i) => (n === 0 ? null : (100 * flow.lost[i]) / n))]]} />
    <details><summary>The same as a table</summary><${Windows} flow=${flow} /></details>`;
}

function us(ns) {
  return ns === null || ns === undefined ? "–" : (ns / NS_PER_US).toFixed(1);
}

function Windows({ flow }) {
  return html`<${Scroll} label="Windows"><table>
    <thead><tr><th scope="col">window's end (UTC)</th><th scope="col" class="number">sent</th><th scope="col" class="number">lost</th>
      ${LINES.map(([, label]) => html`<th scope="col" class="number">${label}, µs</th>`)}</tr></thead>
    <tbody>${flow.at_ms.map((ms, i) => html`<tr key=${ms}><td>${clock(ms)}</td><td class="number">${flow.sent[i]}</td><td class="number">${flow.lost[i]}</td>
      ${LINES.map(([key]) => html`<td class="number">${us(flow[key][i])}</td>`)}</tr>`)}</tbody>
  </table><//>`;
}
