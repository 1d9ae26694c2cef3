// Texts from records are hostile input: whoever writes to a topic chooses them.
import { html } from "./html.js";

// Control characters, and those that turn the direction of the text around them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Return a text in which nothing hides: invisible characters become their numbers. */
export function visible(text) {
  return String(text).replace(
    UNSEEN,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
}

/** A name or text from a record: of its own direction, and cut by style where it is too long. */
export function Name({ text, long = false }) {
  const shown = visible(text);
  return html`<bdi class=${long ? "text" : "name"} title=${long ? undefined : shown}>${shown}</bdi>`;
}

/** Return a number and its noun. */
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
