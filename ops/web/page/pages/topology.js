// Topology: the neighbourhood of a fault, with the good and the bad paths through what is suspected.
import { Graph } from "../lib/graph.js";
import { html } from "../lib/html.js";
import { Severity } from "../lib/marks.js";
import { go, to } from "../lib/router.js";
import { Scroll } from "../lib/scroll.js";
import { counted, Name, visible } from "../lib/text.js";

export const topology = { name: "topology", title: "Topology", render: Topology };

const TIERS = { spine: "spines", core: "cores", leaf: "leaves" };

function Topology({ document: shown, params }) {
  const { fault } = shown;
  if (!fault) {
    return html`<section aria-labelledby="topology"><h1 id="topology">Topology</h1>
      <p class="none">No fault is known: this page shows what is around one.</p><${Network} network=${shown.network} /></section>`;
  }
  const suspects = Object.values(shown.suspects);
  const paths = Object.values(shown.paths);
  const bad = paths.filter((p) => p.bad);
  const good = paths.filter((p) => !p.bad);
  return html`
    <section aria-labelledby="topology">
      <h1 id="topology">Around <${Name} text=${fault.component} long /></h1>
      <p class="facts"><${Severity} of=${fault.severity} /> <span><${Name} text=${fault.kind} /></span>
        <span>${fault.open ? "open" : "over"}</span> <a href=${to("incident", { fault: fault.id })}>its time line</a></p>
      <p><${Name} text=${fault.summary} long /></p>
      <${Others} faults=${shown.faults} chosen=${fault.id} named=${params.fault !== undefined} />
    </section>
    <section aria-labelledby="picture">
      <h2 id="picture">Paths through it</h2>
      ${shown.drawn
        ? html`<${Graph} nodes=${labelled(shown.nodes)} edges=${shown.edges}
              label=${`${suspects.map((s) => visible(s.name)).join(", ")}: ${counted(shown.bad, "bad 5-tuple")} and ${shown.good} good ones cross ${suspects.length > 1 ? "them" : "it"}; the tables below say the same`} />
            <p class="keys"><strong>Octagon, or dashed line:</strong> suspected.${" "}<strong>Thick red line:</strong> bad 5-tuples cross it (✕, beside the good ones, ✓).${" "}
              <strong>Thin green line:</strong> only good ones.${" "}<strong>Double border:</strong> several as one.</p>`
        : html`<p class="note" role="note">${counted(Object.keys(shown.nodes).length, "node")} and ${counted(Object.keys(shown.edges).length, "link")}: too many for a picture. The tables say more.</p>
            <${Links} nodes=${labelled(shown.nodes)} edges=${Object.values(shown.edges)} />`}
    </section>
    <section aria-labelledby="suspects">
      <h2 id="suspects">${fault.decided ? "Accused, and alternatives" : "Undecided among"}</h2>
      <${Scroll} label="Suspects"><table>
        <thead><tr><th scope="col">component</th><th scope="col">kind</th><th scope="col">likelihood</th>
          <th scope="col" class="number">bad 5-tuples</th><th scope="col" class="number">good 5-tuples</th></tr></thead>
        <tbody>${suspects.map(
          (s) => html`<tr key=${s.name}><th scope="row"><${Name} text=${s.name} />${s.accused && html` <span class="mark">accused</span>`}</th>
            <td>${s.kind}</td><td>${s.score === undefined ? "–" : html`<meter min="0" max="1" value=${s.score} aria-label="likelihood"></meter> ${Math.round(s.score * 100)} %`}</td>
            <td class="number">${s.bad.toLocaleString("en")}</td><td class="number">${s.good.toLocaleString("en")}</td></tr>`,
        )}</tbody></table><//>
    </section>
    <${Paths} id="bad" title="Bad paths" paths=${bad} all=${shown.bad} none="No anomaly is known on a 5-tuple that crosses it." />
    <${Paths} id="good" title="Good paths" paths=${good} all=${shown.good} none="No 5-tuple without an anomaly was traced through it lately." />
    <${Network} network=${shown.network} />`;
}

/** Name the nodes that stand for several. */
function labelled(nodes) {
  return Object.fromEntries(
    Object.entries(nodes).map(([key, node]) => {
      const many = node.members.toLocaleString("en");
      let label = node.name;
      if (node.group && node.place === "ends") label = counted(node.members, "RNIC");
      else if (key === "other pods") label = `other pods (${many})`;
      else if (key.startsWith("others of ")) label = `${many} ${alone(nodes, key) ? "" : "other "}${TIERS[node.place]}`;
      else if (node.group) label = `pod ${node.name}`;
      return [key, { ...node, label }];
    }),
  );
}

/** Return whether a node is all of its row. */
function alone(nodes, key) {
  return Object.entries(nodes).every(([other, node]) => other === key || node.place !== nodes[key].place);
}

function Others({ faults, chosen, named }) {
  const all = Object.entries(faults);
  if (all.length < 2 && (named || all.some(([id]) => id === chosen))) return null;
  return html`<p><label>Fault <select onChange=${(event) => go("topology", { fault: event.target.value })}>
    ${!all.some(([id]) => id === chosen) && html`<option value=${chosen} selected>this one, which is over</option>`}
    ${all.map(([id, component]) => html`<option key=${id} value=${id} selected=${id === chosen}>${visible(component).slice(0, 80)}</option>`)}
  </select></label></p>`;
}

function Links({ nodes, edges }) {
  return html`<${Scroll} label="Links"><table>
    <thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col" class="number">links</th><th scope="col" class="number">bad 5-tuples</th><th scope="col" class="number">good 5-tuples</th></tr></thead>
    <tbody>${edges.sort((a, b) => b.suspect - a.suspect || b.bad - a.bad).slice(0, 100).map(
      (edge) => html`<tr><td><${Name} text=${nodes[edge.a].label} /></td><td><${Name} text=${nodes[edge.b].label} />${edge.suspect && html` <span class="mark">suspected</span>`}</td>
        <td class="number">${edge.links}</td><td class="number">${edge.bad}</td><td class="number">${edge.good}</td></tr>`,
    )}</tbody></table><//>`;
}

function Paths({ id, title, paths, all, none }) {
  return html`<section aria-labelledby=${id}><h2 id=${id}>${title} <span class="count">${all.toLocaleString("en")}</span></h2>
    ${paths.length === 0
      ? html`<p class="none">${none}</p>`
      : html`<${Scroll} label=${title}><table>
          <thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col" class="number">5-tuple</th><th scope="col">by way of</th><th scope="col">known from</th></tr></thead>
          <tbody>${paths.map(
            (p) => html`<tr key=${`${p.src} ${p.dst} ${p.flow}`}><td><${Name} text=${p.src} /></td><td><${Name} text=${p.dst} /></td>
              <td class="number"><a href=${to("matrix", { level: "endpoint", src: p.src, dst: p.dst })} aria-label=${`windows of 5-tuple ${p.flow}, ${visible(p.src)} to ${visible(p.dst)}`}>${p.flow}</a></td>
              <td>${p.via.length === 0 ? "not known" : p.via.map((name, i) => html`${i > 0 && " → "}<${Name} text=${name} />`)}</td>
              <td>${p.traced ? "a trace" : "the topology"}</td></tr>`,
          )}</tbody></table><//>
        ${all > paths.length && html`<p class="count">${(all - paths.length).toLocaleString("en")} more.</p>`}`}
  </section>`;
}

function Network({ network }) {
  const told = Object.entries(network).map(([kind, number]) => (kind === "switch" && number !== 1 ? `${number.toLocaleString("en")} switches` : counted(number, kind)));
  return html`<p class="count">The topology has ${told.length === 0 ? "nothing: topology.v1 is empty" : told.join(", ")}.</p>`;
}
