// Agents: who probes, versions, clocks, drops; those with something wrong first.
import { html } from "../lib/html.js";
import { Status } from "../lib/marks.js";
import { go } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { counted, Name, visible } from "../lib/text.js";

export const agents = { name: "agents", title: "Agents", render: Agents };

function Agents({ document: shown, params }) {
  const order = { bad: 0, odd: 1, unknown: 2, good: 3 };
  const rows = Object.values(shown.rows).sort(
    (a, b) => (order[a.status] ?? 9) - (order[b.status] ?? 9) || (a.id < b.id ? -1 : 1),
  );
  const change = (more) => {
    const next = Object.fromEntries(Object.entries({ ...params, ...more }).filter(([, v]) => v));
    go("agents", next, { replace: true });
  };
  const clusters = Object.entries(shown.clusters);
  return html`
    <section aria-labelledby="agents">
      <h1 id="agents">Agents <span class="count">${shown.total.toLocaleString("en")}</span></h1>
      <${Scroll} label="Clusters"><table>
        <thead><tr><th scope="col">cluster</th><th scope="col" class="number">agents</th><th scope="col">status</th>
          <th scope="col">5-tuples probed</th><th scope="col" class="number">rounds dropped, last minute</th><th scope="col">versions</th></tr></thead>
        <tbody>${clusters.map(
          ([name, one]) => html`<tr key=${name}><th scope="row"><${Name} text=${name} /></th>
            <td class="number">${one.agents.toLocaleString("en")}</td>
            <td>${Object.entries(one.status).map(([s, n], i) => html`${i > 0 && ", "}${n} <${Status} of=${s} />`)}</td>
            <td>${one.probed.toLocaleString("en")} of ${one.expected.toLocaleString("en")}</td>
            <td class="number">${one.dropped_lately.toLocaleString("en")}</td>
            <td>${Object.entries(one.versions).map(([v, n], i) => html`${i > 0 && ", "}<${Name} text=${v} /> × ${n}`)}</td></tr>`,
        )}</tbody></table><//>
      <form class="filter" role="search" onSubmit=${(event) => event.preventDefault()}>
        <label>Find agent, host or task <input type="search" value=${params.find ?? ""} onChange=${(event) => change({ find: event.target.value })} /></label>
        <label><input type="checkbox" checked=${params.wrong === "1"} onChange=${(event) => change({ wrong: event.target.checked ? "1" : "" })} /> only with something wrong</label>
        ${clusters.length > 1 && html`<label>Cluster <select value=${params.cluster ?? ""} onChange=${(event) => change({ cluster: event.target.value })}>
          <option value="">all</option>${clusters.map(([name]) => html`<option value=${name}>${visible(name)}</option>`)}</select></label>`}
      </form>
      ${rows.length === 0
        ? html`<p class="none">${shown.total === 0 ? "No agent has ever registered: start one by skeletonhunter agent --config …" : "No agent fits."}</p>`
        : html`<${Scroll} label="Agents"><table>
          <thead><tr><th scope="col">agent</th><th scope="col">status</th><th scope="col">why</th><th scope="col">host</th>
            <th scope="col">probing</th><th scope="col" class="number">5-tuples</th><th scope="col" class="number">clock (ms)</th>
            <th scope="col" class="number">prober's delay (ms)</th><th scope="col" class="number">rounds dropped</th>
            <th scope="col" class="number">late replies</th><th scope="col">list</th><th scope="col">version</th><th scope="col">tasks</th></tr></thead>
          <tbody>${rows.map((row) => html`<${Agent} key=${row.id} row=${row} />`)}</tbody></table><//>`}
      ${shown.found > rows.length && html`<p class="note">${counted(shown.found - rows.length, "more agent")} not shown: find them by name.</p>`}
    </section>`;
}

function Agent({ row }) {
  const some = (value) => (value === undefined ? "–" : value.toLocaleString("en"));
  const list =
    row.list_wanted === undefined ? "none" : row.list_version === row.list_wanted ? `v${row.list_wanted}` : `v${row.list_version ?? "–"}, not yet v${row.list_wanted}`;
  const clock = row.clock_ms === undefined ? (row.clock_reason ?? "–") : `${row.clock_ms > 0 ? "+" : ""}${row.clock_ms} ± ${row.clock_error_ms ?? "?"}`;
  return html`<tr data-agent=${row.id}>
    <th scope="row"><${Name} text=${row.id} /></th><td><${Status} of=${row.status} /></td><td class="wide"><${Name} text=${row.why ?? ""} long /></td>
    <td><${Name} text=${row.host} /></td><td>${row.probing ? visible(row.probing).toLowerCase().replaceAll("_", " ") : "–"}</td>
    <td class="number">${row.expected === undefined ? "–" : `${some(row.probed)} of ${some(row.expected)}`}</td>
    <td class="number"><${Name} text=${clock} /></td><td class="number">${some(row.prober_delay_ms)}</td>
    <td class="number">${some(row.dropped)}${row.dropped_lately ? ` (+${some(row.dropped_lately)})` : ""}</td>
    <td class="number">${some(row.late)}</td><td class="nowrap">${list}</td>
    <td>${row.version ? html`<${Name} text=${row.version} />` : "–"}</td>
    <td>${row.tasks.map((task, i) => html`${i > 0 && ", "}<${Name} text=${task} />`)}</td></tr>`;
}
