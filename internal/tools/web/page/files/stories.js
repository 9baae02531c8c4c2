// The list of deletions, in progress and done.

import {follow, get} from "./api.js";
import {h, keyed, say, setAttribute, setText, show} from "./dom.js";
import {rateOf, summaryOf} from "./contract.js";
import {showProblem, showUnread} from "./notes.js";
import {capitalized, count, duration, many, policies, rate} from "./words.js";

const mostDone = 100;

/** stories shows the list. */
export async function stories(element, _, signal) {
  const all = new Map();
  const state = h("div");
  const sections = {
    open: section("In progress", "Nothing is being deleted now. What is asked to be deleted appears here at once."),
    done: section("Done", "No deletion has ended since the collector started."),
  };
  const unread = h("div");
  show(element, h("h1", null, "Deletions"),
    h("p", null, "Each row is one deletion that somebody asked for, with everything that goes with it."),
    state, sections.open.element, sections.done.element, unread);

  let isDrawn = false;
  const draw = () => {
    if (isDrawn) return;
    isDrawn = true;
    requestAnimationFrame(() => {
      isDrawn = false;
      const now = Date.now();
      const sorted = [...all.values()].sort((a, b) => b.began - a.began);
      fillSection(sections.open, sorted.filter((x) => !x.ended), now);
      fillSection(sections.done, sorted.filter((x) => x.ended), now);
    });
  };
  const timer = setInterval(draw, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));

  let first;
  try {
    first = await get("v1/stories", null, signal);
  } catch (error) {
    if (error.status !== 404 && error.status !== 403) throw error;
    // The page may be newer than the server.
    show(element, h("h1", null, "Deletions"), h("div", {class: "note"}, h("p", null, "This server does not tell of deletions one by one: " + error.message)),
      h("p", null, "What hangs is under ", h("a", {href: "#/health"}, "Health"), ", and what a deletion would do under ", h("a", {href: "#/preview"}, "Before you delete"), "."));
    return;
  }
  for (const item of first.items) all.set(item.id, summaryOf(item));
  showUnread(unread, first.unread);
  draw();
  await follow("v1/stories/watch", null, signal, (event, data) => {
    if (event === "removed") all.delete(data.id);
    else if (event === "story") {
      const now = summaryOf(data);
      const before = all.get(now.id);
      all.set(now.id, now);
      if (!before) say(`${capitalized(now.title)} is being deleted`);
      else if (now.ended && !before.ended) say(`${capitalized(now.title)} is gone`);
    }
    draw();
  }, (problem) => showProblem(state, problem));
}

function section(title, empty) {
  const body = h("tbody", {role: "rowgroup"});
  const table = h("table", {class: "cards", role: "table", "aria-label": title},
    h("thead", {role: "rowgroup"}, h("tr", {role: "row"}, columns.map((c) => h("th", {scope: "col", role: "columnheader", class: c.number ? "number" : null}, c.name)))), body);
  const scroll = h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": title}, table);
  const none = h("p", {class: "quiet"}, empty);
  const more = h("p", {class: "quiet"});
  return {element: h("section", null, h("h2", null, title), scroll, none, more), scroll, body, none, more};
}

// The columns: what is deleted comes first, and is the heading of its row.
const columns = [
  {name: "Deleted"},
  {name: "How", text: (x) => x.policy, title: (x) => policies[x.policy] ?? ""},
  {name: "Asked by", text: (x) => x.by},
  {name: "Gone", number: true, text: (x) => count(x.gone)},
  {name: "Waiting", number: true, text: (x) => count(x.waiting)},
  {name: "Stays", number: true, text: (x) => count(x.kept)},
  {name: "Time", number: true, text: (x, now) => duration(((x.ended ?? now) - x.began) / 1000)},
  {name: "Rate", number: true, text: (x) => rate(rateOf(x))},
  {name: "Waits for", text: (x) => x.waitsFor},
];

function fillSection(part, items, now) {
  const some = items.slice(0, mostDone);
  part.scroll.hidden = items.length === 0;
  part.none.hidden = items.length > 0;
  setText(part.more, items.length > some.length ? `These are the last ${some.length} of ${count(items.length)}.` : "");
  keyed(part.body, some, (x) => x.id, makeRow, (row, x) => changeRow(row, x, now));
}

function makeRow(x) {
  return h("tr", {role: "row"},
    h("th", {scope: "row", role: "rowheader"}, h("a", {href: "#/story/" + encodeURIComponent(x.id)}, x.title), h("div", {class: "quiet"})),
    columns.slice(1).map((c) => h("td", {role: "cell", class: c.number ? "number" : null, "data-label": c.name})));
}

function changeRow(row, x, now) {
  const [name, ...cells] = row.children;
  setText(name.firstChild, x.title);
  setText(name.lastChild, x.more > 0 ? "and " + many(x.more, "other") : "");
  for (const [n, cell] of cells.entries()) {
    const column = columns[n + 1];
    setText(cell, column.text(x, now) ?? "");
    if (column.title) setAttribute(cell, "title", column.title(x));
  }
}
