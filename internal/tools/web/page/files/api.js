// Who asks, requests, and streams of events.
//
// There are two ways in. A link of "coppice web" has a token in its fragment, which is exchanged once for a
// session: a cookie, and a key that is kept in this origin's storage. Without a link, the server wants a bearer
// token, which is kept in memory only, and forgotten with the page; or it knows the browser's certificate.

const keyName = "coppice-key";
const demoName = "coppice-demo";
const who = {token: ""};

/** Refused is an answer that is no success. */
export class Refused extends Error {
  constructor(status, text, way) {
    super(text);
    this.status = status;
    this.way = way; // "link" or "token": how to get in, if nobody knows who asks
  }
}

/** enter exchanges the token of a link for a session. */
export async function enter(token) {
  if (stored() && await isIn()) return; // the link was opened again in the same browser
  const answer = await fetch(address("session"), {
    method: "POST", body: JSON.stringify({token}), headers: {"Content-Type": "application/json"},
  }).catch((error) => { throw new Refused(0, "the server did not answer: " + error.message, "link"); }); // the token works once
  if (!answer.ok) throw new Refused(answer.status, await answer.text(), "link");
  const session = await answer.json();
  localStorage.setItem(keyName, session.key);
  localStorage.setItem(demoName, session.demo ? "yes" : "");
}

/** hasDemo reports whether the server plays stories. */
export function hasDemo() { return stored() !== "" && stored(demoName) === "yes"; }

async function isIn() {
  try {
    await get("v1/status");
    return true;
  } catch (error) {
    return !(error instanceof Refused && error.status === 401);
  }
}

function stored(name = keyName) {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return ""; // storage is switched off: there are no sessions then
  }
}

/** useToken sends a bearer token from now on. */
export function useToken(token) { who.token = token; }

/** hasToken reports whether a bearer token was typed. */
export function hasToken() { return who.token !== ""; }

function address(path, query) {
  const url = new URL(path, document.baseURI.split("#")[0]);
  for (const [key, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) if (one !== undefined && one !== "") url.searchParams.append(key, one);
  }
  return url;
}

function headers(more) {
  const all = {Accept: "application/json", ...more};
  if (who.token) all.Authorization = "Bearer " + who.token;
  else if (stored()) all["X-Coppice-Key"] = stored();
  return all;
}

async function ask(path, query, options = {}) {
  const answer = await fetch(address(path, query), {
    ...options, headers: headers(options.headers), cache: "no-store", credentials: "same-origin",
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  throw new Refused(answer.status, says(text) || answer.statusText, answer.headers.get("WWW-Authenticate") === "Link" ? "link" : "token");
}

// says returns the message of an error, which API servers wrap in a Status.
function says(text) {
  try {
    return JSON.parse(text).message ?? "";
  } catch {
    return text.trim();
  }
}

/** get returns an answer. */
export function get(path, query, signal) {
  return again(signal, async () => (await ask(path, query, {signal})).json());
}

/** text returns an answer that is no JSON. */
export function text(path, query, signal) {
  return again(signal, async () => (await ask(path, query, {signal, headers: {Accept: "text/plain"}})).text());
}

// again reads an answer, twice more if the connection breaks: fetch then throws a TypeError.
async function again(signal, read) {
  for (const wait of [250, 1000]) {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof TypeError) || signal?.aborted) throw error;
    }
    await pause(wait, signal);
  }
  return read();
}

/** post changes something, and returns what is said about it. */
export async function post(path, query, body) {
  const options = {method: "POST"};
  if (body !== undefined) Object.assign(options, {body: JSON.stringify(body), headers: {"Content-Type": "application/json"}});
  return (await ask(path, query, options)).text();
}

/**
 * follow calls visit(event, data) with server-sent events until the signal aborts. A stream that ends is asked for
 * again, from the last event; one that breaks, too, after a while. state(problem) tells whether events come: "" or
 * why not.
 */
export async function follow(path, query, signal, visit, state = () => {}) {
  let last = "";
  let wait = 250;
  while (!signal.aborted) {
    try {
      const answer = await ask(path, query, {signal, headers: {Accept: "text/event-stream", ...(last && {"Last-Event-ID": last})}});
      state("");
      for await (const event of events(answer.body)) {
        wait = 250;
        if (event.id) last = event.id;
        visit(event.name, JSON.parse(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
      state(error.message || "the connection is lost");
      wait = Math.min(wait * 2, 10_000);
    }
    await pause(wait, signal);
  }
}

/** pause waits for a time, or for the signal. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, {once: true});
  });
}

// events reads server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    let begin = 0;
    for (let end; (end = text.indexOf("\n\n", begin)) >= 0; begin = end + 2) {
      const event = {name: "message", id: "", data: ""};
      for (const line of text.slice(begin, end).split("\n")) {
        const colon = line.indexOf(":");
        const [field, rest] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
        if (field === "event") event.name = rest;
        else if (field === "id") event.id = rest;
        else if (field === "data") event.data += rest;
      }
      if (event.data) yield event;
    }
    text = text.slice(begin);
  }
}
