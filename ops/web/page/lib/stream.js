// The document of a page, kept up to date by a stream that resumes where it broke off.
import { useEffect, useState } from "preact/hooks";
import { merged } from "./merge.js";

const RETRY_MS = 2000;

/**
 * Follow a page's document.
 *
 * Gives `{document, trouble, connected, refused}`: the document once it is there, what is wrong
 * with the server's source, whether the stream runs, and what the server refuses.
 */
export function useStream(page, params) {
  const address = `/api/stream/${page}?${new URLSearchParams(params)}`;
  const [state, setState] = useState({ document: null, trouble: {}, connected: false });
  useEffect(() => {
    let source = null;
    let timer = 0;
    let last = "";
    let gone = false;
    setState({ document: null, trouble: {}, connected: false });

    function open() {
      const after = last ? `&after=${encodeURIComponent(last)}` : "";
      source = new EventSource(address + after);
      source.addEventListener("state", (event) => {
        last = event.lastEventId;
        const document = JSON.parse(event.data);
        setState((old) => ({ ...old, document, connected: true, refused: undefined }));
      });
      source.addEventListener("patch", (event) => {
        last = event.lastEventId;
        const patch = JSON.parse(event.data);
        setState((old) => ({ ...old, document: merged(old.document, patch), connected: true }));
      });
      source.addEventListener("trouble", (event) => {
        const trouble = JSON.parse(event.data);
        setState((old) => ({ ...old, trouble, connected: true, refused: undefined }));
      });
      source.addEventListener("error", () => {
        setState((old) => ({ ...old, connected: false }));
        // A browser gives up after some errors; the page does not.
        if (source.readyState === EventSource.CLOSED && !gone) {
          timer = setTimeout(reopen, RETRY_MS);
        }
      });
    }

    // Why was it refused? A stream's error does not say.
    async function reopen() {
      try {
        const answer = await fetch(`/api/pages/${page}?${new URLSearchParams(params)}`);
        // Without a token the server answers with the form that asks for it.
        if (answer.status === 401) location.reload();
        if (!answer.ok) {
          const refused = await answer.json();
          setState((old) => ({ ...old, refused: { ...refused, status: answer.status } }));
        }
      } catch {
        // The server is away: tried again below.
      }
      if (!gone) open();
    }

    open();
    return () => {
      gone = true;
      clearTimeout(timer);
      source.close();
    };
  }, [address]);
  return state;
}
