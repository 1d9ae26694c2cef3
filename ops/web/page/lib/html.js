// Markup in plain JavaScript: htm's templates bound to Preact. Whatever is put into a template is
// text, never markup.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
