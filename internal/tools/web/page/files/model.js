// A story as the picture shows it: what state each object was in at each moment, and which objects are alike. There
// is nothing of a browser here.
//
// An object of the model:
//
//	uid, kind, namespace, name
//	owners   [{uid, blocking, content}]   content: it is in the namespace that is deleted
//	marked   when it began to end, in milliseconds since 1970, or null
//	gone     when it was gone, or null
//	fate     "kept" if it outlives the story, "aside" if it only keeps others, otherwise ""
//	isProtected  it stays because it is protected
//	why      in words, why it stays or what it waits for
//	holds    [{finalizer, by, says}] what holds it now, and who serves that, as far as it is known
//	refused  {from, to} when the server refused to delete or to change it; to is null while it does; or null
//	until    when its grace period ends, or null

/** The states of an object, in the order in which they are drawn. */
export const states = ["gone", "going", "held", "there", "kept"];

/** What the states are called, of one object and of several. */
export const stateNames = {
  gone: ["gone", "gone"], going: ["ending", "ending"], held: ["held", "held"], there: ["still there", "still there"],
  kept: ["stays", "stay"], aside: ["owner", "owners"],
};

/** stateOf returns the state of an object at a time. */
export function stateOf(o, at) {
  if (o.gone !== null && o.gone <= at) return "gone";
  if (o.marked !== null && o.marked <= at) return o.holds.length ? "held" : "going";
  if (o.refused && o.refused.from <= at && (o.refused.to === null || o.refused.to > at)) return "held";
  return o.fate || "there";
}

const manyObjects = 2000;

/** Model holds the objects of a story, in groups of those that are alike. */
export class Model {
  constructor() {
    this.objects = new Map();
    this.roots = [];
    this.begins = null;
    this.ends = null; // the last change that is known
    this.stale = true; // the groups are those of another shape
    this.groupedAt = -Infinity;
    this.replaced = new Map(); // what has changed since the groups were made, but not its group
    this.found = {groups: [], edges: []};
    this.served = new Map(); // by kind and finalizer: {by, says}
  }

  /** serve tells who removes a finalizer of objects of a kind, and how that is. */
  serve(kind, finalizer, by, says) {
    this.served.set(kind + " " + finalizer, {by, says});
    for (const o of this.objects.values()) if (o.kind === kind) this.tellServers(o);
  }

  tellServers(o) {
    for (const hold of o.holds) Object.assign(hold, this.served.get(o.kind + " " + hold.finalizer));
  }

  /** put adds an object, or replaces it. */
  put(o) {
    const old = this.objects.get(o.uid);
    if (o.gone !== null && old && o.holds.length === 0) o.holds = old.holds; // what it was held by until then
    this.tellServers(o);
    if (!old || shape(old) !== shape(o)) this.stale = true;
    if (old) this.replaced.set(o.uid, o);
    this.objects.set(o.uid, o);
    for (const time of [o.marked, o.gone]) if (time !== null) this.span(time);
  }

  /** setRoots sets what was asked to be deleted. */
  setRoots(uids) {
    if (uids.join() !== this.roots.join()) this.stale = true;
    this.roots = uids;
  }

  /** span widens the time that the story takes. */
  span(time) {
    if (this.begins === null || time < this.begins) this.begins = time;
    if (this.ends === null || time > this.ends) this.ends = time;
  }

  /**
   * grouped returns the groups and the edges between them. They are made anew only if there is another shape, and that
   * of many objects at most ten times a second: until then, the model stays stale.
   */
  grouped() {
    const isSoon = this.objects.size > manyObjects && performance.now() - this.groupedAt < 100;
    if (this.stale && !isSoon) {
      this.found = group(this);
      this.stale = false;
      this.groupedAt = performance.now();
    } else if (this.replaced.size > 0) {
      // Groups hold the objects as they are now.
      for (const g of this.found.groups) g.members = g.members.map((o) => this.replaced.get(o.uid) ?? o);
    }
    this.replaced.clear();
    return this.found;
  }

  /** counted counts the states of each group at a time, and returns the sums. */
  counted(at) {
    const sums = {gone: 0, going: 0, held: 0, there: 0, kept: 0, aside: 0};
    for (const g of this.grouped().groups) {
      const counts = {gone: 0, going: 0, held: 0, there: 0, kept: 0, aside: 0};
      let until = null;
      for (const o of g.members) {
        const state = stateOf(o, at);
        counts[state]++;
        if (o.until !== null && (state === "going" || state === "held") && (until === null || o.until > until)) until = o.until;
      }
      g.counts = counts;
      g.until = until;
      g.state = stateOfGroup(counts);
      for (const state in counts) sums[state] += counts[state];
    }
    return sums;
  }
}

// stateOfGroup is what a group is drawn as: what matters most of it.
function stateOfGroup(c) {
  return c.aside ? "aside" : c.held ? "held" : c.going ? "going" : c.there ? "there" : c.kept ? "kept" : "gone";
}

// shape is what the group of an object depends on.
function shape(o) {
  return o.kind + "|" + o.fate + (o.isProtected ? "!" : "") + "|" + o.holds.map((x) => x.finalizer).join(";") +
    "|" + o.owners.map((x) => x.uid + (x.blocking ? "!" : x.content ? "~" : "")).join(";");
}

// group puts objects together that are alike: of one kind, with the same fate and the same holds, and with owners
// that are in one group themselves. So ten thousand objects are a few boxes, whatever their names are.
function group(model) {
  const roots = new Set(model.roots);
  const keys = new Map(); // uid → key
  const keyOf = (uid, above) => {
    if (keys.has(uid)) return keys.get(uid);
    const o = model.objects.get(uid);
    if (!o) return "";
    if (above.has(uid)) return "cycle";
    above.add(uid);
    const parents = new Set();
    for (const owner of o.owners) {
      const key = keyOf(owner.uid, above);
      if (key) parents.add(key + (owner.blocking ? "!" : owner.content ? "~" : ""));
    }
    above.delete(uid);
    const own = roots.has(uid) ? "root " + (model.roots.length > 12 ? "" : uid) : "";
    const key = [o.kind, own, o.fate, Boolean(o.isProtected), o.holds.map((x) => x.finalizer).sort().join(","), [...parents].sort().join(",")].join("|");
    const short = names.get(key) ?? "g" + names.size;
    names.set(key, short);
    keys.set(uid, short);
    return short;
  };
  const names = new Map();
  const groups = new Map();
  const edges = new Map();
  for (const o of model.objects.values()) {
    const key = keyOf(o.uid, new Set());
    let g = groups.get(key);
    if (!g) groups.set(key, g = {key, kind: o.kind, members: [], isRoot: roots.has(o.uid), column: 0, row: 0, parents: [], children: []});
    g.members.push(o);
    g.isRoot ||= roots.has(o.uid);
  }
  for (const o of model.objects.values()) {
    for (const owner of o.owners) {
      const [from, to] = [keys.get(owner.uid), keys.get(o.uid)];
      if (!from || from === to) continue;
      const id = from + ">" + to;
      const edge = edges.get(id);
      if (edge) edge.blocking ||= owner.blocking;
      else edges.set(id, {id, from: groups.get(from), to: groups.get(to), blocking: owner.blocking, content: Boolean(owner.content)});
    }
  }
  const all = {groups: [...groups.values()], edges: [...edges.values()]};
  place(all);
  return all;
}

// place gives each group a column, right of its owners, and a row beside its dependents.
function place({groups, edges}) {
  for (const {from, to} of edges) {
    from.children.push(to);
    to.parents.push(from);
  }
  // The longest way from the left; cycles end it after as many rounds as there are groups.
  for (let round = 0, changed = true; changed && round < groups.length; round++) {
    changed = false;
    for (const {from, to} of edges) {
      if (to.column <= from.column && !to.isRoot) {
        to.column = from.column + 1;
        changed = true;
      }
    }
  }
  // An owner that only keeps others stands beside what it keeps.
  for (const g of groups) {
    if (!g.isRoot && g.parents.length === 0 && g.children.length > 0) g.column = Math.max(0, Math.min(...g.children.map((c) => c.column)) - 1);
  }
  let row = 0;
  const placed = new Set();
  const visit = (g) => {
    placed.add(g);
    const mine = g.children.filter((c) => !placed.has(c)).sort(inOrder);
    if (mine.length === 0) {
      g.row = row++;
      return;
    }
    for (const child of mine) if (!placed.has(child)) visit(child);
    g.row = (mine[0].row + mine.at(-1).row) / 2;
  };
  const first = [...groups].sort((a, b) => (b.isRoot - a.isRoot) || (a.parents.length > 0) - (b.parents.length > 0) || inOrder(a, b));
  for (const g of first) if (!placed.has(g) && (g.isRoot || g.parents.length === 0)) visit(g);
  for (const g of first) if (!placed.has(g)) visit(g);
  separate(groups);
}

// separate moves groups down until no two of a column overlap.
function separate(groups) {
  const columns = new Map();
  for (const g of groups) columns.set(g.column, [...(columns.get(g.column) ?? []), g]);
  for (const column of columns.values()) {
    column.sort((a, b) => a.row - b.row);
    for (let n = 1; n < column.length; n++) column[n].row = Math.max(column[n].row, column[n - 1].row + 1);
  }
}

function inOrder(a, b) {
  return a.kind.localeCompare(b.kind) || b.members.length - a.members.length || a.key.localeCompare(b.key, "en", {numeric: true});
}
