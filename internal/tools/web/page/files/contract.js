// What the server answers about deletions, as the views use it.

import {moment, nameOf, refuserOf, serving} from "./words.js";

/** isStuck reports whether an explanation, or a wait, does not end until somebody does something. */
export function isStuck(x) { return x.state === "Stuck"; }

/** leavesOf returns the waits at the ends of chains, each of which says the same once. */
export function leavesOf(waits) {
  const all = waits.flatMap((w) => (w.waits?.length ? leavesOf(w.waits) : [w]));
  return all.filter((w, n) => all.findIndex((other) => other.says === w.says) === n);
}

/** servedOf returns who serves which finalizer, out of an explanation, and how that is: [{finalizer, by, says}]. */
export function servedOf(x) {
  return x.waits.filter((w) => w.finalizer && w.servedBy).map((w) => ({finalizer: w.finalizer, by: withoutGroup(w.servedBy.controller ?? ""), says: serving[w.servedBy.state] ?? ""}));
}

// withoutGroup shortens "Deployment.apps shop/operator"; a controller of Kubernetes' own has no object.
function withoutGroup(name) { return name.replace(/^(\w+)\.[\w.-]+ /, "$1 "); }

/** summaryOf reads the summary of a deletion. Times are milliseconds since 1970. */
export function summaryOf(x) {
  const root = x.root ?? {kind: "", name: x.id};
  return {
    id: x.id, root, title: nameOf(root), roots: x.roots?.map((r) => r.uid) ?? [root.uid], more: x.more ?? 0,
    policy: x.policy ?? "", by: byOf(x.by), began: timeOf(x.began) ?? Date.now(), ended: timeOf(x.ended) ?? (x.done ? timeOf(x.began) : null),
    gone: x.gone ?? 0, waiting: x.waiting ?? 0, kept: x.kept ?? 0, left: x.left ?? 0, rate: x.rate ?? 0,
    waitsFor: x.waitsFor ?? "", at: performance.now(),
  };
}

const rateWindow = 5500; // of the server, and some delay

/**
 * rateOf returns how many objects go in a second: lately, or on average of a deletion that has ended. The server tells
 * of changes only, so what it said some seconds ago is not so any more.
 */
export function rateOf(x) {
  if (!x.ended) return performance.now() - x.at < rateWindow ? x.rate : 0;
  return x.gone > 1 && x.ended > x.began ? x.gone * 1000 / (x.ended - x.began) : 0;
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
  const lost = (x.lost ?? []).map(nameOf);
  const refused = x.refusal ? {from: timeOf(x.refusal.since), to: timeOf(x.refusal.ended)} : null;
  const why = [x.why, !x.why && keptBy.length ? keptBy.join(", ") + " keeps it" : "", x.protected ? "it is protected" : "", lost.length ? "lost its owner " + lost.join(", ") : "", refusalSays(x.refusal)];
  return {
    uid: x.uid, kind: x.kind, namespace: x.namespace ?? "", name: x.name, owners, keptBy,
    marked: timeOf(x.marked), gone: timeOf(x.gone), until: timeOf(x.graceUntil), fate: x.fate ?? "", isProtected: Boolean(x.protected), why: why.filter(Boolean).join("; "),
    refused,
    holds: [
      ...(refused && refused.to === null ? [{finalizer: refuserOf(x.refusal), by: "", says: "", plain: true}] : []),
      ...(x.holds ?? []).map((hold) => ({finalizer: hold.finalizer, by: "", says: ""})), // until servedOf tells
    ],
  };
}

// refusalSays tells who refuses, or has refused, to delete or to change an object.
function refusalSays(x) {
  if (!x) return "";
  const when = [x.since, x.ended].filter(Boolean).map((time) => moment(new Date(time)));
  const says = x.ended ? `was refused from ${when[0]} to ${when[1]}` : `refused since ${when[0]}`;
  return `${says} by ${refuserOf(x)}` + (x.message ? ": " + x.message : "");
}

/** keepersOf returns the owners that keep an object, and that the story itself may not have, for a model. */
export function keepersOf(x) {
  return (x.keptBy ?? []).filter((keeper) => keeper.uid).map((keeper) => ({
    uid: keeper.uid, kind: keeper.kind, namespace: keeper.namespace ?? "", name: keeper.name,
    owners: [], keptBy: [], marked: null, gone: null, until: null, fate: "aside", why: "", holds: [],
  }));
}
