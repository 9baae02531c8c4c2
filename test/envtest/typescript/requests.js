// Requests to the API server, by what node has: no client library stands between.
import https from "node:https";
import { setTimeout as delay } from "node:timers/promises";

const patience = 30_000; // milliseconds

// request returns the object of the answer. It fails with the status of any other answer.
export function request(config, method, path, body) {
  return new Promise((resolve, reject) => {
    const sent = https.request(new URL(path, config.server), {
      method,
      agent: false, // nothing is kept open when the server stops
      ca: config.caPem,
      cert: config.certPem,
      key: config.keyPem,
      headers: body ? { "Content-Type": "application/json" } : {},
    }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (part) => { text += part; });
      answer.on("error", reject);
      answer.on("end", () => {
        if (answer.statusCode < 300) {
          resolve(path.startsWith("/readyz") ? text : JSON.parse(text));
          return;
        }
        const error = new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
        reject(Object.assign(error, { status: answer.statusCode }));
      });
    });
    sent.on("error", reject);
    sent.end(body && JSON.stringify(body));
  });
}

// eventuallyGone waits until an object is not found.
export async function eventuallyGone(config, path) {
  let last;
  for (const end = Date.now() + patience; Date.now() < end; await delay(20)) {
    try {
      last = await request(config, "GET", path);
    } catch (error) {
      if (error.status === 404) return;
      last = error;
    }
  }
  throw new Error(`${path} is still there`, { cause: last });
}
