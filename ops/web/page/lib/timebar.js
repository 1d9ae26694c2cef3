// The time of a recording that is looked at: a slider, play, and jumps to what happened.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { go } from "./router.js";
import { visible } from "./text.js";
import { utc } from "./time.js";

const STEP_MS = 500;
const SPEEDS = [1, 5, 20, 60];

/** Choose a time; it stands in the address, so that it can be shared. */
export function TimeBar({ source, page, params, at }) {
  const [first, last] = source.span_ms;
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(5);
  const choose = (ms) => {
    const within = Math.round(Math.min(last, Math.max(first, ms)));
    go(page, { ...params, at: within }, { replace: true });
  };
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => {
      if (at >= last) setPlaying(false);
      else choose(at + STEP_MS * speed);
    }, STEP_MS);
    return () => clearTimeout(timer);
  }, [playing, speed, at, page, JSON.stringify(params)]);
  const before = source.moments.filter((m) => m.at_ms < at).at(-1);
  const after = source.moments.find((m) => m.at_ms > at && m.at_ms <= last);
  const jump = (moment, word, sign) => html`<button type="button" disabled=${!moment}
    title=${moment ? visible(`${utc(moment.at_ms)}: ${moment.state.toLowerCase()}, ${moment.text}`) : ""}
    onClick=${() => choose(moment.at_ms)}><span aria-hidden="true">${sign}</span> ${word}</button>`;
  return html`<section class="timebar" aria-label="Time of the recording">
    <button type="button" aria-pressed=${playing} onClick=${() => {
      if (!playing && at >= last) choose(first);
      setPlaying(!playing);
    }}><span aria-hidden="true">${playing ? "❚❚" : "▶"}</span> ${playing ? "Pause" : "Play"}</button>
    <label>Speed <select value=${speed} onChange=${(event) => setSpeed(Number(event.target.value))}>
      ${SPEEDS.map((s) => html`<option value=${s} selected=${s === speed}>${s}×</option>`)}</select></label>
    ${jump(before, "Verdict before", "←")}${jump(after, "Next verdict", "→")}
    <input type="range" min=${first} max=${last} step="100" value=${at} aria-label="Time"
      aria-valuetext=${`${utc(at)} UTC`} onInput=${(event) => choose(Number(event.target.value))} />
    <output>${utc(at)} UTC</output>
  </section>`;
}
