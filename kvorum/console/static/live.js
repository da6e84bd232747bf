// Documents of the server: asked for once, or watched. A watched one comes whole, then as merge
// patches (RFC 7396).

const RETRY_MS = 1500;

/** What came within the page itself: the session, and the view that the address shows, if any. */
export const first = JSON.parse(document.getElementById("first").textContent);

/** The document at an address. Throws an Error with the server's sentence, `status` and `answer`. */
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
  if (!answer.ok) throw Object.assign(new Error(document.error), { status: answer.status, answer: document });
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
 * Watches a view. onDocument(document) at each change; onProblem(error) when the console does not
 * answer, or refuses the view. Returns a function that ends it.
 */
export function watch(view, parameters, { onDocument, onProblem }) {
  const query = new URLSearchParams(parameters).toString();
  // A thing that is not there is a document too: the stream tells when it appears.
  const look = () =>
    ask(`/api/view/${view}?${query}`).catch((error) => {
      if (error.answer?.absent) return error.answer;
      throw error;
    });
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
    source.addEventListener("gone", () => again(0));
    source.addEventListener("error", () => again());
  };

  // The browser's own way to try again gives up after some answers, and hides the reason.
  const again = (waitMs = RETRY_MS) => {
    source.close();
    if (isOver) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        await look();
        if (!isOver) open();
      } catch (error) {
        if (isOver) return;
        onProblem(error);
        again();
      }
    }, waitMs);
  };

  const given = first.view === view && first.query === query ? first.document : null;
  first.view = null; // it is right for one moment only
  (given ? Promise.resolve(given) : look())
    .then((document) => {
      if (isOver) return;
      onDocument(document);
      open();
    })
    .catch((error) => {
      if (isOver) return;
      onProblem(error);
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
