// Before you delete: what a deletion would take with it, what would stay, and what would hang.

import {get} from "./api.js";
import {copyButton, h, say, show} from "./dom.js";
import {Model} from "./model.js";
import {Picture} from "./picture.js";
import {count, duration, kindOf, many, plural, policies, quoted, serving} from "./words.js";
import {showUnread} from "./notes.js";

/** preview asks for a name, and shows what its deletion would do. The question is in the address. */
export async function preview(element, [object = "", namespace = "", policy = ""], signal) {
  const fields = {
    object: h("input", {id: "object", required: true, autocomplete: "off", spellcheck: "false", value: object, placeholder: "deployment/web", "aria-describedby": "object-help"}),
    namespace: h("input", {id: "namespace", autocomplete: "off", spellcheck: "false", value: namespace, placeholder: "default"}),
    policy: h("select", {id: "policy"}, Object.keys(policies).map((p) => h("option", {value: p, selected: p === policy}, p + ": " + policies[p]))),
  };
  const result = h("div", {"aria-live": "off"});
  show(element, h("h1", null, "Before you delete"),
    h("p", null, "See what would go with an object, what would stay, and what would hang. Nothing is deleted here."),
    h("form", {class: "fields", onsubmit: (event) => {
      event.preventDefault();
      const to = "#/preview/" + [fields.object, fields.namespace, fields.policy].map((f) => encodeURIComponent(f.value.trim())).join("/");
      if (to === location.hash) dispatchEvent(new HashChangeEvent("hashchange"));
      else location.hash = to;
    }},
    h("div", {class: "wide"}, h("label", {for: "object"}, "Object, as TYPE/NAME"), fields.object),
    h("div", null, h("label", {for: "namespace"}, "Namespace"), fields.namespace),
    h("div", {class: "wide"}, h("label", {for: "policy"}, "How its dependents are deleted"), fields.policy),
    h("button", {class: "first"}, "Show what would happen")),
    h("p", {class: "quiet", id: "object-help"}, "Types are spelled as with kubectl: ", h("code", null, "deploy/web"), ", ", h("code", null, "namespace/shop"), ", ", h("code", null, "widgets.example.com/w"), "."),
    result);
  if (!object) return;
  show(result, h("p", null, "Asking…"));
  let report;
  try {
    report = await get("v1/preview", {object, namespace: namespace || "default", propagationPolicy: policy}, signal);
  } catch (error) {
    if (signal.aborted || error.status === 401) throw error;
    show(result, h("div", {class: "note bad", role: "alert"}, h("p", null, error.message)));
    return;
  }
  showReport(result, report, {object, namespace: namespace || "default", policy});
}

function showReport(element, report, asked) {
  const of = (...fates) => report.objects.filter((o) => fates.includes(o.fate));
  const [going, waiting, staying, unknown] = [of("Deleted"), of("Waiting"), of("Kept", "Detached"), of("Unknown")];
  const refused = report.objects.filter((o) => o.refused);
  const sentence = `${many(going.length, "object goes", "objects go")}, ${many(waiting.length, "waits", "wait")} for something, ${many(staying.length, "stays", "stay")}.`;
  const model = modelOf(report);
  const picture = new Picture(model, {label: "What would happen: owners left, dependents right", names: fateNames});
  const unread = h("div");
  show(element, h("h2", null, "What would happen"),
    h("p", null, h("strong", null, sentence)),
    report.unconfirmed && h("div", {class: "note bad"}, h("p", null, `The server demands a confirmation: ${report.unconfirmed}. The command below confirms; that needs the right "confirm".`)),
    refused.map((o) => h("div", {class: "note bad"}, h("p", null, `The deletion of ${kindOf(o.kind)} ${o.name} is refused: ${o.refused}`))),
    waiting.length > 0 && h("div", {class: "note late"}, h("p", null, "It would not end by itself:"), h("ul", null, waiting.slice(0, 5).map((o) => h("li", null, nameIn(o) + " waits for " + o.waits.map(waitSays).join("; "))),
      waiting.length > 5 && h("li", null, count(waiting.length - 5) + " more"))),
    (report.budgets ?? []).map((b) => h("div", {class: "note"}, h("p", null, `The disruption budget ${b.namespace}/${b.name} allows ${b.allowed} of its pods to be disrupted, and ${b.pods.length} go. It holds evictions; a deletion it does not hold.`))),
    report.graceSeconds > 0 && h("p", null, `Nodes may take up to ${duration(report.graceSeconds)} to end the pods` + (report.atLeastSeconds ? `, and take at least ${duration(report.atLeastSeconds)}.` : ".")),
    picture.element, countsOf(report), commandOf(report, asked), unread);
  showUnread(unread, report.unread);
  picture.draw(0);
  say("Preview: " + sentence + (unknown.length ? ` Of ${count(unknown.length)} it is not known.` : ""));
}

// What the states of the picture are called here: nothing has happened yet.
const fateNames = {
  gone: ["gone", "gone"], going: ["goes", "go"], held: ["waits", "wait"], there: ["not known", "not known"], kept: ["stays", "stay"], aside: ["owner", "owners"],
};

const fates = {Deleted: "goes", Waiting: "waits", Detached: "stays, without an owner", Kept: "stays", Unknown: "not known"};

function countsOf(report) {
  return h("details", null, h("summary", null, "How many of each kind"),
    h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "How many of each kind"},
      h("table", null, h("thead", null, h("tr", null, ["Kind", "What becomes of them", "Objects"].map((t) => h("th", {scope: "col"}, t)))),
        h("tbody", null, report.counts.map((c) => h("tr", null, h("th", {scope: "row"}, plural(c.kind)), h("td", null, fates[c.fate] ?? c.fate), h("td", {class: "number"}, count(c.objects))))))));
}

function commandOf(report, {object, namespace, policy}) {
  const words = ["coppice delete", quoted(object)];
  if (report.objects.some((o) => o.requested && o.namespace)) words.push("-n " + quoted(namespace));
  if (policy && policy !== "Background") words.push("--cascade " + policy.toLowerCase());
  words.push("--confirm " + report.digest);
  const command = words.join(" ");
  return h("section", null, h("h2", null, "To delete exactly this"),
    h("p", null, "The command deletes only if a new preview says the same of the same versions of the same objects. If anything has changed since, it refuses."),
    h("pre", null, command), h("div", {class: "row"}, copyButton("Copy the command", () => command)));
}


function nameIn(o) { return kindOf(o.kind) + " " + (o.namespace ? o.namespace + "/" : "") + o.name; }

function waitSays(w) {
  const some = (w.objects ?? []).slice(0, 3).join(", ") + ((w.objects ?? []).length > 3 ? ", …" : "");
  switch (w.reason) {
    case "Finalizer": return "finalizer " + w.name + served(w);
    case "Dependents": return "dependents that block it: " + some;
    case "Contents": return "its contents: " + some;
    case "Users": return "what uses it: " + some;
    case "Discovery": return `group ${w.name} of the API, which does not answer`;
    case "Barrier": return `group ${w.name} of the API, which does not answer and may have dependents`;
    case "Node": return `node ${w.name}, which is not ready`;
    default: return w.reason;
  }
}

function served(w) {
  const who = w.servedBy?.controller ? `, which ${w.servedBy.controller} removes` : "";
  const how = howServed(w);
  return who + (how ? " (" + how + ")" : "");
}

function howServed(w) { return w.takenAlong ? "this deletion takes its controller away, too" : serving[w.servedBy?.state] ?? ""; }

// modelOf makes a model of a report. What goes is drawn as ending, what waits as held.
function modelOf(report) {
  const model = new Model();
  const namespaces = new Map(report.objects.filter((o) => o.kind === "Namespace").map((o) => [o.name, o.uid]));
  const known = new Set(report.objects.map((o) => o.uid));
  const byName = new Map(report.objects.map((o) => [o.kind + " " + (o.namespace ? o.namespace + "/" : "") + o.name, o.uid]));
  for (const o of report.objects) {
    if (o.requested) model.roots.push(o.uid);
    const owners = (o.owners ?? []).filter((r) => known.has(r.uid)).map((r) => ({uid: r.uid, blocking: Boolean(r.blocking)}));
    if (owners.length === 0 && namespaces.has(o.namespace)) owners.push({uid: namespaces.get(o.namespace), content: true, blocking: false});
    const stays = o.fate === "Kept" || o.fate === "Detached";
    for (const name of stays ? o.keptBy ?? [] : []) {
      if (byName.has(name)) continue;
      owners.push({uid: name, blocking: false});
      if (!model.objects.has(name)) model.put(aside(name));
    }
    model.put({
      uid: o.uid, kind: o.kind, namespace: o.namespace ?? "", name: o.name, owners, gone: null, until: null,
      marked: o.fate === "Deleted" || o.fate === "Waiting" ? 0 : null, fate: stays ? "kept" : "", keptBy: o.keptBy ?? [], why: whyOf(o), isProtected: Boolean(o.protected),
      holds: o.fate === "Waiting" ? (o.waits ?? []).map((w) => ({finalizer: w.reason === "Finalizer" ? w.name : waitSays(w), by: w.servedBy?.controller ?? "", plain: w.reason !== "Finalizer", says: w.reason === "Finalizer" ? howServed(w) : ""})) : [],
    });
  }
  return model;
}

// aside is an owner that the deletion does not touch.
function aside(name) {
  const [kind, path] = name.split(" ");
  const parts = (path ?? kind).split("/");
  return {uid: name, kind: path ? kind : "owner", namespace: parts.length > 1 ? parts[0] : "", name: parts.at(-1), owners: [], marked: null, gone: null, fate: "aside", why: "", holds: [], until: null};
}

const actors = {Collector: "the garbage collector", NamespaceController: "the namespace controller", Server: "the API server", Node: "its node", PodGarbageCollector: "the pod garbage collector", TokensController: "the tokens controller", EndpointsController: "the endpoints controller", JobController: "the Job controller", ProtectionController: "the protection controller"};

function whyOf(o) {
  const words = [];
  if (o.fate === "Deleted") words.push(`goes in step ${o.step}` + (actors[o.by] ? ", by " + actors[o.by] : ""));
  if (o.protected) words.push(o.protected);
  if (o.lost?.length) words.push("loses " + o.lost.slice(0, 3).join(", "));
  if (o.keptBy?.length && o.fate !== "Waiting") words.push(o.keptBy.slice(0, 3).join(", ") + " keeps it");
  if (o.recreatedBy) words.push(`${o.recreatedBy} may make it again`);
  if (o.race) words.push("or otherwise: it depends on who is first");
  return words.join("; ");
}
