// Elements from data. Text becomes text nodes: nothing that a cluster calls its objects is ever parsed as HTML.

const svgNamespace = "http://www.w3.org/2000/svg";

/** h makes an element: h("a", {href: "#/", class: "x", onclick: f}, "text", child, [more]). */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** s makes an element of SVG. */
export function s(name, attributes, ...children) {
  return fill(document.createElementNS(svgNamespace, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** show replaces what an element contains. */
export function show(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** setText changes a text only if it is another one, so that screen readers are told of changes alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** setAttribute changes an attribute only if it has another value. */
export function setAttribute(element, name, value) {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** keyed keeps the children of an element in the order of items, and makes and changes as few as possible. */
export function keyed(element, items, keyOf, make, change) {
  const before = element.byKey ?? new Map();
  const now = new Map();
  let at = element.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = before.get(key) ?? make(item);
    change(child, item);
    now.set(key, child);
    if (child === at) at = at.nextSibling;
    else element.insertBefore(child, at);
  }
  for (const [key, child] of before) if (!now.has(key)) child.remove();
  element.byKey = now;
}

const saidBefore = {text: "", at: 0};

/** say tells screen readers of a change, at most every three seconds: the last one wins. */
export function say(text) {
  const element = document.getElementById("said");
  clearTimeout(saidBefore.timer);
  const wait = Math.max(0, saidBefore.at + 3000 - performance.now());
  saidBefore.timer = setTimeout(() => {
    saidBefore.at = performance.now();
    setText(element, text);
  }, wait);
}

/** copyButton copies a text, which is made when it is pressed. */
export function copyButton(label, text) {
  const button = h("button", {type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(await text());
      button.textContent = "Copied";
      say("Copied");
    } catch {
      button.textContent = "The browser does not allow it: select the text and copy it";
    }
    setTimeout(() => { button.textContent = label; }, 3000);
  }}, label);
  return button;
}

/** downloadButton saves a text as a file. */
export function downloadButton(label, name, text) {
  return h("button", {type: "button", onclick: async () => {
    const address = URL.createObjectURL(new Blob([await text()], {type: "text/plain"}));
    const a = h("a", {href: address, download: name});
    a.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }}, label);
}
