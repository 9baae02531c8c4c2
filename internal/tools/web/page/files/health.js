// What hinders the collector, and which deletions hang.

import {get, pause, post} from "./api.js";
import {copyButton, h, say, show} from "./dom.js";
import {isStuck} from "./contract.js";
import {showProblem, showUnread} from "./notes.js";
import {capitalized, count, duration, many, moment, nameOf} from "./words.js";

const interval = 2000;
const protectedInterval = 20_000;

/** health shows the state of the collector, and asks again every two seconds. */
export async function health(element, _, signal) {
  const problem = h("div");
  const parts = {collector: h("section"), brake: h("section"), stuck: h("section"), unread: h("section"), kept: h("section"), left: h("div")};
  show(element, h("h1", null, "Health"), problem, ...Object.values(parts));
  watchProtected(parts.kept, signal);
  let before = "";
  while (!signal.aborted) {
    try {
      const [status, deletions] = await Promise.all([get("v1/status", null, signal), get("v1/deletions", null, signal)]);
      showProblem(problem, "");
      // What has not changed stays, with the focus that may be in it; ages are as of the change.
      const now = JSON.stringify([status.synced, status.observeOnly, status.graph, status.queue.length > 0, status.paused, status.barrier, unreadOf(status), deletions.items]);
      if (now !== before) showAll(parts, status, deletions, () => { before = ""; });
      if (before !== "" && now !== before) say("Health has changed");
      before = now;
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      showProblem(problem, error.message);
    }
    await pause(interval, signal);
  }
}

// watchProtected shows what is protected, and asks again now and then: it takes a request for each object.
async function watchProtected(element, signal) {
  let before = "";
  while (!signal.aborted) {
    try {
      const found = await get("v1/protected", null, signal);
      const now = JSON.stringify(found);
      if (now !== before) show(element, h("h2", null, "What is protected"), protectedOf(found));
      before = now;
    } catch (error) {
      if (signal.aborted || error.status === 401) return; // the view says so
      before = "";
      show(element, h("h2", null, "What is protected"), h("p", null, capitalized(error.message)));
    }
    await pause(protectedInterval, signal);
  }
}

const modes = {
  always: "nobody deletes it", cascading: "it goes only if it is named: not with its owner, nor with its namespace",
  unused: "it stays while anything needs it",
};

function protectedOf(found) {
  const defaults = found.defaults ?? [];
  const confirm = found.confirm && h("p", null, "Larger deletions need a confirmation: ", h("code", null, found.confirm));
  if (found.items.length + defaults.length === 0) return [confirm, h("p", null, "Nothing is. ", h("span", {class: "quiet"}, "To keep something: ", h("code", null, "coppice protect TYPE/NAME"))), unreadIn(found)];
  const how = (x) => {
    if (x.invalid) return `nobody deletes it: its mode ${x.mode} cannot be understood: ${x.invalid}`;
    if (x.unchecked) return `nobody deletes it: what it outlives counts as there, as ${x.unchecked}`;
    return x.mode === "outlives" ? "it stays as long as any of these is there: " + x.outlives.join(", ") : modes[x.mode] ?? "nobody deletes it";
  };
  return [
    confirm, defaults.length > 0 && h("ul", null, defaults.map((x) => h("li", null, `All ${x.resource}, by default `, h("span", {class: "quiet"}, `(${x.mode}: ${modes[x.mode] ?? modes.always})`)))),
    found.items.length > 0 && h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "What is protected"},
      h("table", {class: "cards", role: "table"},
        h("thead", {role: "rowgroup"}, h("tr", {role: "row"}, ["Object", "Mode", "What it means"].map((t) => h("th", {scope: "col", role: "columnheader"}, t)))),
        h("tbody", {role: "rowgroup"}, found.items.map((x) => h("tr", {role: "row"}, h("th", {scope: "row", role: "rowheader"}, nameOf(x)),
          h("td", {role: "cell", "data-label": "Mode"}, x.mode), h("td", {role: "cell", "data-label": "What it means"}, how(x))))))),
    found.more > 0 && h("p", {class: "quiet"}, `${many(found.more, "more object")} besides.`),
    h("p", {class: "quiet"}, "To let one go: ", h("code", null, "coppice unprotect TYPE/NAME")), unreadIn(found),
  ];
}

function unreadIn(found) {
  const element = h("div");
  showUnread(element, found.unread);
  return element;
}

function unreadOf(status) { return status.resources.filter((r) => r.state !== "synced"); }

function showAll(parts, status, deletions, changed) {
  show(parts.collector, collectorOf(status));
  show(parts.brake, h("h2", null, "The brake"), brakeOf(status, changed));
  show(parts.stuck, h("h2", null, "Deletions that take long"), stuckOf(deletions.items));
  show(parts.unread, h("h2", null, "Kinds that cannot be read"), unreadable(status));
  showUnread(parts.left, [...new Set([...(status.unread ?? []), ...(deletions.unread ?? [])])]);
}

function collectorOf(status) {
  const facts = [
    ["Collector", status.observeOnly ? "only observes: it changes nothing" : status.synced ? "works" : "has not read everything yet"],
  ];
  if (!status.unread?.length) { // the counts are of all objects: others do not get them
    facts.push(["Objects", count(status.graph.objects)], ["Owner references", count(status.graph.references)], ["Queued", count(status.queue.length)]);
  }
  return h("dl", {class: "facts"}, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function brakeOf(status, changed) {
  if (status.paused.length === 0) {
    return h("p", null, "Nothing is paused. ", h("span", {class: "quiet"}, "With a limit set, the collector stops by itself when too large a part of a kind would be deleted at once."));
  }
  return status.paused.map((p) => {
    const answer = h("div", {role: "status"});
    const button = h("button", {type: "button", class: "danger", onclick: async () => {
      if (!confirm(`Deletions of ${p.kind} go on as soon as you agree. Is it right that they are deleted?`)) return;
      button.disabled = true;
      try {
        await post("v1/resume", {kind: p.kind});
        show(answer, h("p", null, "They go on."));
        changed();
      } catch (error) {
        button.disabled = false;
        show(answer, h("p", null, capitalized(error.message)));
      }
    }}, `Go on deleting ${p.kind}`);
    return h("div", {class: "note bad"},
      h("p", null, h("strong", null, `Deletions of ${p.kind} are paused`), ` since ${moment(new Date(p.since))}: ${count(p.deleted)} of ${count(p.objects)} were deleted in a short time. Find out whether that was meant, before they go on.`),
      h("p", null, button), answer);
  });
}

// stuckOf ranks deletions: what is stuck comes first, and of that what has waited longest.
function stuckOf(groups) {
  if (groups.length === 0) return h("p", null, "Nothing waits.");
  return groups.map((g) => h("div", {class: "note " + (isStuck(g.leaf) ? "bad" : "late")},
    h("p", null, h("strong", null, capitalized(g.leaf.state)), ": " + g.leaf.says,
      g.leaf.since ? `, for ${duration((Date.now() - new Date(g.leaf.since)) / 1000)}` : ""),
    (g.leaf.waits ?? []).map((w) => h("p", {class: "quiet"}, w.says)),
    (g.leaf.next ?? []).map((step) => h("div", null, h("p", null, "Next: " + step.says),
      step.command && h("div", {class: "row"}, h("code", null, step.command), copyButton("Copy", () => step.command)))),
    h("details", null, h("summary", null, many(g.objects.length, "object waits", "objects wait") + " for it"),
      h("ul", null, g.objects.slice(0, 50).map((o) => h("li", null, nameOf(o))), g.objects.length > 50 && h("li", null, count(g.objects.length - 50) + " more")))));
}

function unreadable(status) {
  const rows = [
    ...unreadOf(status).map((r) => [r.kind, r.state === "waiting" ? "is being read" : "cannot be read", r.error ?? "", r.since]),
    ...status.barrier.flatMap((b) => (b.holds ?? []).map((x) => [b.owner, `waits for proof that nothing of ${x.what} was missed`, x.why, b.since])),
  ];
  if (rows.length === 0) return h("p", null, "All kinds are read.");
  return [
    h("p", null, "While a kind cannot be read, owners that may have dependents of it wait: nothing is deleted or released on a guess."),
    h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Kinds that cannot be read"},
      h("table", {class: "cards", role: "table"},
        h("thead", {role: "rowgroup"}, h("tr", {role: "row"}, ["Kind", "State", "Why", "Since"].map((t) => h("th", {scope: "col", role: "columnheader"}, t)))),
        h("tbody", {role: "rowgroup"}, rows.map(([kind, state, why, since]) => h("tr", {role: "row"}, h("th", {scope: "row", role: "rowheader"}, kind),
          h("td", {role: "cell", "data-label": "State"}, state), h("td", {role: "cell", "data-label": "Why"}, why), h("td", {role: "cell", "data-label": "Since"}, moment(new Date(since)))))))),
  ];
}
