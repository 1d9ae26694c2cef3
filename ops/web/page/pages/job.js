// Job: the traffic skeleton over hosts and rails, how sure it is, who probes whom, what RNICs move.
import { html } from "../lib/html.js";
import { Severity } from "../lib/marks.js";
import { useDocument } from "../lib/recorded.js";
import { go, to } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { useStream } from "../lib/stream.js";
import { counted, Name, visible } from "../lib/text.js";
import { utc } from "../lib/time.js";
import { Load, RnicCounters } from "./counters.js";
import { Ranks } from "./ranks.js";

const PATTERNS = 6;
const DEGREES = { dp: "data", pp: "pipeline", tp: "tensor", ep: "expert", cp: "context" };

export const job = { name: "job", title: "Job", render: Job };

/** Show a job with its counters and ranks, which have streams of their own: they come later, or not at all. */
function Job({ document, params, at }) {
  const wanted = { ...params, task: document.task.id };
  return at === null
    ? html`<${Live} shown=${document} params=${params} wanted=${wanted} />`
    : html`<${Recorded} shown=${document} params=${params} wanted=${wanted} at=${at} />`;
}

function Live({ shown, params, wanted }) {
  const { document: counters } = useStream("counters", wanted);
  // What endpoint is chosen does not matter to them.
  const { document: ranks } = useStream("ranks", ofRanks(wanted));
  return html`<${Shown} shown=${shown} params=${params} counters=${counters} ranks=${ranks} />`;
}

function Recorded({ shown, params, wanted, at }) {
  const { document: counters } = useDocument("counters", wanted, String(at));
  const { document: ranks } = useDocument("ranks", ofRanks(wanted), String(at));
  return html`<${Shown} shown=${shown} params=${params} counters=${counters} ranks=${ranks} />`;
}

function ofRanks({ task, host }) {
  return host ? { task, host } : { task };
}

function Shown({ shown, params, counters, ranks }) {
  const { task, skeleton, probing, rails } = shown;
  const change = (more) =>
    go("job", Object.fromEntries(Object.entries({ ...params, ...more }).filter(([, v]) => v)), { replace: true });
  const faults = Object.values(shown.faults);
  const targets = Object.entries(shown.targets);
  return html`
    <section class="incident" aria-labelledby="job">
      <h1 id="job">Job <${Name} text=${task.id} long /></h1>
      <form class="filter" onSubmit=${(event) => event.preventDefault()}>
        <label>Job <select onChange=${(event) => change({ task: event.target.value, endpoint: "", host: "" })}>
          ${Object.entries(shown.tasks).map(([id, running]) => html`<option value=${id} selected=${id === task.id}>${visible(id)}${running ? "" : " (ended)"}</option>`)}</select></label>
        <label>Hosts with <input type="search" value=${params.host ?? ""} onChange=${(event) => change({ host: event.target.value })} /></label>
      </form>
      <dl>
        <dt>Runs</dt><dd>since ${utc(task.submitted_ms)} UTC${task.ended_ms ? `, ended ${utc(task.ended_ms)} UTC` : ""}; ${counted(task.endpoints, "endpoint")} on ${counted(task.hosts, "host")}, ${task.registered.toLocaleString("en")} registered; cluster <${Name} text=${task.cluster} /></dd>
        <dt>Skeleton</dt><dd>${!skeleton.known
          ? "none inferred yet: the basic lists stay"
          : html`version ${skeleton.version}, confidence ${Math.round(skeleton.confidence * 100)} %, ${counted(skeleton.pairs, "pair")} that exchange data, from counters of ${utc(skeleton.window_start_ms)} to ${utc(skeleton.window_end_ms)} UTC (${skeleton.age_min} min ago)`}</dd>
        ${skeleton.reason && html`<dt>Why so sure</dt><dd><${Name} text=${skeleton.reason} long /></dd>`}
        ${skeleton.known && html`<dt>Layout</dt><dd>${Object.entries(skeleton.degrees).map(
          ([name, n], i) => html`${i > 0 && ", "}${DEGREES[name]} ${n}`)}${skeleton.period_ms ? `; a step takes ${skeleton.period_ms} ms` : ""}</dd>`}
        <dt>Probed</dt><dd>${counted(probing.pairs, "pair")}${Object.entries(probing.origins).map(([why, n]) => `, ${n.toLocaleString("en")} ${WHY[why] ?? why}`).join("")};
          lists: ${Object.entries(probing.phases).map(([phase, n]) => `${n} ${phase}`).join(", ") || "none"}</dd>
      </dl>
    </section>
    ${faults.length > 0 && html`<section aria-labelledby="faults"><h2 id="faults">Faults on it</h2>
      <ul>${faults.map((f) => html`<li><${Severity} of=${f.severity} /> <a href=${to("incident", { fault: f.id })}><${Name} text=${f.component} /></a>: <${Name} text=${f.kind} /></li>`)}</ul></section>`}
    <${Ranks} shown=${ranks} />
    <section aria-labelledby="grid">
      <h2 id="grid">Hosts × rails</h2>
      <p class="hint">Each cell: stage of the pipeline and replica group, and what the RNIC sent (↑) and received (↓) in the last seconds, with the last two
        minutes beside it. The pattern on its left goes with the stage. Choose one to see its counters, and who probes it.</p>
      ${counters?.missing && html`<p class="note">No counters: <${Name} text=${counters.missing} long /></p>`}
      ${counters?.hosts_left > 0 && html`<p class="note">Counters of ${counted(counters.hosts_left, "more host")} are not read: find them by name.</p>`}
      <${Scroll} label="Hosts and rails"><table class="grid">
        <thead><tr><th scope="col">host</th>${rails.map((rail) => html`<th scope="col">rail ${rail}</th>`)}</tr></thead>
        <tbody>${Object.entries(shown.grid).map(
          ([host, cells]) => html`<tr key=${host}><th scope="row"><${Name} text=${host} /></th>
            ${rails.map((rail) => html`<${Cell} cell=${cells[rail]} rnic=${counters?.rnics?.[cells[rail]?.endpoint]} chosen=${params.endpoint} choose=${(endpoint) => change({ endpoint })} />`)}</tr>`,
        )}</tbody></table><//>
      ${shown.hosts_left > 0 && html`<p class="note">${counted(shown.hosts_left, "more host")} not shown: find them by name.</p>`}
    </section>
    ${params.endpoint && html`<${RnicCounters} name=${params.endpoint} series=${counters?.series} />`}
    ${params.endpoint && html`<section aria-labelledby="probes"><h2 id="probes">Probes from and to <${Name} text=${params.endpoint} /></h2>
      ${targets.length === 0
        ? html`<p class="none">On no ping list.</p>`
        : html`<${Scroll} label="Probes"><table><thead><tr><th scope="col">pair</th><th scope="col">direction</th><th scope="col">why</th><th scope="col" class="number">5-tuples</th></tr></thead>
          <tbody>${targets.map(([name, one]) => html`<tr key=${name}><th scope="row"><${Name} text=${name} /></th><td>${one.out ? "probes" : "is probed"}</td>
            <td>${WHY[one.origin] ?? one.origin}</td><td class="number">${one.flows}</td></tr>`)}</tbody></table><//>`}</section>`}`;
}

const WHY = { skeleton: "in the skeleton", basic: "in the basic list", explore: "to find out whether the skeleton is wrong" };

function Cell({ cell, rnic, chosen, choose }) {
  if (!cell) return html`<td class="empty">–</td>`;
  const stage = cell.stage === undefined ? "?" : `stage ${cell.stage}`;
  const group = cell.group === undefined ? "" : `, group ${cell.group}`;
  return html`<td class=${`cell pattern${(cell.stage ?? 0) % PATTERNS} ${cell.fault ? "ill" : ""}`}>
    <button type="button" aria-pressed=${chosen === cell.endpoint} title=${visible(cell.endpoint)} onClick=${() => choose(cell.endpoint)}>${stage}${group}</button>
    ${rnic?.load_mbps && html`<${Load} rnic=${rnic} />`}
    ${!cell.registered && html` <span class="mark status unknown">? not registered</span>`}
    ${cell.fault && html` <a class="mark status bad" href=${to("incident", { fault: cell.fault })}><span aria-hidden="true">✕</span> fault</a>`}
  </td>`;
}
