// How the page asks the API. The token stays in this module: in no storage, no address, no text.

import { reader } from "./sse.js";

let token = "";

export class Refused extends Error {
  constructor(status, reason, detail) {
    super(detail ? `${reason}: ${detail}` : reason);
    this.status = status;
  }
}

export function useToken(text) {
  token = text;
}

async function ask(path, { method = "GET", body, as = token, signal } = {}) {
  const headers = {};
  if (as) headers.authorization = `Bearer ${as}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.reason ?? `status ${answer.status}`, problem.detail);
}

export async function get(path) {
  return (await ask(path)).json();
}

/** Not an error when it is not ready: the answer says so. */
export async function readiness() {
  const answer = await fetch("/readyz", { cache: "no-store" });
  return answer.json().catch(() => ({}));
}

export async function post(path, body, as) {
  return (await ask(path, { method: "POST", body, as: as || token })).json();
}

/** The events from now on, until the stream ends. `opened` is called once it is there. */
export async function* events(signal, opened) {
  const answer = await ask("/v1/events", { signal });
  opened();
  const read = reader();
  const text = new TextDecoder();
  const chunks = answer.body.getReader();
  for (;;) {
    const { done, value } = await chunks.read();
    if (done) return;
    yield* read(text.decode(value, { stream: true }));
  }
}
