// Elements, without any markup in strings: names of topics and contents of messages are only text.

/** h("a", {href: "/", class: "x", on: {click}}, "text", node, [more]) */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replaces the content only if `key` differs from the last one: nothing moves or loses focus. */
export function fill(element, key, make) {
  const text = JSON.stringify(key) ?? "";
  if (element.dataset.shown === text) return false;
  const isFirst = element.dataset.shown === undefined;
  element.dataset.shown = text;
  element.replaceChildren(...flat([make()]));
  return !isFirst;
}

/** A sentence of the server with its `commands` set apart. */
export function marked(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

export function chip(text, kind, title) {
  return h("span", { class: `chip ${kind ?? ""}`, title }, text);
}

/** An address of this console, without the parameters that are empty. */
export function url(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export function number(value) {
  return value === undefined || value === null ? "–" : value.toLocaleString("en");
}

/** "1 group", "2 groups". */
export function count(value, noun) {
  return `${number(value)} ${value === 1 ? noun : `${noun}s`}`;
}

export function bytes(value) {
  if (value < 10_000) return `${number(value)} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let size = value / 1000;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size.toFixed(size < 10 ? 1 : 0)} ${units[unit]}`;
}

export function age(ms) {
  if (ms === undefined || ms === null) return "never";
  if (ms < 1000) return "under 1 s";
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`;
}

const pad = (value, length = 2) => String(value).padStart(length, "0");

/** 2026-11-25 21:40:03.123, by the clock of the browser's place. */
export function time(ms, { withDate = true } = {}) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
  if (!withDate) return clock;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock}`;
}

export function debounce(act, ms) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), ms);
  };
}
