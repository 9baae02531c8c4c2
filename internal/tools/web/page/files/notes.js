// What views say beside their contents.

import {h, show} from "./dom.js";

/** showProblem says that no changes come, until they do again. */
export function showProblem(element, problem) {
  show(element, problem && h("div", {class: "note late", role: "status"}, h("p", null, "No changes come from the server: " + problem + ". Trying again…")));
}

/** showUnread says what was left out. */
export function showUnread(element, unread) {
  show(element, unread?.length > 0 && h("details", null,
    h("summary", null, "Some objects may not be shown"),
    h("ul", null, unread.map((line) => h("li", null, line)))));
}
