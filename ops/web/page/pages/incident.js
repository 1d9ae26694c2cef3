// Incident: one fault from its first symptom to its end, on one time line.
import { useState } from "preact/hooks";
import { Actions, Text, Times, times, useRules } from "../lib/act.js";
import { Chart } from "../lib/chart.js";
import { html } from "../lib/html.js";
import { Severity } from "../lib/marks.js";
import { to } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { counted, Name, visible } from "../lib/text.js";
import { clock, duration, useNow, utc } from "../lib/time.js";

const FLOWS_SHOWN = 20;
const KINDS = {
  symptom: ["◇", "symptom"],
  trace: ["⋯", "trace"],
  state: ["▣", "state"],
  verdict: ["★", "verdict"],
  fault: ["▲", "other fault"],
  note: ["✎", "note"],
  other: ["·", "elsewhere"],
};

export const incident = { name: "incident", title: "Incident", hidden: true, render: Incident };

function Incident({ document: shown, params, at, source }) {
  const time = useNow(at);
  const { fault, span } = shown;
  const lines = Object.entries(shown.line).sort(([a], [b]) => (a < b ? -1 : 1));
  const flows = Object.entries(shown.flows);
  const beside = Object.entries(shown.beside);
  const verdicts = lines.filter(([, one]) => one.what === "verdict").map(([, one]) => one.at_ms);
  const [hidden, setHidden] = useState([]);
  const asked = new URLSearchParams({ ...params, ...(at === null ? {} : { at }) });
  return html`
    <section class="incident" aria-labelledby="fault">
      <h1 id="fault"><${Name} text=${fault.component} long /></h1>
      <p class="facts">
        <${Severity} of=${fault.severity} />
        <span><${Name} text=${fault.kind} /> of ${visible(fault.component_kind).toLowerCase()}</span>
        ${fault.layer === "JOB" && html`<span>of the job, not of the network</span>`}
        <span>${fault.open ? `open for ${duration(time - fault.opened_ms)}` : `over after ${duration((fault.resolved_ms ?? fault.at_ms) - fault.onset_ms)}`}</span>
      ${fault.silenced && html`<span class="mark undecided"><span aria-hidden="true">⊘</span> pages nobody until ${utc(fault.silenced.until_ms)} UTC (<${Name} text=${fault.silenced.author} />: <${Name} text=${fault.silenced.reason} long />)</span>`}
        ${fault.acknowledged_by && html`<span>acknowledged by <${Name} text=${fault.acknowledged_by} /></span>`}
        ${fault.closed && html`<span>closed by <${Name} text=${fault.closed.by} /> at ${utc(fault.closed.at_ms)} UTC${fault.closed.cause && html`: <${Name} text=${fault.closed.cause} long />`}</span>`}
        <span>id <${Name} text=${fault.id} /></span>
      </p>
      <p><${Name} text=${fault.summary} long /></p>
      <dl>
        <dt>First step</dt><dd>${fault.first_step}</dd>
        <dt>First symptom</dt><dd>${shown.first_symptom_ms === undefined ? "none is known here" : `${utc(shown.first_symptom_ms)} UTC`}</dd>
        <dt>Onset by verdict</dt><dd>${utc(fault.onset_ms)} UTC</dd>
        <dt>Verdict</dt><dd>${utc(fault.opened_ms)} UTC, ${duration(fault.opened_ms - (shown.first_symptom_ms ?? fault.onset_ms))} after the first symptom</dd>
        ${fault.resolved_ms && html`<dt>Resolved</dt><dd>${utc(fault.resolved_ms)} UTC</dd>`}
        <dt>Tasks hit</dt><dd>${fault.tasks.length ? fault.tasks.map((task, i) => html`${i > 0 && ", "}<a href=${to("job", { task })}><${Name} text=${task} /></a>`) : "none known"}</dd>
        ${fault.ranks && html`<dt>Ranks stopped</dt><dd>${Object.entries(fault.ranks).map(([task, text], i) => html`${i > 0 && "; "}<${Name} text=${task} />: <${Name} text=${text} long />`)}</dd>`}
        ${beside.length > 0 && html`<dt>Beside</dt><dd>${beside.map(([id, one], i) => html`${i > 0 && ", "}<a href=${to("incident", { fault: id })}><${Name} text=${one.component ?? id} /></a>${one.kind && html`: <${Name} text=${one.kind} />`}${one.open === false && " (over)"}`)}</dd>`}
        ${fault.candidates.length > 1 && html`<dt>Candidates</dt><dd>${fault.candidates.map(
          (c, i) => html`${i > 0 && ", "}<${Name} text=${c.component} /> ${c.score.toFixed(2)}`,
        )}</dd>`}
      </dl>
      ${shown.missing > 0 && html`<p class="note">${counted(shown.missing, "earlier transition")} of it ${shown.missing === 1 ? "is" : "are"} not known here: older than what was read.</p>`}
      <p class="actions">
        <a href=${`/api/report.html?${asked}`} download=${`${fault.id}.html`}>Report as one HTML file</a>
        <a href=${`/api/report.md?${asked}`} download=${`${fault.id}.md`}>as Markdown</a>
        <${Share} fault=${fault} span=${span} />
      </p>
      <${Respond} fault=${fault} at=${at} />
      <details><summary>Keep and replay it</summary><pre tabindex="0">${replay(fault, span, source)}</pre></details>
    </section>
    <section aria-labelledby="symptoms">
      <h2 id="symptoms">Open anomalies on 5-tuples that cross it</h2>
      <${Chart} series=${shown.symptoms} label="Open anomalies over time (UTC); dashed: verdict transitions" marks=${verdicts} />
      <p class="hint">Dashed lines: the verdict's transitions. From ${utc(span.from_ms)} to ${utc(span.to_ms)} UTC.${" "}
        ${shown.others > 0 && `${counted(shown.others, "anomaly elsewhere").replace("anomaly elsewheres", "anomalies elsewhere")} at that time.`}</p>
    </section>
    <section aria-labelledby="line">
      <h2 id="line">Time line</h2>
      <fieldset class="chips"><legend>Show</legend>${Object.entries(KINDS).map(
        ([kind, [sign, word]]) => html`<label><input type="checkbox" checked=${!hidden.includes(kind)}
          onChange=${() => setHidden(hidden.includes(kind) ? hidden.filter((k) => k !== kind) : [...hidden, kind])} />
          <span aria-hidden="true">${sign}</span> ${word}</label>`,
      )}</fieldset>
      <ol class="line">${lines
        .filter(([, one]) => !hidden.includes(one.what))
        .map(([key, one]) => html`<${Line} key=${key} one=${one} start=${fault.onset_ms} />`)}</ol>
      ${shown.lines_left > 0 && html`<p class="note">${counted(shown.lines_left, "line")} that say less of it not shown: give a shorter time by from= and to= in the address.</p>`}
    </section>
    <section aria-labelledby="flows">
      <h2 id="flows">5-tuples that show it</h2>
      ${flows.length === 0
        ? html`<p class="none">None is known here.</p>`
        : html`<${Flows} flows=${flows.slice(0, FLOWS_SHOWN)} />`}
      ${flows.length > FLOWS_SHOWN && html`<details><summary>${counted(flows.length - FLOWS_SHOWN, "more 5-tuple")}</summary>
        <${Flows} flows=${flows.slice(FLOWS_SHOWN)} /></details>`}
      ${shown.flows_left > 0 && html`<p class="note">${counted(shown.flows_left, "more 5-tuple")} not shown.</p>`}
    </section>`;
}

function Flows({ flows }) {
  return html`<${Scroll} label="5-tuples that show it"><table>
    <thead><tr><th scope="col">5-tuple</th><th scope="col">what</th><th scope="col">from (UTC)</th><th scope="col">to</th><th scope="col">crosses</th></tr></thead>
    <tbody>${flows.map(
      ([name, flow]) => html`<tr key=${name}><th scope="row"><${Name} text=${name} /></th>
        <td>${[...new Set(flow.spans.map((s) => s.kind))].join(", ")}</td>
        <td>${clock(flow.spans[0].from_ms)}</td>
        <td>${flow.spans.some((s) => s.to_ms === undefined) ? "open" : clock(Math.max(...flow.spans.map((s) => s.to_ms)))}</td>
        <td class="wide"><${Name} text=${flow.route.join(" · ") || "not known"} long />${!flow.traced && " (not traced)"}</td></tr>`,
    )}</tbody></table><//>`;
}

function Line({ one, start }) {
  const [sign, word] = KINDS[one.what] ?? ["·", one.what];
  const after = (one.at_ms - start) / 1000;
  return html`<li class=${`entry ${one.what}`}>
    <time datetime=${new Date(one.at_ms).toISOString()} title=${`${utc(one.at_ms)} UTC`}>${clock(one.at_ms)}${" "}
      <span class="after">${after < 0 ? "−" : "+"}${Math.abs(after).toFixed(1)} s</span></time>
    <span class="kind"><span aria-hidden="true">${sign}</span> ${word}${one.action ? ` ${visible(one.action)}` : ""}${one.verdict ? ` ${visible(one.verdict.state).toLowerCase()}` : ""}</span>
    <div class="said">
      ${one.fault_id
        ? html`<a href=${to("incident", { fault: one.fault_id })}><${Name} text=${one.text} long /></a>${one.state === "RESOLVED" ? " (resolved)" : ""}`
        : html`<${Name} text=${one.text} long />`}
      ${one.disorder && html` <span class="mark status odd"><span aria-hidden="true">!</span> means <${Name} text=${one.disorder} /></span>`}
      ${one.detail && html`<p class="detail"><${Name} text=${one.detail} long /></p>`}
      ${one.verdict && html`<p class="detail">confidence ${Math.round(one.verdict.confidence * 100)} %, ${counted(one.verdict.bad, "5-tuple")} bad, ${one.verdict.good} good${
        one.verdict.decided ? "" : `, undecided among ${one.verdict.candidates.length}`}</p>`}
      ${one.changed?.length > 0 && html`<p class="detail">Changed: <${Name} text=${one.changed.join("; ")} long /></p>`}
      ${one.evidence?.length > 0 && html`<details open=${one.verdict.seq === 1}><summary>Evidence as it was known then</summary>
        <ul>${one.evidence.map((text) => html`<li><${Name} text=${text} long /></li>`)}</ul></details>`}
      ${one.names && html`<details><summary>${one.what === "trace" ? "Traces" : "5-tuples"}</summary>
        <ul>${one.names.map((text) => html`<li><${Name} text=${text} long /></li>`)}</ul>
        ${one.names_left && html`<p>and ${one.names_left.toLocaleString("en")} more</p>`}</details>`}
    </div>
  </li>`;
}

// What a silence from here is meant for, by the value of its choice.
const SILENCED = { component: ["component"], kind: ["component", "kind"], fault: ["fault_id"] };

function Respond({ fault, at }) {
  const rules = useRules(at);
  if (!rules) return null;
  if (rules.cluster !== fault.cluster) {
    return html`<p class="detail">This page acts on faults of cluster <${Name} text=${rules.cluster} /> only.</p>`;
  }
  const values = { component: fault.component, kind: fault.kind, fault_id: fault.id };
  const note = { action: "note", entry: { fault_id: fault.id } };
  const say = html`<${Text} name="text" label="Note (may be empty)" known=${rules} />`;
  const actions = [
    fault.open && { ...note, word: "Acknowledge…", title: "Say that you are at it", fields: say, entry: { ...note.entry, action: "acknowledge" } },
    {
      word: "Silence…", title: "Page nobody for a while; the fault itself stays on the page", action: "silence",
      read: (given) => ({
        ...times(given),
        matchers: SILENCED[given.get("what")].map((label) => ({ label, pattern: values[label] })),
      }),
      fields: html`<label>What <select name="what">
          <option value="component">every fault of ${visible(fault.component)}</option>
          <option value="kind">${visible(fault.kind)} of ${visible(fault.component)}</option>
          <option value="fault">this fault alone</option></select></label>
        <${Times} known=${rules} /><${Text} name="reason" label="Reason" known=${rules} required />`,
    },
    {
      ...note, word: "Close…", title: "Say what it was; its page ends, unless the fault comes back",
      fields: html`<${Text} name="cause" label="Cause" known=${rules} required />${say}`, entry: { ...note.entry, action: "close" },
    },
    {
      ...note, word: "Comment…", title: "Write a note that changes nothing else",
      fields: html`<${Text} name="text" label="Note" known=${rules} required />`, entry: { ...note.entry, action: "comment" },
    },
  ];
  return html`<${Actions} label="What you do about it" rules=${rules} actions=${actions.filter(Boolean)} />`;
}

function Share({ fault, span }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    const link = location.origin + to("incident", { fault: fault.id, from: span.from_ms, to: span.to_ms });
    try {
      await navigator.clipboard.writeText(link);
      setDone("copied");
    } catch {
      setDone("the browser does not allow it: copy the address above");
    }
  };
  return html`<button type="button" onClick=${copy}>Copy a link to this time</button> <span role="status">${done}</span>`;
}

// Quoted for a shell: an id comes from a record.
function replay(fault, span, source) {
  const from = new Date(span.from_ms).toISOString();
  const until = new Date(span.to_ms).toISOString();
  if (source?.folder) {
    const folder = `'${visible(source.folder).replaceAll("'", "'\\''")}'`;
    return `skeletonhunter diagnose ${folder}\nskeletonhunter web --recording ${folder}`;
  }
  return (
    `skeletonhunter record incident --topics all --from ${from} --to ${until}\n` +
    "skeletonhunter diagnose incident             # the verdict anew, without a broker\n" +
    "skeletonhunter web --recording incident      # these pages at any moment of it"
  );
}
