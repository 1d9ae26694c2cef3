// Silences: of which faults nobody is paged, until when, by whom and why.
import { useState } from "preact/hooks";
import { Actions, Text, Times, times, useRules } from "../lib/act.js";
import { html } from "../lib/html.js";
import { Scroll } from "../lib/scroll.js";
import { counted, Name, visible } from "../lib/text.js";
import { duration, useNow, utc } from "../lib/time.js";

export const silences = { name: "silences", title: "Silences", render: Silences };

function Silences({ document, at }) {
  const time = useNow(at);
  const rules = useRules(at);
  const there = Object.values(document.silences).sort((a, b) => a.until_ms - b.until_ms || (a.id < b.id ? -1 : 1));
  const over = Object.values(document.over).sort((a, b) => b.until_ms - a.until_ms || (a.id < b.id ? -1 : 1));
  return html`
    <section aria-labelledby="there">
      <h1 id="there">Silences</h1>
      <p class="detail">A silence hides pages, never faults. All its conditions must fit; in a pattern * stands for any characters, ? for one.</p>
      ${rules && html`<${New} rules=${rules} />`}
      ${there.length === 0
        ? html`<p class="none">None is in force or planned.</p>`
        : html`<ul class="faults">${there.map((one) => html`<${Silence} key=${one.id} one=${one} time=${time} rules=${rules} />`)}</ul>`}
      ${document.left > 0 && html`<p class="detail">${counted(document.left, "more silence")} not shown: skeletonhunter silence list.</p>`}
    </section>
    <section aria-labelledby="over">
      <h2 id="over">Lately ended</h2>
      ${over.length === 0
        ? html`<p class="none">None.</p>`
        : html`<${Scroll} label="Silences lately ended"><table>
          <thead><tr><th scope="col">what</th><th scope="col">from (UTC)</th><th scope="col">until</th><th scope="col">reason</th><th scope="col">who</th></tr></thead>
          <tbody>${over.map((one) => html`<tr key=${one.id}>
            <th scope="row"><${Conditions} of=${one} /></th><td class="nowrap">${utc(one.from_ms)}</td><td class="nowrap">${utc(one.until_ms)}</td>
            <td class="wide"><${Name} text=${one.reason} long /></td>
            <td><${Name} text=${one.author} />${one.ended_by && html`, ended by <${Name} text=${one.ended_by} />`}</td></tr>`)}</tbody>
        </table><//>`}
    </section>`;
}

function Silence({ one, time, rules }) {
  const mine = rules && one.cluster === rules.cluster;
  return html`<li class="fault" data-silence=${one.id}>
    <h2><${Conditions} of=${one} /></h2>
    <p>${one.state === "planned"
      ? `Planned: begins in ${duration(one.from_ms - time)}.`
      : `In force for ${duration(one.until_ms - time)} more; hides ${counted(one.hides, "open fault")}.`}</p>
    <p><${Name} text=${one.reason} long /></p>
    <p class="facts"><span>by <${Name} text=${one.author} /></span><span>${utc(one.from_ms)} to ${utc(one.until_ms)} UTC</span>
      <span>cluster <${Name} text=${one.cluster} /></span><span>id <${Name} text=${one.id} /></span></p>
    ${mine && html`<${Actions} label=${`Silence ${visible(one.id)}`} rules=${rules} actions=${[expiry(one)]} />`}
  </li>`;
}

function Conditions({ of }) {
  return of.matchers.length === 0
    ? "every fault"
    : of.matchers.map((text, i) => html`${i > 0 && " and "}<${Name} text=${text} long />`);
}

function expiry(one) {
  return {
    word: "End…", title: "End it now; what is still open is paged",
    action: "expire", entry: { silence_id: one.id }, fields: null,
  };
}

function New({ rules }) {
  const [rows, setRows] = useState([0]);
  const [everything, setEverything] = useState(false);
  const fields = html`
    ${!everything && rows.map((row, i) => html`<div class="row" key=${row}>
      <label>Label <select name="label">${rules.labels.map((label) => html`<option>${label}</option>`)}</select></label>
      <label>Pattern <input name="pattern" required maxlength="1024" placeholder="link:leaf:p0-1--*" /></label>
      <button type="button" disabled=${rows.length === 1} aria-label=${`Leave out condition ${i + 1}`} onClick=${() => setRows(rows.filter((r) => r !== row))}>−</button>
    </div>`)}
    ${!everything && html`<p class="actions"><button type="button" disabled=${rows.length >= rules.max_matchers} onClick=${() => setRows([...rows, Math.max(...rows) + 1])}>One condition more</button></p>`}
    <label class="check"><input type="checkbox" name="everything" checked=${everything} onChange=${(event) => setEverything(event.target.checked)} /> Every fault of the cluster</label>
    <${Times} known=${rules} begins /><${Text} name="reason" label="Reason" known=${rules} required />`;
  const read = (given) => {
    const patterns = given.getAll("pattern");
    return {
      ...times(given), everything: given.has("everything"),
      matchers: given.getAll("label").map((label, i) => ({ label, pattern: patterns[i] })),
    };
  };
  const action = { word: "New silence…", title: "Page nobody of some faults for a while", action: "silence", fields, read };
  return html`<${Actions} label="New silence" rules=${rules} actions=${[action]} />`;
}
