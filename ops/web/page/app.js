// The frame of all pages: links, what is wrong with the source, and the page itself.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { html } from "./lib/html.js";
import { useDocument, useSource } from "./lib/recorded.js";
import { to, useRoute } from "./lib/router.js";
import { useStream } from "./lib/stream.js";
import { Name } from "./lib/text.js";
import { utc } from "./lib/time.js";
import { TimeBar } from "./lib/timebar.js";
import { PAGES } from "./pages/registry.js";

function App() {
  const { page: name, params } = useRoute();
  const source = useSource();
  const page = PAGES.find((p) => p.name === name);
  useEffect(() => {
    document.title = `${page?.title ?? "No such page"} · SkeletonHunter`;
  }, [page]);
  const { at, ...rest } = params;
  return html`
    <header>
      <span class="brand">SkeletonHunter</span>
      <nav aria-label="Pages">${PAGES.filter((p) => !p.hidden || p.name === name).map(
        (p) => html`<a href=${p.hidden ? to(name, params) : to(p.name)} aria-current=${p.name === name ? "page" : undefined}>${p.title}</a>`,
      )}</nav>
      ${source?.folder && html`<span class="recorded">Recording <${Name} text=${source.folder} /></span>`}
    </header>
    ${source?.span_ms && html`<${TimeBar} source=${source} page=${name} params=${rest} at=${Number(at ?? source.span_ms[1])} />`}
    <main id="main" tabindex="-1">
      ${!page
        ? html`<${Problem} title="No such page" what=${`There is no page ${name}.`} todo="Choose one above." />`
        : source === null
          ? html`<p class="loading" role="status">Loading…</p>`
          : source.live
            ? html`<${Live} key=${name + JSON.stringify(sent(page, rest))} page=${page} params=${rest} />`
            : source.ready
              ? html`<${Recorded} key=${name + JSON.stringify(sent(page, rest))} page=${page} params=${rest} source=${source} at=${at ?? String(source.span_ms[1])} />`
              : html`<p class="loading" role="status">Reading the recording…</p>`}
    </main>`;
}

/** Return the parameters that a page's document depends on; its own ones the page alone reads. */
function sent(page, params) {
  return Object.fromEntries(Object.entries(params).filter(([key]) => !page.own?.includes(key)));
}

function Live({ page, params }) {
  const { document: shown, trouble, connected, refused } = useStream(page.name, sent(page, params));
  return html`
    <${Connection} connected=${connected} refused=${refused} trouble=${trouble} />
    ${shown === null
      ? html`<p class="loading" role="status">${trouble.ready === false ? "Reading what is there…" : "Loading…"}</p>`
      : html`<${Shown} page=${page} shown=${shown} params=${params} at=${null} source=${null} />`}`;
}

function Recorded({ page, params, source, at }) {
  const { document: shown, problem } = useDocument(page.name, sent(page, params), at);
  return html`
    ${source.trouble && html`<${Banner} what=${source.trouble} todo="What stands before the damage is shown." quiet />`}
    ${problem &&
    (shown
      ? html`<${Banner} what=${problem.what} todo=${problem.todo} quiet />`
      : html`<${Problem} title="Not there" what=${problem.what} todo=${problem.todo} />`)}
    ${shown && html`<${Shown} page=${page} shown=${shown} params=${params} at=${Number(at)} source=${source} />`}
    ${!shown && !problem && html`<p class="loading" role="status">Loading…</p>`}`;
}

function Shown({ page, shown, params, at, source }) {
  return shown.unknown
    ? html`<${Problem} title="Not there" what=${shown.unknown.what} todo=${shown.unknown.todo} />`
    : html`<${page.render} document=${shown} params=${params} at=${at} source=${source} />`;
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
