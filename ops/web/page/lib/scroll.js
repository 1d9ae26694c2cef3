// A wide table scrolls by itself, by keyboard as well, so that the page does not.
import { html } from "./html.js";

export function Scroll({ label, children }) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${label}>${children}</div>`;
}
