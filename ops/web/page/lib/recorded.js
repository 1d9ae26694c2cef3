// What the server shows: live topics or a recording; and the documents of a recording at a time.
import { useEffect, useState } from "preact/hooks";

const RETRY_MS = 1000;

const LIVE = document.querySelector("meta[name=source]")?.content === "live" ? { live: true } : null;

/** Give what the server's source is, once it says so; null before. */
export function useSource() {
  const [source, setSource] = useState(LIVE);
  useEffect(() => {
    if (LIVE) return undefined;
    let timer = 0;
    let gone = false;
    async function ask() {
      try {
        const answer = await fetch("/api/source");
        const told = await answer.json();
        if (gone) return;
        if (answer.ok) setSource(told);
        // Without a token the server answers with the form that asks for it.
        if (answer.status === 401) location.reload();
        if (answer.ok && told.ready) return;
      } catch {
        // The server is away: tried again.
      }
      if (!gone) timer = setTimeout(ask, RETRY_MS);
    }
    ask();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, []);
  return source;
}

/** Give a page's document at a time of the recording, or what is wrong. */
export function useDocument(page, params, at) {
  const [state, setState] = useState({ document: null, problem: null });
  const address = `/api/pages/${page}?${new URLSearchParams({ ...params, at })}`;
  useEffect(() => {
    const asked = new AbortController();
    let timer = 0;
    async function ask() {
      try {
        const answer = await fetch(address, { signal: asked.signal });
        const told = await answer.json();
        setState(answer.ok ? { document: told, problem: null } : { document: null, problem: told });
      } catch (error) {
        if (error.name === "AbortError") return;
        const problem = { what: "The page's server does not answer.", todo: "It is tried again by itself." };
        setState((old) => ({ ...old, problem }));
        timer = setTimeout(ask, RETRY_MS);
      }
    }
    ask();
    return () => {
      asked.abort();
      clearTimeout(timer);
    };
  }, [address]);
  return state;
}
