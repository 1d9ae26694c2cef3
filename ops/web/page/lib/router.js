// Addresses: `/<page>?<parameters>`, so that every view can be shared.
import { useEffect, useState } from "preact/hooks";

function here() {
  const path = location.pathname.split("/").filter(Boolean);
  return { page: path[0] ?? "now", params: Object.fromEntries(new URLSearchParams(location.search)) };
}

/** Return the address of a page; the time of a recording that is looked at stays. */
export function to(page, params = {}) {
  const { at } = here().params;
  const given = Object.entries(at ? { at, ...params } : params).filter(([, value]) => value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `/${page}${query ? `?${query}` : ""}`;
}

/** Go to a page; `replace` leaves no trace in the history. */
export function go(page, params, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", to(page, params));
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Give the address; links within the site do not load the page anew. */
export function useRoute() {
  const [route, setRoute] = useState(here());
  useEffect(() => {
    const changed = () => setRoute(here());
    const clicked = (event) => {
      const link = event.target.closest?.("a[href^='/']");
      const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
      if (!link || !plain || link.target || link.hasAttribute("download")) return;
      event.preventDefault();
      history.pushState(null, "", link.getAttribute("href"));
      changed();
      document.getElementById("main")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    };
    addEventListener("popstate", changed);
    document.addEventListener("click", clicked);
    return () => {
      removeEventListener("popstate", changed);
      document.removeEventListener("click", clicked);
    };
  }, []);
  return route;
}
