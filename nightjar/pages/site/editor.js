// The text of a rule: line numbers, indentation by keys, completion from the rule's JSON Schema and the declared streams,
// and what the server says of it as one types. Nothing is checked here.
// @ts-check

/**
 * A part of a JSON Schema, as far as completion reads it.
 * @typedef {{properties?: Record<string, Schema>, additionalProperties?: Schema | boolean, $ref?: string,
 *   anyOf?: Schema[], else?: Schema, items?: Schema, enum?: string[], type?: string, description?: string}} Schema
 * @typedef {{fields: Record<string, string>, tables: string[]}} Stream
 * @typedef {{parts: Record<string, Schema>, streams: Record<string, Stream>, tables: Record<string, string>,
 *   rules: string[]}} Names
 * @typedef {{name: string, about: string, then: string}} Offer  then: what follows the name.
 */

const DELAY = 400, MOST_OFFERS = 40, INDENT = "  ";
// Values that are neither names of fields nor of measures.
const FREE = new Set(["id", "over", "delay", "session", "mute", "effective", "author", "reason", "score", "within", "for", "p",
  "zone", "resolution", "tags", "restrict"]);

const form = /** @type {HTMLFormElement} */ (document.getElementById("editor"));
const area = /** @type {HTMLTextAreaElement} */ (document.getElementById("text"));
const box = /** @type {HTMLElement} */ (area.parentElement);

// --- line numbers, and the lines that have errors

const gutter = document.createElement("div");
gutter.className = "gutter";
gutter.setAttribute("aria-hidden", "true");
box.prepend(gutter);
box.classList.add("numbered");

const number = () => {
  const count = area.value.split("\n").length;
  while (gutter.children.length > count) gutter.lastElementChild?.remove();
  while (gutter.children.length < count) {
    const line = document.createElement("div");
    line.textContent = `${gutter.children.length + 1}`;
    gutter.append(line);
  }
};

const mark = () => {
  for (const line of gutter.children) line.className = "";
  for (const note of document.querySelectorAll("#details [data-line]")) {
    const level = note.parentElement?.classList.contains("error") ? "wrong" : "doubtful";
    const line = gutter.children[Number(note.getAttribute("data-line")) - 1];
    if (line && line.className !== "wrong") line.className = level;
    const place = note.querySelector("span.line");
    if (!place) continue;
    const button = document.createElement("button"); // leads to the line
    button.type = "button";
    button.className = "line";
    button.textContent = place.textContent;
    button.addEventListener("click", () => go(Number(note.getAttribute("data-line"))));
    place.replaceWith(button);
  }
};

/** @param {number} line */
const go = (line) => {
  const lines = area.value.split("\n");
  const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  area.focus();
  area.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
  area.scrollTop = Math.max(0, (line - 4) * height());
};

const height = () => parseFloat(getComputedStyle(area).lineHeight);

area.addEventListener("scroll", () => {
  gutter.scrollTop = area.scrollTop;
  if (!list.hidden) place(); // what is typed at the end of a text scrolls it, too
});

// --- what the server says, as one types

let waiting = 0;
/** @type {AbortController | undefined} */
let asking;

/** What the server says of the text. act: what the form asks for. @param {string} act @param {AbortSignal} signal */
const answered = async (act, signal) => {
  const fields = new FormData(form);
  fields.set("act", act);
  const answer = await fetch(form.getAttribute("action") ?? "", {
    method: "POST", body: new URLSearchParams(/** @type {any} */ (fields)), signal, headers: { Accept: "text/html" },
  });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
};

const check = async () => {
  clearTimeout(waiting);
  asking?.abort();
  asking = new AbortController();
  const verdict = /** @type {HTMLElement} */ (document.getElementById("verdict"));
  const details = /** @type {HTMLElement} */ (document.getElementById("details"));
  /** @param {string} text @param {string} kind */
  const say = (text, kind) => {
    if (verdict.textContent !== text) verdict.textContent = text;
    verdict.className = kind;
  };
  try {
    const page = await answered("check", asking.signal);
    const fresh = page.getElementById("details"), said = page.getElementById("verdict");
    if (!fresh || !said) {
      details.classList.add("stale");
      say(`Not checked: ${page.querySelector("main p")?.textContent ?? "the pages do not answer"}`, "verdict critical");
      return;
    }
    details.classList.remove("stale");
    details.replaceChildren(...fresh.childNodes);
    say(said.textContent ?? "", said.className);
    mark();
  } catch (failure) {
    if (/** @type {Error} */ (failure).name === "AbortError") return;
    details.classList.add("stale");
    say("Not checked: the pages cannot be reached. Typing tries it again.", "verdict critical");
  }
};

/** What it would have found: of the text as it is now, while one may go on typing. */
const attempt = async () => {
  const trial = /** @type {HTMLElement} */ (document.getElementById("trial"));
  /** @param {string} text */
  const say = (text) => {
    const line = document.createElement("p");
    line.textContent = text;
    trial.replaceChildren(line);
  };
  /** @type {HTMLElement} */ (trial.parentElement).hidden = false;
  trial.classList.remove("stale");
  say("The newest events are evaluated …");
  trying?.abort();
  trying = new AbortController();
  try {
    const page = await answered("try", trying.signal);
    const fresh = page.getElementById("trial");
    if (fresh) {
      trial.replaceChildren(...fresh.childNodes);
      trial.dispatchEvent(new Event("fresh", { bubbles: true }));
    } else say(`Not evaluated: ${page.querySelector("main p")?.textContent ?? "the pages do not answer"}`);
  } catch (failure) {
    if (/** @type {Error} */ (failure).name !== "AbortError") say("Not evaluated: the pages cannot be reached.");
  }
};
/** @type {AbortController | undefined} */
let trying;

form.addEventListener("submit", (event) => {
  const by = event.submitter;
  const act = by instanceof HTMLButtonElement ? by.value : "check";
  if (act === "publish" || act === "backtest") return;
  event.preventDefault();
  if (act === "try") attempt();
  else check();
});

area.addEventListener("input", () => {
  document.getElementById("trial")?.classList.add("stale");
  number();
  clearTimeout(waiting);
  waiting = setTimeout(check, DELAY);
});

// --- completion

/** @type {Names | undefined} */
let names;
fetch(form.dataset.names ?? "").then(async (answer) => {
  if (!answer.ok) return;
  names = await answer.json();
  if (document.activeElement === area) complete(false); // for whom they come late
}).catch(() => { /* without names nothing is completed */ });

/** The schema behind references and alternatives. @param {Schema | boolean | undefined} of @returns {Schema} */
const plain = (of) => {
  if (!of || of === true) return {};
  if (of.$ref) return plain(names?.parts[of.$ref.split("/").at(-1) ?? ""]);
  if (of.anyOf) return plain(of.anyOf.find((each) => each.type !== "null"));
  return of.else ? plain(of.else) : of;
};

/** The schema of what stands at a path of keys in a rule. @param {string[]} path */
const schemaAt = (path) => {
  let found = plain(names?.parts.Rule);
  for (const key of path) found = plain(found.properties?.[key] ?? found.additionalProperties);
  return found;
};

const KEY = /^(\s*(?:- +)*)([\w.-]+):(?:\s|$)/;

/** The keys that a line stands below. @param {string[]} lines @param {number} row @param {number} indent */
const keysAbove = (lines, row, indent) => {
  const path = [];
  for (let at = row - 1; at >= 0 && indent > 0; at -= 1) {
    const found = KEY.exec(lines[at]);
    if (!found || found[1].length >= indent) continue;
    indent = found[1].includes("-") && found[1].trimEnd().length ? Math.min(indent, found[1].length) : found[1].length;
    path.unshift(found[2]);
    if (found[1].includes("-")) break; // the rule begins there
  }
  return path[0] === "rules" ? path.slice(1) : path;
};

/** The names of a rule's measures: the keys below `measures`. @param {string[]} lines @param {number} row */
const measuresNear = (lines, row) => {
  let top = row;
  while (top > 0 && !/^\s*- |^---/.test(lines[top])) top -= 1;
  const found = [];
  let inside = -1, own = -1;
  for (let at = top; at < lines.length && !(at > row && /^\s*- \w|^---/.test(lines[at])); at += 1) {
    const key = KEY.exec(lines[at]);
    if (!key) continue;
    const indent = key[1].length;
    if (inside >= 0 && indent <= inside) inside = -1;
    if (inside >= 0 && (own < 0 || indent === own)) {
      own = indent;
      found.push(key[2]);
    }
    if (key[2] === "measures") [inside, own] = [indent, -1];
  }
  return found;
};

/** @param {string[]} lines @param {number} row @returns {Stream | undefined} */
const streamNear = (lines, row) => {
  const at = lines.map((line, index) => [/^\s*(?:- )?stream:\s*([\w.-]+)/.exec(line)?.[1], Math.abs(index - row)]);
  const [nearest] = at.filter(([name]) => name).sort((one, other) => Number(one[1]) - Number(other[1]));
  return names?.streams[String(nearest?.[0] ?? "")] ?? Object.values(names?.streams ?? {})[0];
};

/** What may stand at the caret. @returns {{word: string, offers: Offer[]}} */
const offered = () => {
  const before = area.value.slice(0, area.selectionStart);
  const lines = area.value.split("\n"), row = before.split("\n").length - 1;
  const line = before.slice(before.lastIndexOf("\n") + 1);
  const word = /[\w.]*$/.exec(line)?.[0] ?? "";
  const own = KEY.exec(line);
  const indent = /^\s*(?:- +)*/.exec(line)?.[0].length ?? 0;
  const above = keysAbove(lines, row, indent);
  const open = line.lastIndexOf("{") > line.lastIndexOf("}") && (line.match(/"/g) ?? []).length % 2 === 0;
  const part = open ? line.slice(Math.max(line.lastIndexOf("{"), line.lastIndexOf(",")) + 1) : "";
  const path = own && open ? [...above, own[2]] : above;
  const isKey = open ? /^\s*[\w-]*$/.test(part) : /^\s*(?:- +)*[\w-]*$/.test(line);
  if (isKey) {
    const schema = schemaAt(path);
    return { word, offers: Object.entries(schema.properties ?? {}).map(([name, of]) => (
      { name, about: of.description ?? plain(of).description ?? "", then: ": " })) };
  }
  const key = (open ? /^\s*([\w-]+):/.exec(part)?.[1] : own?.[2]) ?? above.at(-1) ?? "";
  const schema = plain(schemaAt(path).properties?.[key]);
  if (schema.enum) return { word, offers: schema.enum.map((name) => ({ name, about: "", then: "" })) };
  if (schema.type === "boolean") return { word, offers: ["true", "false"].map((name) => ({ name, about: "", then: "" })) };
  if (key === "stream") {
    return { word, offers: Object.keys(names?.streams ?? {}).map((name) => ({ name, about: "a stream", then: "" })) };
  }
  if (["shadow_of", "allows", "over_alerts"].includes(key)) {
    return { word, offers: (names?.rules ?? []).map((name) => ({ name, about: "a rule", then: "" })) };
  }
  if (FREE.has(key)) return { word, offers: [] };
  const stream = streamNear(lines, row);
  return { word, offers: [
    ...measuresNear(lines, row).map((name) => ({ name, about: "a measure", then: "" })),
    ...Object.entries(stream?.fields ?? {}).map(([name, kind]) => ({ name, about: kind, then: "" })),
    ...(stream?.tables ?? []).map((name) => ({ name, about: `a list, of ${names?.tables[name]}`, then: "" })),
  ] };
};

const list = document.createElement("ul");
list.id = "offers";
list.setAttribute("role", "listbox");
list.setAttribute("aria-label", "Completions");
list.hidden = true;
box.append(list);
area.setAttribute("aria-autocomplete", "list");

let chosen = 0;
/** @type {{word: string, offers: Offer[]}} */
let shown = { word: "", offers: [] };

const close = () => {
  list.hidden = true;
  area.removeAttribute("aria-activedescendant");
  area.removeAttribute("aria-controls");
};

/** @param {number} at */
const choose = (at) => {
  chosen = (at + shown.offers.length) % shown.offers.length;
  for (const [index, each] of [...list.children].entries()) each.setAttribute("aria-selected", `${index === chosen}`);
  const current = list.children[chosen];
  current.scrollIntoView({ block: "nearest" });
  area.setAttribute("aria-activedescendant", current.id);
};

/** Offer what fits the word before the caret. @param {boolean} asked by the key for it, also without a word. */
const complete = (asked) => {
  const { word, offers } = offered();
  const fits = offers.filter(({ name }) => name.startsWith(word) && (asked || name !== word)).slice(0, MOST_OFFERS);
  if (area.selectionStart !== area.selectionEnd || fits.length === 0 || (!asked && word === "")
    || (!asked && offers.some(({ name, then }) => name === word && then === ""))) {
    close();
    return;
  }
  shown = { word, offers: fits };
  list.replaceChildren(...fits.map(({ name, about }, index) => {
    const item = document.createElement("li"), small = document.createElement("small");
    item.id = `offer-${index}`;
    item.setAttribute("role", "option");
    small.textContent = about.length > 70 ? `${about.slice(0, 69)}…` : about;
    item.append(name, " ", small);
    item.addEventListener("mousedown", (event) => {
      event.preventDefault();
      chosen = index;
      take();
    });
    return item;
  }));
  list.hidden = false;
  area.setAttribute("aria-controls", list.id);
  place();
  choose(0);
};

/** Below the caret, within the text's box; gone where the caret is scrolled out of it. */
const place = () => {
  const before = area.value.slice(0, area.selectionStart).split("\n");
  const style = getComputedStyle(area);
  const below = before.length * height() - area.scrollTop;
  if (below < 0 || below > area.clientHeight + height()) {
    close();
    return;
  }
  const top = area.offsetTop + parseFloat(style.paddingTop) + below + 2;
  const left = area.offsetLeft + parseFloat(style.paddingLeft) + ((before.at(-1) ?? "").length - shown.word.length) * width() - area.scrollLeft;
  list.style.top = `${top}px`;
  list.style.left = `${Math.max(0, Math.min(left, box.clientWidth - list.offsetWidth))}px`;
};

const canvas = document.createElement("canvas").getContext("2d");
const width = () => {
  if (!canvas) return 8;
  canvas.font = getComputedStyle(area).font;
  return canvas.measureText("0").width;
};

/** Put a text in the place of the selection, so that the browser can undo it. @param {string} text */
const insert = (text) => {
  if (!document.execCommand("insertText", false, text)) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
  }
};

const take = () => {
  const { name, then } = shown.offers[chosen];
  const { word } = shown;
  close();
  insert(name.slice(word.length) + then);
  close();
};

area.addEventListener("input", () => complete(false));
area.addEventListener("blur", close);

// --- indentation; after Escape the key Tab leaves the text, as it does elsewhere

let leaves = false;

/** Indent the lines of the selection, or the line of the caret. @param {boolean} less */
const indent = (less) => {
  const { selectionStart: begin, selectionEnd: end, value } = area;
  if (begin === end && !less) {
    insert(INDENT);
    return;
  }
  const first = value.lastIndexOf("\n", begin - 1) + 1;
  const changed = value.slice(first, end).split("\n").map((line) => (less ? line.replace(/^ {1,2}/, "") : INDENT + line)).join("\n");
  area.setSelectionRange(first, end);
  if (changed === "") {
    document.execCommand("delete");
  } else insert(changed);
  const at = first + changed.length;
  area.setSelectionRange(begin === end ? at : first, at);
};

area.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const plainKey = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.ctrlKey && event.key === " ") {
    event.preventDefault();
    complete(true);
    return;
  }
  if (!list.hidden && plainKey) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
      return;
    }
    if (event.key === "Escape") {
      event.preventDefault();
      close();
      return;
    }
    if ((event.key === "Enter" || event.key === "Tab") && !event.shiftKey) {
      event.preventDefault();
      take();
      return;
    }
  }
  if (event.key === "Tab" && plainKey && !leaves) {
    event.preventDefault();
    indent(event.shiftKey);
  } else if (event.key === "Enter" && plainKey && !event.shiftKey) {
    event.preventDefault();
    const line = area.value.slice(area.value.lastIndexOf("\n", area.selectionStart - 1) + 1, area.selectionStart);
    insert(`\n${/^ */.exec(line)?.[0] ?? ""}`);
    close();
  } else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") close();
  if (event.key !== "Shift" && event.key !== "Tab") leaves = event.key === "Escape";
});
area.addEventListener("focus", () => {
  leaves = false;
});

const keys = document.getElementById("keys");
if (keys) keys.hidden = false;
number();
mark();
