// One deletion: its picture, live or as it was at any moment, and what it waits for.

import {follow, get, Refused, text} from "./api.js";
import {copyButton, downloadButton, h, say, setAttribute, setText, show} from "./dom.js";
import {isStuck, keepersOf, leavesOf, objectOf, rateOf, servedOf, summaryOf} from "./contract.js";
import {Model} from "./model.js";
import {Picture} from "./picture.js";
import {showProblem, showUnread} from "./notes.js";
import {capitalized, count, duration, many, moment, nameOf, policies, quoted, rate} from "./words.js";

/** story shows the deletion whose id is in the address. */
export async function story(element, [id = ""], signal) {
  const view = new StoryView(id, signal);
  show(element, view.element);
  try {
    await view.run();
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) throw error;
    show(element, h("h1", null, "This deletion is not known"),
      h("p", null, "It may be too long ago, the collector may have been started anew, or you may not list what was deleted."),
      h("p", null, h("a", {href: "#/stories"}, "All deletions")));
  }
}

const mostHolds = 3; // groups whose holds are explained
const holdsInterval = 10_000;

/** StoryView shows a story. Its changes come to apply. */
export class StoryView {
  constructor(id, signal, heading = "h1") {
    this.id = id;
    this.signal = signal;
    this.model = new Model();
    this.summary = null;
    this.isLive = true;
    this.heading = h(heading, null, "Deletion");
    this.isAlone = heading === "h1";
    this.loading = h("p", null, "Asking…");
    this.facts = h("dl", {class: "facts"});
    this.waits = h("div", {class: "note", hidden: true});
    this.holds = h("div");
    this.explained = {key: "", at: -Infinity, isStuck: false};
    this.undo = new Undo(signal);
    this.problem = h("div");
    this.unread = h("div");
    this.picture = new Picture(this.model, {label: "Owners left, dependents right"});
    this.scrubber = new Scrubber((at) => {
      this.isLive = at === null;
      this.at = at;
      this.draw();
    });
    this.element = h("article", null, this.heading, this.loading, this.facts, this.problem, this.waits, this.holds, this.picture.element, this.scrubber.element,
      h("div", {class: "row"},
        copyButton("Copy as text", () => this.asText()),
        downloadButton("Save as text", "deletion.txt", () => this.asText()),
        copyButton("Copy the address of this page", () => location.href)),
      this.undo.element, this.unread);
  }

  async asText() {
    const says = await text("v1/stories/" + encodeURIComponent(this.id), {format: "text"}, this.signal);
    return this.undo.command ? `${says}to undo it: ${this.undo.command}\n` : says;
  }

  async run() {
    const timer = setInterval(() => this.draw(), 1000); // ages, and grace periods
    this.signal.addEventListener("abort", () => clearInterval(timer));
    await follow("v1/stories/" + encodeURIComponent(this.id) + "/watch", null, this.signal,
      (event, data) => this.apply(event, data), (problem) => showProblem(this.problem, problem));
  }

  /** apply takes an event of the server. */
  apply(event, data) {
    if (event === "story" || event === "snapshot") this.summarize(data);
    const objects = event === "objects" ? data : event === "snapshot" ? data.objects : [];
    for (const item of objects ?? []) {
      for (const keeper of keepersOf(item)) if (!this.model.objects.has(keeper.uid)) this.model.put(keeper);
      this.model.put(objectOf(item));
    }
    this.draw();
  }

  summarize(data) {
    const before = this.summary;
    this.summary = summaryOf(data);
    this.model.setRoots(this.summary.roots);
    this.model.span(this.summary.began);
    if (this.summary.ended) this.model.span(this.summary.ended);
    if (data.unread) showUnread(this.unread, data.unread);
    if (before && !before.ended && this.summary.ended) say(`${capitalized(this.summary.title)} is gone`);
    else if (before && before.waitsFor !== this.summary.waitsFor && this.summary.waitsFor) say("Waits for " + this.summary.waitsFor);
  }

  // draw shows everything anew, once for the next frame.
  draw() {
    if (this.isDrawn) return;
    this.isDrawn = true;
    requestAnimationFrame(() => {
      this.isDrawn = false;
      if (this.signal.aborted || !this.summary) return;
      const now = Date.now();
      this.writeFacts(now);
      // The clock of the server may be ahead of the browser's.
      const sums = this.picture.draw(this.isLive ? Math.max(now, this.model.ends ?? 0) : this.at);
      this.scrubber.show(this.model, this.summary, sums);
      if (this.model.stale) this.draw();
      this.explainHolds();
      this.undo.look(this.summary);
    });
  }

  // held returns an object of each group that finalizers hold; or else, if nothing goes any more, what was asked for and
  // is still there.
  held() {
    const held = this.model.found.groups.filter((g) => g.counts?.held > 0 && g.members[0].holds.length > 0).slice(0, mostHolds)
      .map((g) => g.members.find((o) => o.gone === null) ?? g.members[0]);
    const x = this.summary;
    if (held.length > 0 || x.ended || x.waiting === 0 || rateOf(x) > 0) return held;
    return this.model.roots.map((uid) => this.model.objects.get(uid)).filter((o) => o && o.gone === null).slice(0, 1);
  }

  // explainHolds asks who serves the finalizers that hold something, and what else is waited for, whenever that changes,
  // and now and then.
  async explainHolds() {
    const held = this.held();
    const key = held.map((o) => o.uid).join();
    if (key === this.explained.key && (key === "" || performance.now() - this.explained.at < holdsInterval)) return;
    this.explained = {...this.explained, key, at: performance.now()};
    if (key === "") {
      this.explained.isStuck = false;
      return show(this.holds);
    }
    let items = [];
    try {
      items = (await get("v1/explain", {uid: held.map((o) => o.uid)}, this.signal)).items;
    } catch {
      return; // it is gone meanwhile, or may not be explained; the picture names the finalizer
    }
    if (key !== this.explained.key) return;
    this.explained.isStuck = items.some(isStuck);
    for (const x of items) for (const one of servedOf(x)) this.model.serve(x.object.kind, one.finalizer, one.by, one.says);
    this.draw();
    show(this.holds, items.map((x) => h("div", {class: "note " + (isStuck(x) ? "bad" : "late")},
      h("p", null, h("strong", null, nameOf(x.object)), ": " + x.waits.map((w) => w.says).join("; ")),
      x.waits.flatMap((w) => w.waits ?? []).slice(0, mostHolds).map((w) => h("p", null, [w, ...leavesOf(w.waits ?? [])].map((l) => l.says).join(": "))),
      leavesOf(x.waits).flatMap((w) => w.next ?? []).slice(0, 1).map((step) => h("div", null, h("p", {class: "quiet"}, "Next: " + step.says),
        step.command && h("div", {class: "row"}, h("code", null, step.command), copyButton("Copy", () => step.command)))))));
  }

  writeFacts(now) {
    const x = this.summary;
    this.loading.hidden = true;
    setText(this.heading, capitalized(x.title));
    if (this.isAlone && document.title !== x.title + " – Coppice") document.title = x.title + " – Coppice";
    const all = [
      ["State", x.ended ? "Done" : this.explained.isStuck ? "Stuck" : "In progress"],
      ["How", x.policy, policies[x.policy]],
      ["Asked by", x.by || "not known"],
      ["Gone", count(x.gone)], ["Waiting", count(x.waiting)], ["Stay", count(x.kept)],
      [x.ended ? "Took" : "For", duration(((x.ended ?? now) - x.began) / 1000)],
      ["Began", moment(new Date(x.began))],
      ["Rate", rate(rateOf(x))],
    ].filter(([, value]) => value);
    if (this.facts.children.length !== all.length) show(this.facts, all.map(() => h("div", null, h("dt"), h("dd"))));
    for (const [n, [name, value, title]] of all.entries()) {
      const [dt, dd] = this.facts.children[n].children;
      setText(dt, name);
      setText(dd, value);
      if (title) setAttribute(dd, "title", title);
    }
    this.waits.hidden = !x.waitsFor;
    setAttribute(this.waits, "class", "note" + (this.explained.isStuck ? " bad" : ""));
    setText(this.waits, x.waitsFor ? "Waits for " + x.waitsFor : "");
  }
}

const undoInterval = 5_000;

// Undo says how to take a deletion back, if the server has kept what is gone.
class Undo {
  constructor(signal) {
    this.signal = signal;
    this.command = "";
    this.at = -Infinity;
    this.element = h("div");
  }

  // look asks for the root, once something is gone, until it is there, or until it is known that nothing is kept.
  async look({id, root, gone, ended}) {
    if (this.command || gone === 0 || performance.now() - this.at < undoInterval) return;
    this.at = performance.now();
    let list;
    try {
      list = await get("v1/deleted", {name: root.name, namespace: root.namespace ?? ""}, this.signal);
    } catch {
      this.at = Infinity; // the page may be newer than the server
      return;
    }
    if (list.off || ended) this.at = Infinity; // what is gone is kept at once
    if (!list.items.some((x) => x.uid === id)) return;
    this.command = "coppice undo " + quoted(id);
    show(this.element, h("h2", null, "To take it back"),
      h("p", null, "The server has kept what was deleted. The command makes it again, owners first, and says what cannot come back; with ", h("code", null, "--dry-run"), " it only says so."),
      h("div", {class: "row"}, h("code", null, this.command), copyButton("Copy the command", () => this.command)));
  }
}

/** Scrubber chooses a moment of a story, or plays it. */
export class Scrubber {
  constructor(onchoose) {
    this.onchoose = onchoose;
    this.range = h("input", {type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Moment of the deletion", oninput: () => this.choose()});
    this.output = h("output");
    this.play = h("button", {type: "button", onclick: () => (this.timer ? this.stop() : this.start())}, "Replay");
    this.live = h("button", {type: "button", onclick: () => { this.stop(); this.range.value = 1000; this.choose(); }}, "Now");
    this.element = h("div", {class: "scrubber", role: "group", "aria-label": "Replay"}, this.play, this.range, this.output, this.live);
  }

  show(model, summary, sums) {
    this.model = model;
    this.isDone = Boolean(summary.ended);
    const isNow = this.isNow();
    const at = this.at();
    const seconds = (at - model.begins) / 1000;
    const left = sums.there + sums.going + sums.held;
    setText(this.output, (isNow ? (this.isDone ? "the end" : "now") : "after " + duration(seconds)) + `: ${many(sums.gone, "object")} gone, ${count(left)} left`);
    setAttribute(this.range, "aria-valuetext", this.output.textContent);
    setText(this.live, this.isDone ? "The end" : "Now");
    this.live.disabled = isNow;
  }

  isNow() { return Number(this.range.value) >= 1000; }

  at() {
    const {begins, ends} = this.model;
    if (begins === null) return Date.now();
    return this.isNow() ? (this.isDone ? ends : Date.now()) : begins + (ends - begins) * Number(this.range.value) / 1000;
  }

  choose() { this.onchoose(this.isNow() ? null : this.at()); }

  // start replays the story from its beginning: in ten seconds, or in the time that it took if that is less.
  start() {
    if (!this.model) return;
    this.play.textContent = "Stop";
    const took = this.model.ends - this.model.begins;
    const length = Math.min(10_000, Math.max(took, 2000));
    const begin = performance.now();
    const step = (now) => {
      const part = (now - begin) / length;
      if (part >= 1) {
        this.range.value = 1000;
        this.choose();
        return this.stop();
      }
      this.range.value = Math.max(0, part) * 999;
      this.choose();
      this.timer = requestAnimationFrame(step);
    };
    this.timer = requestAnimationFrame(step);
  }

  stop() {
    cancelAnimationFrame(this.timer);
    this.timer = 0;
    this.play.textContent = "Replay";
  }
}
