// What the server answers about deletions, as the views use it.

import {nameOf} from "./words.js";

/** summaryOf reads the summary of a deletion. Times are milliseconds since 1970. */
export function summaryOf(x) {
  const root = x.root ?? {kind: "", name: x.id};
  return {
    id: x.id, title: nameOf(root), roots: x.roots?.map((r) => r.uid) ?? [root.uid], more: x.more ?? 0,
    policy: x.policy ?? "", by: byOf(x.by), began: timeOf(x.began) ?? Date.now(), ended: timeOf(x.ended) ?? (x.done ? timeOf(x.began) : null),
    gone: x.gone ?? 0, waiting: x.waiting ?? 0, kept: x.kept ?? 0, left: x.left ?? 0, rate: x.rate ?? 0,
    waitsFor: x.waitsFor ?? "", state: x.state ?? "",
  };
}

function byOf(by) {
  if (!by) return "";
  if (typeof by === "string") return by;
  return by.user && by.agent ? `${by.user}, with ${by.agent}` : by.user ?? by.agent ?? "";
}

function timeOf(text) {
  const time = text ? Date.parse(text) : NaN;
  return Number.isNaN(time) ? null : time;
}

/** objectOf reads an object of a deletion, for a model. */
export function objectOf(x) {
  const owners = (x.owners ?? []).map((r) => ({uid: r.uid, blocking: Boolean(r.blocking)}));
  if (x.in && owners.length === 0) owners.push({uid: x.in, blocking: false, content: true});
  const keptBy = (x.keptBy ?? []).map(nameOf);
  for (const keeper of x.keptBy ?? []) {
    if (keeper.uid && !owners.some((o) => o.uid === keeper.uid)) owners.push({uid: keeper.uid, blocking: false});
  }
  const lost = (x.lost ?? []).map((l) => (typeof l === "string" ? l : nameOf(l)));
  const why = [x.why, !x.why && keptBy.length ? keptBy.join(", ") + " keeps it" : "", lost.length ? "lost its owner " + lost.join(", ") : ""];
  return {
    uid: x.uid, kind: x.kind, namespace: x.namespace ?? "", name: x.name, owners, keptBy,
    marked: timeOf(x.marked), gone: timeOf(x.gone), until: timeOf(x.graceUntil), fate: x.fate ?? "", why: why.filter(Boolean).join("; "),
    holds: (x.holds ?? []).map((hold) => ({finalizer: hold.finalizer, by: hold.servedBy ?? "", works: hold.works, says: hold.says ?? ""})),
  };
}

/** keepersOf returns the owners that keep an object, and that the story itself may not have, for a model. */
export function keepersOf(x) {
  return (x.keptBy ?? []).filter((keeper) => keeper.uid).map((keeper) => ({
    uid: keeper.uid, kind: keeper.kind, namespace: keeper.namespace ?? "", name: keeper.name,
    owners: [], keptBy: [], marked: null, gone: null, until: null, fate: "aside", why: "", holds: [],
  }));
}
