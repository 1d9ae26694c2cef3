// The frame of all pages: links, what is wrong with the source, and the page itself.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { html } from "./lib/html.js";
import { useRoute } from "./lib/router.js";
import { useStream } from "./lib/stream.js";
import { Name } from "./lib/text.js";
import { utc } from "./lib/time.js";
import { PAGES } from "./pages/registry.js";

function App() {
  const { page: name, params } = useRoute();
  const page = PAGES.find((p) => p.name === name);
  return html`
    <header>
      <span class="brand">SkeletonHunter</span>
      <nav aria-label="Pages">${PAGES.filter((p) => !p.hidden).map(
        (p) => html`<a href=${`/${p.name}`} aria-current=${p.name === name ? "page" : undefined}>${p.title}</a>`,
      )}</nav>
    </header>
    <main id="main" tabindex="-1">
      ${page
        ? html`<${Live} key=${name + JSON.stringify(params)} page=${page} params=${params} />`
        : html`<${Problem} title="No such page" what=${`There is no page ${name}.`} todo="Choose one above." />`}
    </main>`;
}

function Live({ page, params }) {
  const { document: shown, trouble, connected, refused } = useStream(page.name, params);
  useEffect(() => {
    document.title = `${page.title} · SkeletonHunter`;
  }, [page.title]);
  return html`
    <${Connection} connected=${connected} refused=${refused} trouble=${trouble} />
    ${shown === null
      ? html`<p class="loading" role="status">${trouble.ready === false ? "Reading what is there…" : "Loading…"}</p>`
      : shown.unknown
        ? html`<${Problem} title="Not there" what=${shown.unknown.what} todo=${shown.unknown.todo} />`
        : html`<${page.render} document=${shown} params=${params} at=${null} />`}`;
}

function Connection({ connected, refused, trouble }) {
  if (refused) {
    return html`<${Banner} what=${refused.what ?? "The server refuses."} todo=${refused.todo ?? ""} />`;
  }
  if (!connected) {
    return html`<${Banner} what="The page's server does not answer: what is below may be old."
      todo="Is skeletonhunter web running? It is tried again by itself." quiet />`;
  }
  if (trouble.what) {
    return html`<${Banner} what=${`Since ${utc(trouble.since_ms)} UTC: ${trouble.what}`} todo=${trouble.todo} />`;
  }
  return null;
}

function Banner({ what, todo, quiet }) {
  return html`<div class=${quiet ? "banner quiet" : "banner"} role="alert">
    <p><strong><${Name} text=${what} long /></strong></p><p><${Name} text=${todo} long /></p></div>`;
}

function Problem({ title, what, todo }) {
  return html`<section class="problem"><h1>${title}</h1>
    <p><${Name} text=${what} long /></p><p><${Name} text=${todo} long /></p></section>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
