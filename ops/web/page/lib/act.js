// What people do about faults: forms whose entries the server writes to the topics. What was written
// is shown once it comes back from there, as everything else is, and not before.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Name } from "./text.js";

const ALLOWED = document.querySelector("meta[name=actions]") !== null;
const HOUR_S = 3600;
const DURATIONS = [
  [HOUR_S / 2, "30 minutes"], [HOUR_S, "1 hour"], [2 * HOUR_S, "2 hours"], [4 * HOUR_S, "4 hours"],
  [8 * HOUR_S, "8 hours"], [24 * HOUR_S, "1 day"], [72 * HOUR_S, "3 days"], [168 * HOUR_S, "1 week"],
  [720 * HOUR_S, "30 days"], [2160 * HOUR_S, "90 days"],
];
const BEGINS = [
  [0, "now"], [HOUR_S / 2, "in 30 minutes"], [HOUR_S, "in 1 hour"], [2 * HOUR_S, "in 2 hours"],
  [8 * HOUR_S, "in 8 hours"], [24 * HOUR_S, "in 1 day"],
];
// What the page calls a field of the record.
const WORDS = { matchers: "The conditions", "matchers.pattern": "A pattern", until_at: "The end", author: "Your name", reason: "The reason", cause: "The cause", text: "The note" };
// Whoever has no name by a token is asked for it once in a browser.
const KEPT = "skeletonhunter.author";
let rules = null;

/** Give who acts, and within which bounds; null while that is not known, or nobody may. */
export function useRules(at) {
  const [known, setKnown] = useState(null);
  useEffect(() => {
    if (!ALLOWED || at !== null) return;
    rules ??= fetch("/api/actions").then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)));
    rules.then(setKnown, () => {
      rules = null;
    });
  }, []);
  return known;
}

/** Have something written; returns what the server says, with whether it was. */
async function send(action, entry) {
  try {
    const answer = await fetch(`/api/actions/${action}`, {
      method: "POST",
      headers: { "content-type": "application/json", "X-SkeletonHunter-Action": "1" },
      body: JSON.stringify(entry),
    });
    return { ...(await answer.json()), ok: answer.ok };
  } catch {
    return { ok: false, what: "The page's server does not answer.", todo: "See whether it shows before you send it again." };
  }
}

/** Return what the server says is wrong, in the words of the form. */
function wrong({ field, what }) {
  return field in WORDS && what.startsWith(field) ? WORDS[field] + what.slice(field.length) : what;
}

function kept() {
  try {
    return localStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}

/**
 * Buttons, each of which opens a form.
 *
 * `actions` are `{word, title, action, entry, read, fields}`: the word on the button, what the form
 * says that it does, the server's name for it, what it always sends, what it makes of the fields
 * beside texts, and the fields.
 */
export function Actions({ label, actions, rules: known }) {
  const [open, setOpen] = useState(null);
  const [done, setDone] = useState(null);
  const id = useId();
  const buttons = useRef({});
  const close = (told) => {
    buttons.current[open]?.focus();
    setOpen(null);
    setDone(told ?? null);
  };
  const chosen = actions.find((one) => one.word === open);
  return html`<div class="act" role="group" aria-label=${label} onKeyDown=${(event) => event.key === "Escape" && open && close()}>
    <p class="actions">${actions.map(
      ({ word }) => html`<button type="button" key=${word} aria-expanded=${String(word === open)} aria-controls=${`${id}-form`}
        ref=${(button) => (buttons.current[word] = button)} onClick=${() => { setDone(null); setOpen(word === open ? null : word); }}>${word}</button>`,
    )}</p>
    <div id=${`${id}-form`}>${chosen && html`<${Form} key=${open} of=${chosen} known=${known} close=${close} />`}</div>
    <p role="status">${done && html`Kafka has it: <${Name} text=${done} />. The page shows it as soon as it was read.`}</p>
  </div>`;
}

function Form({ of, known, close }) {
  const [told, setTold] = useState(null);
  const [busy, setBusy] = useState(false);
  const id = useId();
  const form = useRef(null);
  useEffect(() => form.current.querySelector("input, select, textarea, button").focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    const given = new FormData(event.target);
    const entry = { ...of.entry, ...of.read?.(given) };
    for (const name of ["reason", "text", "cause", "author"]) {
      if (given.has(name)) entry[name] = given.get(name);
    }
    setBusy(true);
    const answer = await send(of.action, entry);
    setBusy(false);
    if (!answer.ok) {
      setTold(answer);
      return;
    }
    try {
      if (entry.author) localStorage.setItem(KEPT, entry.author);
    } catch {
      // A browser that keeps nothing asks again.
    }
    close(answer.written);
  };
  return html`<form ref=${form} onSubmit=${submit} aria-labelledby=${`${id}-title`}>
    <p id=${`${id}-title`}><strong>${of.title}</strong></p>
    ${of.fields}
    ${known.author === null
      ? html`<label>Your name <input name="author" required maxlength="200" autocomplete="username" defaultValue=${kept()} /></label>`
      : html`<p class="detail">As <${Name} text=${known.author} />.</p>`}
    ${told && html`<p class="refused" role="alert"><strong><${Name} text=${wrong(told)} long />.</strong> <${Name} text=${told.todo} long /></p>`}
    <p class="actions"><button aria-disabled=${String(busy)}>${busy ? "Waiting for Kafka…" : of.word.replace("…", "")}</button>
      <button type="button" onClick=${() => close()}>Cancel</button></p>
  </form>`;
}

/** A line or two for people. */
export function Text({ name, label, known, required = false }) {
  return html`<label>${label} <textarea name=${name} rows="2" required=${required} maxlength=${known.max_text}></textarea></label>`;
}

/** When a silence begins, and how long it lasts. */
export function Times({ known, begins = false }) {
  const options = (all) => all.map(([seconds, word]) => html`<option value=${seconds} selected=${seconds === HOUR_S}>${word}</option>`);
  const lasting = DURATIONS.filter(([seconds]) => seconds <= known.max_days * 24 * HOUR_S);
  return html`${begins && html`<label>Begins <select name="begins">${BEGINS.map(([seconds, word]) => html`<option value=${seconds}>${word}</option>`)}</select></label>`}
    <label>Lasts <select name="lasts">${options(lasting)}</select></label>`;
}

/** Return what `Times` says, as the server takes it. */
export function times(given) {
  return { begins_in_s: Number(given.get("begins") ?? 0), duration_s: Number(given.get("lasts")) };
}
