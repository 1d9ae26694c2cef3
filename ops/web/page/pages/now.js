// Now: is it the network? The open faults, and the health of all that watches it.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { bySeverity, Severity, Status } from "../lib/marks.js";
import { to } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { said, Strip } from "../lib/strip.js";
import { counted, Name, visible } from "../lib/text.js";
import { duration, useNow, utc } from "../lib/time.js";

// The worst first; more is there when somebody wants it.
const CARDS = 60;
const ANSWERS = { yes: "Yes", no: "No", unknown: "Cannot tell" };

export const now = { name: "now", title: "Now", render: Now };

function Now({ document, at }) {
  const time = useNow(at);
  const [all, setAll] = useState(false);
  const open = Object.values(document.open).sort(
    (a, b) => bySeverity(a.severity, b.severity) || b.opened_ms - a.opened_ms || (a.id < b.id ? -1 : 1),
  );
  const over = Object.values(document.over).sort((a, b) => b.at_ms - a.at_ms || (a.id < b.id ? -1 : 1));
  const { answer, text } = document.headline;
  return html`
    <section class=${`headline ${answer}`} aria-labelledby="answer">
      <h1 id="answer"><span class="question">Is it the network?</span> ${ANSWERS[answer] ?? answer}</h1>
      <p role="status"><${Name} text=${text} long /></p>
    </section>
    <section aria-labelledby="open">
      <h2 id="open">Open faults <span class="count">${document.open_total.toLocaleString("en")}</span></h2>
      ${open.length === 0
        ? html`<p class="none">None.</p>`
        : html`<ul class="faults">${(all ? open : open.slice(0, CARDS)).map((f) => html`<${Fault} key=${f.id} fault=${f} time=${time} />`)}</ul>`}
      ${!all && open.length > CARDS &&
      html`<p class="actions"><button type="button" onClick=${() => setAll(true)}>Show ${counted(open.length - CARDS, "more open fault")}</button></p>`}
      ${document.open_total > open.length &&
      html`<p>${counted(document.open_total - open.length, "older fault")} not shown.</p>`}
    </section>
    <section aria-labelledby="health">
      <h2 id="health">Health, layer by layer</h2>
      <${Scroll} label="Health"><table>
        <thead><tr><th scope="col">part</th><th scope="col">status</th><th scope="col">found</th><th scope="col">what to do</th></tr></thead>
        <tbody>${Object.values(document.health).map(
          (part) => html`<tr key=${part.name} data-part=${part.name}>
            <th scope="row">${part.name}</th><td><${Status} of=${part.status} /></td>
            <td class="told"><${Name} text=${part.found} long /></td><td class="told"><${Name} text=${part.todo} long /></td></tr>`,
        )}</tbody>
      </table><//>
    </section>
    ${Object.keys(document.day).length > 0 && html`<section aria-labelledby="day">
      <h2 id="day">The last 24 hours</h2>
      <${Scroll} label="Components with faults in the last 24 hours"><table>
        <thead><tr><th scope="col">component</th><th scope="col" class="wide">24 h ago … now</th><th scope="col">fault open (UTC)</th></tr></thead>
        <tbody>${Object.entries(document.day).map(
          ([name, { spans }]) => html`<tr key=${name}><th scope="row"><${Name} text=${name} /></th>
            <td class="wide"><${Strip} spans=${spans} time=${time} /></td><td>${said(spans, time)}</td></tr>`,
        )}</tbody></table><//></section>`}
    <section aria-labelledby="over">
      <h2 id="over">Lately over</h2>
      ${over.length === 0
        ? html`<p class="none">None.</p>`
        : html`<${Scroll} label="Faults lately over"><table>
            <thead><tr><th scope="col">component</th><th scope="col">kind</th><th scope="col">severity</th>
              <th scope="col">began (UTC)</th><th scope="col">lasted</th></tr></thead>
            <tbody>${over.map(
              (f) => html`<tr key=${f.id}>
                <td><a href=${to("incident", { fault: f.id })}><${Name} text=${f.component} /></a></td>
                <td><${Name} text=${f.kind} /></td><td><${Severity} of=${f.severity} /></td>
                <td>${utc(f.onset_ms)}</td><td>${duration((f.resolved_ms ?? f.at_ms) - f.onset_ms)}</td></tr>`,
            )}</tbody>
          </table><//>`}
    </section>`;
}

function Fault({ fault, time }) {
  const paths = `${counted(fault.bad, "5-tuple")} bad, ${fault.good.toLocaleString("en")} good`;
  return html`<li class=${`fault ${visible(fault.severity)}`} data-fault=${fault.id}>
    <h3><a href=${to("incident", { fault: fault.id })}><${Name} text=${fault.component} /></a></h3>
    <p class="facts">
      <${Severity} of=${fault.severity} />
      <span><${Name} text=${fault.kind} /> of ${visible(fault.component_kind).toLowerCase()}</span>
      <span title=${`since ${utc(fault.onset_ms)} UTC`}>for ${duration(time - fault.onset_ms)}</span>
      ${!fault.decided && html`<span class="mark undecided"><span aria-hidden="true">≈</span> undecided among ${fault.candidates.length}</span>`}
      ${fault.silenced && html`<span class="mark undecided"><span aria-hidden="true">⊘</span> pages nobody until ${utc(fault.silenced.until_ms)} UTC (<${Name} text=${fault.silenced.author} />: <${Name} text=${fault.silenced.reason} long />)</span>`}
      ${fault.acknowledged_by && html`<span>acknowledged by <${Name} text=${fault.acknowledged_by} /></span>`}
      ${fault.closed && html`<span>closed by <${Name} text=${fault.closed.by} /> at ${utc(fault.closed.at_ms)} UTC${fault.closed.cause && html`: <${Name} text=${fault.closed.cause} long />`}</span>`}
      ${fault.flaps > 0 && html`<span>came back ${counted(fault.flaps, "time")}</span>`}
    </p>
    <p><${Name} text=${fault.summary} long /></p>
    <dl>
      <dt>First step</dt><dd>${fault.first_step}</dd>
      <dt>Where</dt><dd>${fault.layer === "JOB" && "in the job, not in the network; "}<a href=${to("topology", { fault: fault.id })} aria-label=${`paths through it: ${visible(fault.component)}`}>paths through it</a></dd>
      <dt>Tasks hit</dt><dd>${
        fault.tasks.length === 0
          ? "none known"
          : fault.tasks.map((task, i) => html`${i > 0 && ", "}<a href=${to("job", { task })}><${Name} text=${task} /></a>`)
      }</dd>
      ${fault.ranks && html`<dt>Ranks stopped</dt><dd>${Object.entries(fault.ranks).map(([task, text], i) => html`${i > 0 && "; "}<${Name} text=${task} />: <${Name} text=${text} long />`)}</dd>`}
      <dt>Seen</dt><dd>${paths}; confidence ${Math.round(fault.confidence * 100)} %; cluster <${Name} text=${fault.cluster} /></dd>
    </dl>
  </li>`;
}
