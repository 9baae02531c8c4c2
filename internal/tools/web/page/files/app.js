// The addresses of the views, and the way in.

import {enter, hasDemo, hasToken, Refused, useToken} from "./api.js";
import {h, show} from "./dom.js";
import {guess} from "./guess.js";
import {health} from "./health.js";
import {preview} from "./preview.js";
import {stories} from "./stories.js";
import {story} from "./story.js";

// A view fills an element, and goes on until its signal aborts. Its heading is the first h1 in it.
const views = [
  {path: "stories", name: "Deletions", view: stories},
  {path: "story", view: story, below: "stories"},
  {path: "preview", name: "Before you delete", view: preview},
  {path: "health", name: "Health", view: health},
  {path: "demo", name: "Guess what happens", view: guess, isOffered: hasDemo},
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let leave = new AbortController();
let isFirst = true;

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address belongs to the views
  main.focus();
});
addEventListener("hashchange", () => go());
begin();

async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    // The token is out of the address, and of the history, before anything else happens.
    history.replaceState(null, "", location.pathname);
    try {
      await enter(token);
    } catch (error) {
      return locked(error);
    }
    if (hasDemo()) history.replaceState(null, "", "#/demo");
  }
  go();
}

// go shows the view of the address.
async function go() {
  leave.abort();
  leave = new AbortController();
  const signal = leave.signal;
  const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const found = views.find((v) => v.path === path) ?? views[0];
  showNav(found);
  const element = h("div");
  show(main, element);
  window.scrollTo(0, 0);
  try {
    const running = found.view(element, rest, signal);
    focusHeading(element);
    await running;
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Refused && error.status === 401) return locked(error);
    show(element, h("h1", null, "This cannot be shown"), h("div", {class: "note bad", role: "alert"}, h("p", null, error.message)),
      h("p", null, h("button", {type: "button", onclick: () => go()}, "Try again")));
    focusHeading(element);
    if (!(error instanceof Refused)) console.error(error);
  }
}

// focusHeading puts the focus on the heading of a new view, so that screen readers begin there; not on that of the
// first one, where browsers begin at the top.
function focusHeading(element) {
  const heading = element.querySelector("h1");
  if (!heading) return;
  document.title = heading.textContent + " – Coppice";
  heading.tabIndex = -1;
  if (!isFirst) heading.focus();
  isFirst = false;
}

function showNav(current) {
  const items = views.filter((v) => v.name && (v.isOffered?.() ?? true));
  show(nav, h("ul", null, items.map((v) => h("li", null, h("a", {
    href: "#/" + v.path, "aria-current": v === current || current.below === v.path ? "page" : null,
  }, v.name)))));
}

// locked says how to get in.
function locked(error) {
  const element = h("div");
  show(main, element);
  if (error.way === "link") {
    show(element, h("h1", null, "Open a link to get in"),
      h("div", {class: "note", role: "alert"}, h("p", null, capital(error.message))),
      h("p", null, "In the terminal where ", h("code", null, "coppice web"), " runs, press Enter for a new link, or start it again. The page shows what you may see, and nothing else."));
    return focusHeading(element);
  }
  const input = h("input", {id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true});
  show(element, h("h1", null, "Who are you?"),
    hasToken() && h("div", {class: "note bad", role: "alert"}, h("p", null, "That token was not accepted: " + error.message)),
    h("p", null, "This server shows each person what they may list. Send it a bearer token that its API server accepts, for example one that ",
      h("code", null, "kubectl create token NAME"), " prints. It is kept in the memory of this page, and forgotten when you close it."),
    h("form", {class: "fields", onsubmit: (event) => {
      event.preventDefault();
      useToken(input.value.trim());
      go();
    }}, h("div", {class: "wide"}, h("label", {for: "token"}, "Bearer token"), input), h("button", {class: "first"}, "Go on")),
    h("p", {class: "quiet"}, "Easier: run ", h("code", null, "coppice web"), " on your machine. It opens this page with the rights of your kubeconfig."));
  focusHeading(element);
}

function capital(text) { return text.slice(0, 1).toUpperCase() + text.slice(1); }
