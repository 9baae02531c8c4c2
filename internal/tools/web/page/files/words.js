// Durations, numbers and names, as people say them.

const numbers = new Intl.NumberFormat("en", {useGrouping: true});

/** count returns a number with thin spaces between thousands. */
export function count(n) { return numbers.format(n).replaceAll(",", "\u202f"); }

/** many returns "1 object", "2 objects". */
export function many(n, one, more = one + "s") { return count(n) + " " + (n === 1 ? one : more); }

/** duration returns a time in seconds: "0.4 s", "12 s", "3 min 5 s", "2 h 10 min", "5 d 3 h". */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  const s = Math.max(0, seconds);
  if (s < 9.95) return s.toFixed(1) + "\u00a0s";
  const [d, hours, minutes, rest] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60, Math.floor(s % 60)];
  if (d) return d + "\u00a0d" + (hours ? " " + hours + "\u00a0h" : "");
  if (hours) return hours + "\u00a0h" + (minutes ? " " + minutes + "\u00a0min" : "");
  if (minutes) return minutes + "\u00a0min" + (rest ? " " + rest + "\u00a0s" : "");
  return rest + "\u00a0s";
}

/** rate returns objects per second: "3 030 per second", "1.5 per second". */
export function rate(perSecond) {
  if (!(perSecond > 0)) return "";
  return (perSecond >= 10 ? count(Math.round(perSecond)) : perSecond.toFixed(1)) + " per second";
}

/** moment returns a time of day, with the date if that is not today. */
export function moment(date) {
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : date.toISOString().slice(0, 10) + " " + time;
}

/** kindOf returns the kind without its group: "ReplicaSet" of "ReplicaSet.apps". */
export function kindOf(kind) { return kind.split(".")[0]; }

/** plural returns the name of several objects of a kind: "pods", "replica sets", "network policies". */
export function plural(kind) {
  const words = kindOf(kind).replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase();
  if (/(s|x|ch)$/.test(words)) return /endpoints$/.test(words) ? words : words + "es";
  if (/[^aeiou]y$/.test(words)) return words.slice(0, -1) + "ies";
  return words + "s";
}

/** nameOf returns how an object is named in a sentence. */
export function nameOf(object) {
  return kindOf(object.kind) + " " + (object.namespace ? object.namespace + "/" : "") + object.name;
}

/** list joins names: "a", "a and b", "a, b and c", "a, b and 3 more". */
export function list(all, most = 3) {
  const names = all.length > most ? [...all.slice(0, most - 1), count(all.length - most + 1) + " more"] : all;
  return names.length < 2 ? names.join("") : names.slice(0, -1).join(", ") + " and " + names.at(-1);
}

/** capitalized returns a text with a capital letter at its beginning. */
export function capitalized(text) { return text ? text[0].toUpperCase() + text.slice(1) : ""; }

/** serving says how the controller is that serves a finalizer, by its state in the answers of the server. */
export const serving = {
  Gone: "nobody removes it", ScaledToZero: "its controller is scaled to 0", NotReady: "its controller is not ready", Silent: "its controller does not renew its lease",
  Forbidden: "its controller may not update the object", Leaving: "its controller is being deleted itself", Alive: "its controller works",
};

const refusers = {
  policy: "ValidatingAdmissionPolicy ", "mutating-policy": "MutatingAdmissionPolicy ", webhook: "webhook ", "unreachable-webhook": "webhook ",
  conversion: "the conversion of ", quota: "ResourceQuota ", rbac: "the lack of a right of ",
};

/** refuserOf names who refuses to delete or to change an object. */
export function refuserOf(x) { return x.refuser && refusers[x.by] ? refusers[x.by] + x.refuser : "the API server"; }

/** policies say what a propagation policy means. */
export const policies = {
  Background: "The object goes at once; what it owns follows.",
  Foreground: "The object waits until what it owns is gone.",
  Orphan: "The object goes; what it owns stays, without an owner.",
};

/** quoted is a word for a shell. */
export function quoted(word) { return /^[\w./:@%+=,-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'"; }
