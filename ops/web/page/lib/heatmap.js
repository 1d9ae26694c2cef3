// A heat map with axes, a focused cell, and a keyboard.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Cells, covered } from "./cells.js";
import { CanvasHeat } from "./heat_canvas.js";
import { WebGlHeat } from "./heat_webgl.js";
import { html } from "./html.js";
import { visible } from "./text.js";

const MOST_CELL_PX = 40;
const LABEL_PX = 15;
const LETTER_PX = 7;
const MOST_LABEL_PX = 120;
const FAR = 10;

/** Return a colour of the style sheet as [r, g, b]. */
function colourOf(style, name) {
  const hex = style.getPropertyValue(name).trim().slice(1);
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function coloursOf(canvas, worst) {
  const style = getComputedStyle(canvas);
  const palette = Array.from({ length: 16 }, (_, code) =>
    colourOf(style, code === 15 ? "--heat-line" : `--heat-${Math.min(code, 9)}`),
  );
  return { palette, ink: colourOf(style, "--heat-ink"), worstInk: colourOf(style, "--heat-worst-ink"), worst };
}

/** Give the size of an element's place, and whether the colours changed meanwhile. */
function useLook(ref) {
  const [look, setLook] = useState({ width: 0, ratio: devicePixelRatio, turn: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    const sized = () =>
      setLook((old) =>
        old.width === element.clientWidth && old.ratio === devicePixelRatio
          ? old
          : { ...old, width: element.clientWidth, ratio: devicePixelRatio },
      );
    const coloured = () => setLook((old) => ({ ...old, turn: old.turn + 1 }));
    const observer = new ResizeObserver(sized);
    observer.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", coloured);
    sized();
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", coloured);
    };
  }, []);
  return look;
}

/** Return the labels of a side that have room, as [place, text]. */
function labels(side, cell) {
  const every = cell >= LABEL_PX ? side.names.map((name, place) => [place, name]) : side.parts;
  const found = [];
  for (const [place, name] of every) {
    if (found.length === 0 || (place - found.at(-1)[0]) * cell >= LABEL_PX) found.push([place, name]);
  }
  return found;
}

/**
 * Draw a matrix.
 *
 * `rows`, `cols`: sides with names and parts. `cells`: packed rows. `worst`: the code of the worst
 * level. `say`: the text of a cell. `open`: called with a cell that was chosen.
 */
export function Heatmap({ rows, cols, cells: packed, worst, say, open, chosen }) {
  const place = useRef(null);
  const canvas = useRef(null);
  const painter = useRef(null);
  const [plain, setPlain] = useState(false);
  const [focus, setFocus] = useState(chosen ?? { row: 0, col: 0 });
  const [over, setOver] = useState(null);
  const look = useLook(place);
  const count = { rows: rows.names.length, cols: cols.names.length };
  const cells = useMemo(() => new Cells(count.rows, count.cols), [count.rows, count.cols, rows.names, cols.names]);
  // Taken before anything tells of them.
  const changed = useMemo(() => cells.take(packed), [cells, packed]);
  const left = Math.min(160, Math.round(look.width * 0.3));
  const room = { width: Math.max(40, look.width - left), height: Math.max(240, Math.min(900, innerHeight * 0.72)) };
  const cell = Math.min(MOST_CELL_PX, room.width / count.cols, Math.max(room.height, room.width) / count.rows);
  const size = { width: Math.max(1, cell * count.cols), height: Math.max(1, cell * count.rows) };

  useEffect(() => {
    const lost = (event) => {
      event.preventDefault();
      setPlain(true);
    };
    canvas.current.addEventListener("webglcontextlost", lost);
    try {
      painter.current = plain ? new CanvasHeat(canvas.current) : new WebGlHeat(canvas.current);
    } catch {
      setPlain(true);
      return undefined;
    }
    painter.current.whole = true;
    const own = canvas.current;
    return () => {
      own.removeEventListener("webglcontextlost", lost);
      painter.current?.free();
      painter.current = null;
    };
  }, [plain]);

  useEffect(() => {
    const own = painter.current;
    if (!own || look.width === 0) return;
    const width = Math.max(1, Math.round(size.width * look.ratio));
    const height = Math.max(1, Math.round(size.height * look.ratio));
    if (canvas.current.width !== width) canvas.current.width = width;
    if (canvas.current.height !== height) canvas.current.height = height;
    own.take(cells, own.whole || own.cells !== cells ? null : changed);
    own.whole = false;
    own.cells = cells;
    own.draw(coloursOf(canvas.current, worst));
    Object.assign(canvas.current.dataset, { renderer: own.name, cells: cells.count, sent: changed.length });
  }, [packed, cells, look, size.width, size.height, worst, plain]);

  const tops = labels(cols, cell);
  const high = Math.min(MOST_LABEL_PX, 18 + LETTER_PX * Math.max(0, ...tops.map(([, name]) => name.length)));
  const middle = Math.max(0, (cell - LABEL_PX) / 2);

  const inside = (at) => ({
    row: Math.max(0, Math.min(count.rows - 1, at.row)),
    col: Math.max(0, Math.min(count.cols - 1, at.col)),
  });
  const shown = inside(over ?? focus);

  function under(event) {
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const [l, r] = covered(Math.max(0, Math.floor(x)), box.width, count.cols);
    const [t, b] = covered(Math.max(0, Math.floor(y)), box.height, count.rows);
    return cells.worstIn(t, l, b, r);
  }

  function pressed(event) {
    const far = event.shiftKey ? FAR : 1;
    const moves = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] };
    let next = null;
    if (event.key in moves) next = { row: focus.row + moves[event.key][0], col: focus.col + moves[event.key][1] };
    else if (event.key === "Home") next = event.ctrlKey ? { row: 0, col: 0 } : { ...focus, col: 0 };
    else if (event.key === "End") next = event.ctrlKey ? { row: count.rows, col: count.cols } : { ...focus, col: count.cols };
    else if (event.key === "n" || event.key === "p") next = cells.nextBad(inside(focus), event.key === "n" ? 1 : -1);
    else if (event.key === "Enter" || event.key === " ") open(inside(focus));
    else return;
    event.preventDefault();
    setOver(null);
    if (next !== null) setFocus(inside(next));
  }

  return html`<div class="heat" ref=${place} style=${{ "--left": `${left}px` }}>
    <p class="axis">to →</p>
    <div class="top" aria-hidden="true" style=${{ width: `${size.width}px`, height: `${high}px` }}>${tops.map(
      ([at, name]) => html`<span key=${at} title=${visible(name)} style=${{ left: `${at * cell + middle}px` }}><bdi>${visible(name)}</bdi></span>`,
    )}</div>
    <div class="side" aria-hidden="true" style=${{ height: `${size.height}px` }}><span class="axis">from ↓</span>${labels(rows, cell).map(
      ([at, name]) => html`<span key=${at} title=${visible(name)} style=${{ top: `${at * cell + middle}px` }}><bdi>${visible(name)}</bdi></span>`,
    )}</div>
    <div class="cells" role="application" tabindex="0" aria-label="Matrix of sources and targets" aria-describedby="heat-keys"
        style=${{ width: `${size.width}px`, height: `${size.height}px` }} onKeyDown=${pressed}
        onMouseMove=${(event) => setOver(under(event))} onMouseLeave=${() => setOver(null)}
        onClick=${(event) => {
          const at = under(event);
          setFocus(at);
          open(at);
        }}>
      <canvas key=${String(plain)} ref=${canvas} style=${{ width: `${size.width}px`, height: `${size.height}px` }}></canvas>
      <span class="focus" aria-hidden="true" style=${{
        left: `${shown.col * cell}px`, top: `${shown.row * cell}px`, width: `${Math.max(cell, 5)}px`, height: `${Math.max(cell, 5)}px`,
      }}></span>
    </div>
    <p class="told" role="status">${count.rows > 0 && count.cols > 0 && say(shown, cells.at(shown.row, shown.col))}</p>
    <p class="keys" id="heat-keys">Arrows move, with Shift by ten; <kbd>n</kbd> and <kbd>p</kbd> go to the next and the previous bad cell; Enter opens one.</p>
  </div>`;
}
