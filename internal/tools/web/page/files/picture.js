// The picture of a story: owners left, dependents right, a box for each group of objects that are alike; and the same
// as a list. Both are changed in place, at most once for each frame that the browser draws.

import {h, s, keyed, setAttribute, setText, show} from "./dom.js";
import {stateNames, states, stateOf} from "./model.js";
import {count, duration, kindOf, list, many, moment, nameOf, plural} from "./words.js";

const box = {width: 250, height: 80, gapX: 76, gapY: 16, margin: 18};
const mostBoxes = 300; // more are drawn by no screen; the list has them all
const mostRows = 200;

/** Picture draws a model into an element. */
export class Picture {
  constructor(model, {label, names = stateNames}) {
    this.model = model;
    this.names = names;
    this.selected = null;
    this.edges = s("g", {"aria-hidden": "true"});
    this.boxes = s("g");
    this.svg = s("svg", {role: "group", "aria-label": label, onkeydown: (e) => this.key(e)}, this.edges, this.boxes);
    this.more = h("p", {class: "quiet"});
    this.outline = h("div", {class: "outline"});
    this.details = h("section", {"aria-live": "off", hidden: true, class: "selected"});
    this.element = h("div", null,
      h("div", {class: "picture", tabindex: "0", role: "region", "aria-label": label + ": the picture can be scrolled"}, this.svg),
      this.more, legend(names), this.details,
      h("details", {ontoggle: () => { this.isOutlined = false; this.draw(this.at); }}, h("summary", null, "The same as a list"), this.outline));
    this.list = this.element.lastChild;
  }

  /** draw shows the story as it was at a time. It returns how many objects are in which state. */
  draw(at) {
    this.at = at;
    const sums = this.model.counted(at);
    const {groups, edges} = this.model.found;
    const drawn = groups.length > mostBoxes ? groups.slice(0, mostBoxes) : groups;
    setText(this.more, groups.length > mostBoxes ? `${many(groups.length - mostBoxes, "more group")} in the list below.` : "");
    if (this.shown !== groups) this.resize(drawn, edges);
    keyed(this.boxes, drawn, (g) => g.key, (g) => this.newBox(g), (element, g) => this.change(element, g));
    for (const [element, edge] of this.lines ?? []) {
      setAttribute(element, "class", "edge" + (edge.blocking ? " blocking" : "") + (edge.to.state === "gone" ? " past" : ""));
    }
    if (this.list.open) this.writeOutline(groups);
    if (this.selected) this.writeDetails();
    return sums;
  }

  // resize draws the edges anew, and gives the boxes their places: there is another shape.
  resize(drawn, edges) {
    this.shown = this.model.found.groups;
    const isDrawn = new Set(drawn);
    const columns = Math.max(...drawn.map((g) => g.column), 0) + 1;
    const rows = Math.max(...drawn.map((g) => g.row), 0) + 1;
    const width = 2 * box.margin + columns * box.width + (columns - 1) * box.gapX;
    const height = 2 * box.margin + rows * box.height + (rows - 1) * box.gapY;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.lines = edges.filter((e) => isDrawn.has(e.from) && isDrawn.has(e.to)).map((e) => [s("path", {d: pathOf(e)}), e]);
    this.edges.replaceChildren(...this.lines.map(([element]) => element));
    if (this.selected) this.selected = this.shown.find((g) => g.key === this.selected.key || g.members.includes(this.selected.members[0])) ?? null;
    if (!this.selected) this.details.hidden = true;
    if (!drawn.some((g) => g.key === this.focusable)) this.focusable = (drawn.find((g) => g.isRoot) ?? drawn[0])?.key;
  }

  newBox(g) {
    const parts = states.map((state) => s("rect", {class: "part " + state, height: 6, y: box.height - 13}));
    const element = s("g", {tabindex: "-1", role: "button", onclick: () => this.select(element.group)},
      s("rect", {class: "body", width: box.width, height: box.height, rx: 8}),
      s("text", {class: "title", x: 12, y: 23, "font-weight": 600}), " ", s("text", {class: "small", x: 12, y: 42}), " ",
      s("text", {class: "small", x: box.width - 12, y: 23, "text-anchor": "end"}), " ", s("text", {class: "small", x: 12, y: 58}), ...parts);
    element.parts = parts;
    return element;
  }

  change(element, g) {
    element.group = g;
    const [, name, says, grace, server] = element.children;
    const [x, y] = cornerOf(g);
    setAttribute(element, "transform", `translate(${x} ${y})`);
    setAttribute(element, "class", "box " + g.state);
    setAttribute(element, "aria-expanded", this.selected === g);
    setAttribute(element, "tabindex", g.key === this.focusable ? 0 : -1);
    const [top, below] = [titleOf(g), this.says(g)];
    const left = g.until !== null && g.until > this.at ? "≤ " + duration(Math.ceil((g.until - this.at) / 1000)) : "";
    const [short, shorter] = [cut(top, left ? 20 : 30), cut(below, 35)];
    setText(grace, left);
    const by = g.counts.held > 0 ? list([...new Set(g.members[0].holds.map((x) => x.by).filter(Boolean))], 2) : "";
    const served = by && cut("served by " + by, 35);
    setText(server, served);
    setText(name, short);
    setText(says, shorter);
    // Who speaks to the browser says what can be seen; what is cut off, and why, follows that.
    const why = g.members.length === 1 && g.members[0].why !== below ? g.members[0].why : "";
    const rest = [short !== top || shorter !== below ? `${top}: ${below}` : "", why, by && served !== "served by " + by && "served by " + by, left && "the grace period ends in " + left.slice(2) + " at most"].filter(Boolean).join("; ");
    setAttribute(element, "aria-label", [short, shorter, left, served].filter(Boolean).join(" ") + (rest && ". " + rest));
    let x1 = 12;
    for (const [n, state] of states.entries()) {
      const width = (box.width - 24) * g.counts[state] / g.members.length;
      setAttribute(element.parts[n], "x", x1.toFixed(1));
      setAttribute(element.parts[n], "width", width.toFixed(1));
      x1 += width;
    }
  }

  says(g) { return saysOf(g, this.at, this.names); }

  // key moves between the boxes.
  key(event) {
    const from = event.target.closest?.(".box")?.group;
    if (!from) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.select(from);
    }
    const to = {
      ArrowRight: () => from.children[0], ArrowLeft: () => from.parents[0],
      ArrowDown: () => this.beside(from, 1), ArrowUp: () => this.beside(from, -1),
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    this.focusable = to.key;
    this.draw(this.at);
    this.boxes.byKey.get(to.key)?.focus();
  }

  beside(from, step) {
    const column = this.shown.filter((g) => g.column === from.column).sort((a, b) => a.row - b.row);
    return column[column.indexOf(from) + step];
  }

  select(g) {
    this.selected = this.selected === g ? null : g;
    this.focusable = g.key;
    this.details.hidden = !this.selected;
    this.draw(this.at);
  }

  // writeDetails lists the members of the chosen group.
  writeDetails() {
    const g = this.selected;
    const version = g.key + JSON.stringify([g.counts, g.members[0].holds]) + g.members.length + Math.floor((g.until ? this.at : 0) / 1000);
    if (this.detailed === version) return;
    this.detailed = version;
    const rows = g.members.slice(0, mostRows).map((o) => h("tr", null,
      h("th", {scope: "row"}, nameOf(o)),
      h("td", null, tag(stateOf(o, this.at), this.names)),
      h("td", null, timesOf(o)),
      h("td", null, reasonsOf(o, this.at).map((line) => h("div", null, line)))));
    const scrolled = this.details.querySelector(".members")?.scrollTop ?? 0;
    show(this.details, h("h2", null, titleOf(g)),
      h("div", {class: "members scroll", tabindex: "0", role: "region", "aria-label": "Objects of the chosen group"},
        h("table", null, h("thead", null, h("tr", null, ["Object", "State", "Times", "Why"].map((t) => h("th", {scope: "col"}, t)))), h("tbody", null, rows))),
      g.members.length > mostRows && h("p", {class: "quiet"}, `These are the first ${mostRows} of ${count(g.members.length)}.`));
    this.details.querySelector(".members").scrollTop = scrolled;
  }

  // writeOutline writes the list, if it has changed.
  writeOutline(groups) {
    const version = groups.map((g) => g.key + this.says(g)).join();
    if (this.isOutlined === version) return;
    this.isOutlined = version;
    const written = new Set();
    const item = (g) => {
      const again = written.has(g);
      written.add(g);
      const children = again ? [] : g.children;
      return h("li", null, h("strong", null, titleOf(g)), again ? ": see above" : ": " + this.says(g),
        !again && g.members.length === 1 && g.members[0].why ? "; " + g.members[0].why : "",
        children.length > 0 && h("ul", null, children.map(item)));
    };
    const first = groups.filter((g) => g.isRoot || g.parents.length === 0);
    const lists = [...first, ...groups].filter((g) => first.includes(g) || !written.has(g));
    const items = [];
    for (const g of lists) if (first.includes(g) || !written.has(g)) items.push(item(g));
    show(this.outline, h("ul", null, items));
  }
}

function cornerOf(g) {
  return [box.margin + g.column * (box.width + box.gapX), box.margin + g.row * (box.height + box.gapY)];
}

// pathOf is the line of an edge, from the right side of the owner to the left side of the dependent.
function pathOf({from, to}) {
  const [[x1, y1], [x2, y2]] = [cornerOf(from), cornerOf(to)];
  const [a, b, c, d] = [x1 + box.width, y1 + box.height / 2, x2, y2 + box.height / 2];
  const bend = Math.max(30, Math.abs(c - a) / 2);
  return `M${a} ${b}C${a + bend} ${b} ${c - bend} ${d} ${c} ${d}`;
}

function cut(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }

/** titleOf names a group: "Deployment web", "pods ×2 998". */
export function titleOf(g) {
  return g.members.length === 1 ? kindOf(g.kind) + " " + g.members[0].name : `${plural(g.kind)} ×${count(g.members.length)}`;
}

/** saysOf tells in a few words how a group stands. */
export function saysOf(g, at, names = stateNames) {
  if (g.state === "aside") return "keeps what it owns";
  const held = g.members[0].holds;
  const words = [];
  const one = g.members.length === 1;
  for (const state of states) {
    if (g.counts[state] > 0) words.push(one ? names[state][0] : count(g.counts[state]) + " " + names[state][1]);
  }
  if (g.counts.held > 0 && held.length > 0) words.push((names === stateNames ? "by " : "for ") + list(held.map((x) => x.finalizer), 2));
  if (g.counts.kept === g.members.length && g.members.every((o) => o.isProtected)) words.push(one ? "it is protected" : "they are protected");
  if (g.counts.kept === g.members.length && one && g.members[0].keptBy?.length) return "stays: " + list(g.members[0].keptBy) + " keeps it";
  return words.join(" · ");
}

function timesOf(o) {
  const times = [];
  if (o.marked !== null) times.push("asked to end " + moment(new Date(o.marked)));
  if (o.gone !== null) times.push("gone " + moment(new Date(o.gone)));
  return times.join(", ");
}

function reasonsOf(o, at) {
  const lines = [];
  if (o.why) lines.push(o.why);
  if (o.until !== null && o.until > at && o.gone === null) lines.push("its grace period ends in " + duration((o.until - at) / 1000));
  for (const x of o.holds) {
    if (x.plain) {
      lines.push("waits for " + x.finalizer);
      continue;
    }
    const says = `finalizer ${x.finalizer}` + (x.by ? `, which ${x.by} removes` : "");
    lines.push(x.says ? `${says}; ${x.says}` : says);
  }
  return lines;
}

/** tag shows a state. */
export function tag(state, names = stateNames) { return h("span", {class: "tag " + (state === "aside" ? "kept" : state)}, names[state][0]); }

function legend(names) {
  return h("ul", {class: "legend", "aria-label": "What the colors and lines mean"},
    ["there", "going", "gone", "kept", "held"].map((state) => h("li", null, tag(state, names))),
    h("li", null, h("span", {class: "thick"}), " blocks its owner’s foreground deletion"),
    h("li", null, h("span", {class: "thin"}), " owned by, or in the namespace"));
}
