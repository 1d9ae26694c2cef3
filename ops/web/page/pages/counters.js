// What RNICs send and receive, by the counters that their hosts' agents read.
import { html } from "../lib/html.js";
import { LineChart } from "../lib/line_chart.js";
import { Scroll } from "../lib/scroll.js";
import { Name } from "../lib/text.js";
import { utc } from "../lib/time.js";

const WIDTH = 72;
const HEIGHT = 16;

function rate(mbps) {
  return mbps >= 1000 ? `${(mbps / 1000).toFixed(1)} Gbit/s` : `${mbps.toFixed(mbps < 10 ? 1 : 0)} Mbit/s`;
}

/** Show an RNIC's latest rates, and both directions together over the last two minutes. */
export function Load({ rnic }) {
  const { load_mbps: load, tx_mbps: tx, rx_mbps: rx } = rnic;
  const most = Math.max(...load, 1e-3);
  const step = WIDTH / load.length;
  const bars = load.map((value, i) => {
    const high = value === null ? 0 : Math.max(1, (HEIGHT * value) / most);
    return html`<rect x=${i * step} y=${HEIGHT - high} width=${step - 0.5} height=${high} />`;
  });
  return html`<div class="load"><svg width=${WIDTH} height=${HEIGHT} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">${bars}</svg>
    <span><span aria-hidden="true">↑</span><span class="unseen">sends </span>${rate(tx)} <span aria-hidden="true">↓</span><span class="unseen">receives </span>${rate(rx)}</span></div>`;
}

/** Draw what an RNIC sent and received, tick by tick; `series` is undefined until counters are there. */
export function RnicCounters({ name, series }) {
  return html`<section class="pair" aria-labelledby="counters">
    <h2 id="counters">Counters of <${Name} text=${name} /></h2>
    ${series ? html`<${Series} series=${series} />` : html`<p class="none">None came yet.</p>`}</section>`;
}

function Series({ series }) {
  const { from_ms: from, step_ms: step, tx_mbps: tx, rx_mbps: rx } = series;
  const at = tx.map((_, i) => from + i * step);
  return html`
    <${LineChart} label="Sent and received, Mbit/s" at=${at} points=${false} lines=${[["sent", [], tx], ["received", [4, 3], rx]]} />
    <details><summary>The same as a table, second by second</summary><${Scroll} label="Rates"><table>
      <thead><tr><th scope="col">from (UTC)</th><th scope="col" class="number">sent, Mbit/s</th><th scope="col" class="number">received, Mbit/s</th></tr></thead>
      <tbody>${seconds(series).map((row) => html`<tr key=${row.at}><td>${utc(row.at).slice(11)}</td>
        <td class="number">${row.tx === null ? "–" : row.tx.toFixed(1)}</td><td class="number">${row.rx === null ? "–" : row.rx.toFixed(1)}</td></tr>`)}</tbody>
    </table><//></details>`;
}

/** Return the mean of each second; null where something of it is not known. */
function seconds({ from_ms: from, step_ms: step, tx_mbps: tx, rx_mbps: rx }) {
  const own = Math.max(1, Math.round(1000 / step));
  const mean = (values) => (values.includes(null) ? null : values.reduce((sum, v) => sum + v, 0) / values.length);
  const rows = [];
  for (let i = 0; i < tx.length; i += own) {
    rows.push({ at: from + i * step, tx: mean(tx.slice(i, i + own)), rx: mean(rx.slice(i, i + own)) });
  }
  return rows;
}
