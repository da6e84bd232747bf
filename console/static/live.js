// Documents of the server: asked for once, or watched. A watched one comes whole, then as merge
// patches (RFC 7396).

const RETRY_MS = 1500;

/** What came within the page itself: the session, and the view that the address shows, if any. */
export const first = JSON.parse(document.getElementById("first").textContent);

/** The document at an address. Throws an Error with the server's sentence. */
export async function ask(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the console does not answer; is `kvorum console` still running?");
  }
  if (answer.status === 401 && first.session.user) location.assign("/sign-in"); // the session is over
  const document = await answer.json().catch(() => ({ error: `HTTP status ${answer.status}` }));
  if (!answer.ok) throw new Error(document.error);
  return document;
}

export function merge(target, patch) {
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) {
      delete target[key];
    } else if (isObject(value) && isObject(target[key])) {
      merge(target[key], value);
    } else {
      target[key] = value;
    }
  }
  return target;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Watches a view. onDocument(document) at each change; onProblem(sentence) when the console or the
 * thing itself is gone. Returns a function that ends it.
 */
export function watch(view, parameters, { onDocument, onProblem }) {
  const query = new URLSearchParams(parameters).toString();
  let source = null;
  let timer = null;
  let isOver = false;

  const open = () => {
    let held = null;
    source = new EventSource(`/api/events/${view}?${query}`);
    source.addEventListener("whole", (event) => {
      held = JSON.parse(event.data);
      onDocument(held);
    });
    source.addEventListener("patch", (event) => {
      if (held !== null) onDocument(merge(held, JSON.parse(event.data)));
    });
    source.addEventListener("gone", (event) => {
      onProblem(JSON.parse(event.data).error);
      again();
    });
    source.addEventListener("error", again);
  };

  // The browser's own way to try again gives up after some answers, and hides the reason.
  const again = () => {
    source.close();
    if (isOver) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        await ask(`/api/view/${view}?${query}`);
        if (!isOver) open();
      } catch (error) {
        if (isOver) return;
        onProblem(error.message);
        again();
      }
    }, RETRY_MS);
  };

  const given = first.view === view && first.query === query ? first.document : null;
  first.view = null; // it is right for one moment only
  (given ? Promise.resolve(given) : ask(`/api/view/${view}?${query}`))
    .then((document) => {
      if (isOver) return;
      onDocument(document);
      open();
    })
    .catch((error) => {
      if (isOver) return;
      onProblem(error.message);
      source = { close() {} };
      again();
    });

  return () => {
    isOver = true;
    clearTimeout(timer);
    source?.close();
  };
}

/** Carries out a change of the lab; returns the server's sentence. */
export async function change(action, node) {
  const answer = await ask(`/api/lab/${action}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ node }),
  });
  return answer.text;
}
