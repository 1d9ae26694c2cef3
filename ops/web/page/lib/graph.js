// A picture of nodes in rows and the edges between them. Cytoscape comes only when one is drawn.
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { visible } from "./text.js";

const ROWS = ["core", "spine", "leaf", "ends"];
const ROW_PX = 120;
const EDGE_PX = 60;
const LABEL_PX = 150;
const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Return where each node stands: rows from the top tier down, each spread over the width. */
function places(nodes, edges, width) {
  const rows = ROWS.map((row) =>
    Object.keys(nodes).filter((key) => nodes[key].place === row).sort(COLLATOR.compare),
  ).filter((row) => row.length > 0);
  const found = {};
  rows.forEach((row, y) => {
    const spread = (x) => ((x + 0.5) * width) / row.length;
    // Ends stand below the leaf that they are joined to, if each has one of its own.
    const above = row.map((key) => {
      const others = Object.values(edges).flatMap(({ a, b }) => (a === key ? [b] : b === key ? [a] : []));
      return nodes[key].place === "ends" && others.length === 1 ? found[others[0]]?.x : undefined;
    });
    const alone = above.every((x, i) => x !== undefined && above.indexOf(x) === i);
    row.forEach((key, x) => {
      found[key] = { x: alone ? above[x] : spread(x), y: EDGE_PX + y * ROW_PX, room: width / row.length };
    });
  });
  return { found, height: 2 * EDGE_PX + (rows.length - 1) * ROW_PX };
}

function elements(nodes, edges, found) {
  return [
    ...Object.entries(nodes).map(([key, node]) => ({
      data: {
        id: key,
        label: visible(node.label),
        room: Math.max(48, Math.min(LABEL_PX, found[key].room - 6)),
      },
      position: { x: found[key].x, y: found[key].y },
      classes: `${node.place} ${node.suspect ? "suspect" : ""} ${node.group ? "group" : ""}`,
    })),
    ...Object.entries(edges).map(([key, edge]) => ({
      data: {
        id: `edge ${key}`, source: edge.a, target: edge.b,
        label: edge.suspect || edge.bad > 0 ? `✕ ${edge.bad}  ✓ ${edge.good}` : "",
        width: edge.bad > 0 ? 2 + Math.min(4, Math.log10(edge.bad + 1) * 2) : 1.5,
      },
      classes: `${edge.bad > 0 ? "bad" : "good"} ${edge.suspect ? "suspect" : ""}`,
    })),
  ];
}

function styles(element) {
  const own = getComputedStyle(element);
  const colour = (name) => own.getPropertyValue(name).trim();
  const [ink, paper, line, bad, good, odd] = ["--ink", "--paper", "--dim", "--bad", "--good", "--odd-paper"].map(colour);
  return [
    {
      selector: "node",
      style: {
        shape: "round-rectangle", width: 26, height: 26, label: "data(label)", color: ink, "font-size": 11, "min-zoomed-font-size": 6,
        "text-wrap": "ellipsis", "text-max-width": "data(room)", "text-valign": "bottom", "text-margin-y": 4,
        "text-background-color": paper, "text-background-opacity": 0.85, "text-background-padding": 1,
        "background-color": paper, "border-width": 2, "border-color": line, "border-style": "solid",
      },
    },
    { selector: "node.ends", style: { shape: "ellipse" } },
    { selector: "node.group", style: { "border-style": "double", "border-width": 5 } },
    { selector: "node.suspect", style: { shape: "octagon", width: 38, height: 38, "border-width": 4, "border-color": bad, "background-color": odd, "font-weight": "bold" } },
    { selector: "edge", style: { width: "data(width)", "line-color": good, "curve-style": "straight", label: "data(label)", color: ink, "font-size": 10, "text-background-color": paper, "text-background-opacity": 0.9, "text-background-padding": 2 } },
    { selector: "edge.bad", style: { "line-color": bad } },
    { selector: "edge.suspect", style: { "line-style": "dashed", width: 6, "line-color": bad } },
  ];
}

/** Draw nodes (`{name, label, place, suspect, group}` by key) and edges (`{a, b, bad, good, suspect}`). */
export function Graph({ nodes, edges, label }) {
  const place = useRef(null);
  const content = JSON.stringify([nodes, edges]);
  useEffect(() => {
    const element = place.current;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    let graph = null;
    let gone = false;
    let width = 0;
    const draw = async () => {
      const { default: cytoscape } = await import("/static/vendor/cytoscape/cytoscape.mjs");
      if (gone) return;
      width = Math.max(280, element.clientWidth);
      const { found, height } = places(nodes, edges, width);
      element.style.height = `${height}px`;
      graph?.destroy();
      graph = cytoscape({
        container: element, elements: elements(nodes, edges, found), style: styles(element),
        layout: { name: "preset", fit: false }, zoom: 1, pan: { x: 0, y: 0 },
        userZoomingEnabled: false, userPanningEnabled: false, boxSelectionEnabled: false, autoungrabify: true,
      });
      graph.ready(() => Object.assign(element.dataset, { nodes: graph.nodes().length, edges: graph.edges().length }));
    };
    draw();
    const observer = new ResizeObserver(() => Math.max(280, element.clientWidth) !== width && width > 0 && draw());
    observer.observe(element);
    dark.addEventListener("change", draw);
    return () => {
      gone = true;
      observer.disconnect();
      dark.removeEventListener("change", draw);
      graph?.destroy();
    };
  }, [content]);
  return html`<div class="graph" ref=${place} role="img" aria-label=${label}></div>`;
}
