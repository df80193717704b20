// Requests to the bridge: one function for actions, one for streams. Both send a token that only this origin knows.

const TOKEN = "hubbub-token";
// The longest silence of the bridge is 5 s.
const SILENCE_MS = 15000;

/** A refusal by the bridge or the hub; `violations` pairs a field's path with its problem. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.reason = error.reason;
    this.metadata = error.metadata ?? {};
    this.violations = error.violations ?? [];
  }
}

/** Send a POST to the bridge, with the token of this browser; return a promise of the response. */
function post(path, args, options = {}) {
  return fetch(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-hubbub-token": localStorage.getItem(TOKEN) ?? "" },
    body: JSON.stringify(args),
    credentials: "same-origin",
    redirect: "error",
    ...options,
  });
}

/** Run an action of the bridge and return its result. Throws Refused; TypeError when the bridge cannot be reached. */
export async function runAction(action, args = {}, options = {}) {
  const response = await post(action, args, options);
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Refused(response.status, body.error ?? { reason: "REFUSED", message: `The bridge said ${response.status}.` });
  }
  return body;
}

/** Send an action while the page goes away, without waiting for its result. */
export function sendAction(action, args) {
  post(action, args, { keepalive: true }).catch(() => {});
}

/** Log in with a one-time link, and return the place it leads to, if it is one of a notification. Throws Refused when it is useless. */
export async function login(link) {
  const { token, to } = await runAction("login", { link });
  localStorage.setItem(TOKEN, token);
  return to;
}

/** Yield what the bridge streams, in batches of parsed lines, until it or `signal` ends the stream. Throws as `runAction` does. */
export async function* stream(path, args, signal = null) {
  const control = new AbortController();
  let timer = setTimeout(() => control.abort(), SILENCE_MS);
  try {
    const response = await post(path, args, { signal: signal ? AbortSignal.any([signal, control.signal]) : control.signal });
    if (!response.ok) throw new Refused(response.status, (await response.json()).error);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      timer = setTimeout(() => control.abort(), SILENCE_MS);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      if (lines.length) yield lines.map((line) => JSON.parse(line));
    }
  } finally {
    clearTimeout(timer);
    control.abort();
  }
}
