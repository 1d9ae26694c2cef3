// Where the ranks of a job stand in its communicators, who waits for whom, and what hangs.
import { html } from "../lib/html.js";
import { to } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { counted, Name } from "../lib/text.js";
import { utc } from "../lib/time.js";

const WELL = ["running", "sleeping", "disk"];

/** Show the ranks of a job; `shown` is undefined until they are there. */
export function Ranks({ shown }) {
  return html`<section aria-labelledby="ranks"><h2 id="ranks">Ranks × communicators</h2>
    ${!shown || shown.unknown
      ? html`<p class="none">None came yet.</p>`
      : shown.missing !== undefined
        ? html`<p class="note">No ranks: <${Name} text=${shown.missing} long /></p>`
        : html`<${Table} shown=${shown} />`}</section>`;
}

function Table({ shown }) {
  const rows = Object.entries(shown.rows).sort(([, a], [, b]) => a.order - b.order);
  return html`
    ${shown.hang && html`<${Hang} hang=${shown.hang} />`}
    ${shown.mixed && html`<p class="note"><${Name} text=${shown.mixed} long /></p>`}
    <p class="hint">${shown.heard.toLocaleString("en")} of ${shown.world_size?.toLocaleString("en") ?? "?"} ranks heard, ${counted(shown.communicators, "communicator")}.
      Each cell: the group, the number of the last operation that was launched there, and since when it waits for whom. Ranks at the same place share a row.</p>
    ${shown.undecodable > 0 && html`<p class="note">${counted(shown.undecodable, "record")} could not be used.</p>`}
    <${Scroll} label="Ranks and communicators"><table class="grid ranks">
      <thead><tr><th scope="col">ranks</th><th scope="col">hosts</th><th scope="col">process</th>${shown.columns.map(
        (name) => html`<th scope="col"><${Name} text=${name} /></th>`)}</tr></thead>
      <tbody>${rows.map(([key, row]) => html`<tr key=${key} data-rank=${key} class=${row.culprit ? "ill" : ""}>
        <th scope="row"><span class="text">${row.ranks}</span>${row.count > 1 && html` <span class="count">(${row.count.toLocaleString("en")})</span>`}
          ${row.culprit && html` <span class="mark status bad"><span aria-hidden="true">✕</span> culprit</span>`}</th>
        <td>${row.hosts.map((host, i) => html`${i > 0 && ", "}<${Name} text=${host} />`)}${row.hosts_left > 0 && ` and ${row.hosts_left.toLocaleString("en")} more`}</td>
        <td><${Process} row=${row} /></td>
        ${shown.columns.map((name) => html`<${Cell} cell=${row.cells[name]} />`)}</tr>`)}</tbody></table><//>
    ${shown.rows_left > 0 && html`<p class="note">${counted(shown.rows_left, "more place")} with ${counted(shown.ranks_left, "rank")} not shown: find them by host.</p>`}
    ${shown.columns_left > 0 && html`<p class="note">${counted(shown.columns_left, "more kind")} of communicators not shown.</p>`}`;
}

function Hang({ hang }) {
  return html`<div class=${`hang ${hang.open ? "open" : ""}`}>
    <p>${hang.open
      ? html`<span class="mark status bad"><span aria-hidden="true">✕</span> hangs</span> since ${utc(hang.since_ms)} UTC: <${Name} text=${hang.class} /> (<${Name} text=${hang.certainty.toLowerCase()} />)`
      : html`The last hang is over since ${utc(hang.at_ms)} UTC.`}</p>
    <p><${Name} text=${hang.summary} long /></p>
    ${hang.open && html`<dl>
      ${hang.culprits && html`<dt>Where it begins</dt><dd>${hang.culprits}</dd>`}
      ${hang.waiting && html`<dt>Who waits</dt><dd>${hang.waiting}</dd>`}
      ${hang.faults.length > 0 && html`<dt>Fault</dt><dd>${hang.faults.map((id, i) => html`${i > 0 && ", "}<a href=${to("incident", { fault: id })}><${Name} text=${id} /></a>`)}</dd>`}
      ${hang.evidence.length > 0 && html`<dt>Because</dt><dd><ul>${hang.evidence.map((text) => html`<li><${Name} text=${text} long /></li>`)}</ul></dd>`}
      ${hang.next.length > 0 && html`<dt>Next</dt><dd><ul>${hang.next.map((text) => html`<li><${Name} text=${text} long /></li>`)}</ul></dd>`}
    </dl>`}</div>`;
}

function Process({ row }) {
  const well = WELL.includes(row.process);
  const text = row.silent_s === undefined ? row.process : `${row.process} for ${row.silent_s} s`;
  return html`${well ? text : html`<span class="mark status odd"><span aria-hidden="true">!</span> <${Name} text=${text} /></span>`}
    ${row.reason && html` <span class="hint"><${Name} text=${row.reason} long /></span>`}`;
}

function Cell({ cell }) {
  if (!cell) return html`<td class="empty">–</td>`;
  return html`<td class=${`cell ${cell.waits_in ? "waits" : ""}`}><${Name} text=${cell.group} />: ${cell.launched}
    ${cell.waits_in && html`<div><span class="mark status odd"><span aria-hidden="true">!</span> waits${cell.waited_s === undefined ? "" : ` ${cell.waited_s} s`}</span> in <${Name} text=${cell.waits_in} />${cell.waits_at === undefined ? "" : ` ${cell.waits_at}`}
      ${cell.for && html`<span> for ${cell.for}</span>`}${cell.all_launched && ": all launched it"}</div>`}</td>`;
}
