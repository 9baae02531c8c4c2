// The stories of coppice demo: what is about to happen, a guess, and who was right, above the deletion as it happens.

import {follow, get, pause, post} from "./api.js";
import {summaryOf} from "./contract.js";
import {h, say, show} from "./dom.js";
import {showProblem} from "./notes.js";
import {StoryView} from "./story.js";
import {many} from "./words.js";

/** guess shows the stories that the server plays. */
export async function guess(element, _, signal) {
  const view = {problem: h("div"), head: h("div"), ask: h("div"), picture: h("div")};
  show(element, h("h1", null, "Guess what happens"), view.problem, view.head, view.ask, view.picture);
  let shown = "";
  let playing = null; // what ends the picture of the story before
  await follow("demo/watch", null, signal, (event, state) => {
    if (event !== "state") return;
    writeHead(view.head, state);
    const ask = JSON.stringify([state.number, state.question, state.isResting, state.ended]);
    if (ask !== shown) {
      const hadFocus = view.ask.contains(document.activeElement);
      writeAsk(view.ask, state);
      if (hadFocus) view.ask.querySelector("h2")?.focus();
      shown = ask;
    }
    const story = state.stories[state.story];
    if (story && playing?.name !== story.name) {
      playing?.leave.abort();
      playing = {name: story.name, leave: new AbortController()};
      signal.addEventListener("abort", () => playing.leave.abort());
      show(view.picture);
      watchDeletion(view.picture, story, playing.leave.signal).catch((error) => { if (!signal.aborted) showProblem(view.problem, error.message); });
    }
  }, (problem) => showProblem(view.problem, problem));
}

function writeHead(element, state) {
  const story = state.stories[state.story];
  show(element,
    h("p", null, "A control plane plays the main kinds of deletion, for real. Say first what will happen."),
    state.asked > 0 && h("p", null, h("strong", null, `You were right ${many(state.right, "time")} of ${state.asked}.`)),
    story && h("p", {class: "quiet"}, `Story ${state.story + 1} of ${state.stories.length}: ${story.title}`));
}

function writeAsk(element, state) {
  const q = state.question;
  if (state.ended) {
    say(state.ended);
    return show(element, h("div", {class: "note good"}, h("p", null, state.ended)), verdict(q));
  }
  const next = state.isResting && h("p", null, h("button", {type: "button", class: "first", onclick: () => send("demo/next", {number: state.number})}, "Go on"));
  if (!q) return show(element, h("p", null, state.isResting ? "" : "It is being set up…"), next);
  if (q.right !== undefined) return show(element, verdict(q), next);
  if (q.guess !== undefined) return show(element, h("h2", {tabindex: "-1"}, q.asks), h("pre", null, "$ " + q.command), h("p", null, "You say: " + q.choices[q.guess] + "."), h("p", null, "It happens now. Watch below."));
  say(q.asks);
  const form = h("form", {onsubmit: (event) => {
    event.preventDefault();
    const choice = new FormData(form).get("choice");
    if (choice !== null) send("demo/answer", {number: state.number, choice: Number(choice)});
  }},
  h("fieldset", null, h("legend", null, q.asks),
    q.choices.map((text, n) => h("div", {class: "choice"}, h("input", {type: "radio", name: "choice", id: "choice-" + n, value: n, required: true}), h("label", {for: "choice-" + n}, text)))),
  h("button", {class: "first"}, "That is my guess: go"));
  show(element, h("h2", {tabindex: "-1"}, "What will happen?"), h("pre", null, "$ " + q.command), form);
}

function verdict(q) {
  if (!q || q.right === undefined) return null;
  const isRight = q.guess === q.right;
  say(isRight ? "You were right" : "It came otherwise: " + q.choices[q.right]);
  return [
    h("h2", {tabindex: "-1"}, isRight ? "You were right" : "It came otherwise"),
    h("div", {class: "note " + (isRight ? "good" : "late")},
      h("p", null, "What happened: " + q.choices[q.right] + "."), !isRight && h("p", null, "You said: " + q.choices[q.guess] + "."), h("p", null, q.tells)),
  ];
}

async function send(path, body) {
  try {
    await post(path, null, body);
  } catch (error) {
    if (error.status !== 409) throw error; // somebody else was faster, in another tab
  }
}

// watchDeletion shows the newest deletion of a story, as soon as there is one.
async function watchDeletion(element, story, signal) {
  let id = "";
  while (!signal.aborted && !id) {
    const {items} = await get("v1/stories", null, signal);
    const of = items.map((x) => [x, summaryOf(x)]).filter(([x]) => x.root?.namespace === story.namespace || x.root?.name === story.namespace);
    of.sort((a, b) => b[1].began - a[1].began);
    id = of[0]?.[1].id ?? "";
    if (!id) await pause(150, signal);
  }
  if (signal.aborted) return;
  const view = new StoryView(id, signal, "h2");
  show(element, view.element);
  await view.run();
}
