// The metadata as a tree, at any offset: a slider walks through the log. Two offsets compared.

import { h, chip, debounce, fill, number, time, url } from "./dom.js";
import { ask } from "./live.js";
import { heading } from "./parts.js";
import { liveTable, pager } from "./table.js";

export function metadata(context) {
  const state = { path: "/", ...Object.fromEntries(context.parameters) };
  context.watch("status", {}, () => {});
  const lead = heading(context, "Metadata", "Reading the metadata log …");
  let isFirst = true;
  const slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "offset", on: { input: () => move(Number(slider.value)) } });
  const offset = h("input", { type: "number", min: 0, "aria-label": "offset as a number", on: { change: () => move(Number(offset.value)) } });
  const step = (text, by, label) => h("button", { type: "button", "aria-label": label, on: { click: () => move(Number(slider.value) + by) } }, text);
  const newest = h("button", { type: "button", on: { click: () => move(null) } }, "Newest");
  const when = h("output", { class: "soft when" });
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Path" });
  const table = liveTable({
    caption: "Entries",
    empty: "An empty folder.",
    columns: [
      {
        title: "name",
        of: (r) => [r.name, r.is_folder],
        show: ([name, isFolder]) =>
          isFolder
            ? h("a", { href: addressOf(below(name)), on: { click: (event) => enter(event, below(name)) } }, `${name}/`)
            : h("code", {}, name || "value"),
        wide: true,
      },
      { title: "value", of: (r) => r.text ?? null, show: (text) => (text === null ? h("span", { class: "soft" }, "folder") : h("code", { class: "value" }, text)), wide: true, flash: true },
    ],
  });
  const pages = pager((start) => {
    state.start = start || "";
    read();
  });
  const records = h("ol", { class: "feed" });
  const compared = differencePanel(context, state, () => Number(slider.value));
  context.main.append(
    h("div", { class: "travel panel" }, h("div", { class: "travel-row" }, step("−", -1, "one offset back"), slider, step("+", 1, "one offset on"), offset, newest), when),
    crumbs,
    h("div", { class: "pair wide-left" },
      h("section", { class: "panel" }, h("h2", {}, "Tree"), table.element, pages.element),
      h("section", { class: "panel" }, h("h2", {}, "Last records before it"), records)),
    compared.element,
  );

  let control = new AbortController();
  context.onStop(() => control.abort());
  const ready = debounce(read, 60);

  function below(name) {
    return state.path === "/" ? `/${name}` : `${state.path}/${name}`;
  }

  function addressOf(path) {
    return url("/metadata", { ...kept(), path });
  }

  function kept() {
    return { path: state.path === "/" ? "" : state.path, at: state.at, from: state.from, to: state.to };
  }

  function enter(event, path) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.path = path;
    state.start = "";
    context.go(addressOf(path), { isSilent: true });
    read();
  }

  function move(at) {
    if (at !== null && !Number.isFinite(at)) return;
    const place = at === null ? null : Math.min(Math.max(at, Number(slider.min)), Number(slider.max));
    state.at = place === null ? "" : String(place);
    if (place !== null) slider.value = offset.value = place;
    ready();
  }

  async function read() {
    control.abort();
    control = new AbortController();
    try {
      const document = await ask(url("/api/metadata", { path: state.path, at: state.at, start: state.start }), { signal: control.signal });
      draw(document);
      context.clearProblem();
      context.go(url("/metadata", kept()), { isSilent: true, replaces: true });
    } catch (error) {
      if (error.name !== "AbortError" && isFirst) lead.textContent = "The metadata log was not read.";
      context.problem(error);
    }
  }

  function draw(document) {
    isFirst = false;
    slider.min = offset.min = document.first;
    slider.max = offset.max = document.end;
    slider.value = offset.value = document.at;
    slider.setAttribute("aria-valuetext", `offset ${document.at}, ${time(document.timestamp_ms)}`);
    lead.textContent = `As of offset ${number(document.at)} (exclusive); the log reaches ${number(document.first)} to ${number(document.end)}.`;
    when.textContent = document.timestamp_ms ? `The record before it is of ${time(document.timestamp_ms)}.` : "Before the first record.";
    fill(crumbs, document.path, () => crumbLinks(document.path));
    table.update(document.entries.map((entry) => entry.name), Object.fromEntries(document.entries.map((entry) => [entry.name, entry])));
    pages.update(document, "item");
    fill(records, document.records, () => document.records.map(recordLine));
  }

  function crumbLinks(path) {
    const parts = path.split("/").filter(Boolean);
    const links = [h("a", { href: addressOf("/"), on: { click: (event) => enter(event, "/") } }, "metadata")];
    parts.forEach((part, index) => {
      const target = `/${parts.slice(0, index + 1).join("/")}`;
      links.push(h("span", { class: "soft" }, " / "), h("a", { href: addressOf(target), on: { click: (event) => enter(event, target) } }, part));
    });
    return links;
  }

  // Without a chosen offset the page follows the end of the log.
  const timer = setInterval(() => {
    if (!state.at && !document.hidden && !control.signal.aborted) read();
  }, 2000);
  context.onStop(() => clearInterval(timer));
  read();
}

function recordLine(record) {
  return h("li", {},
    h("time", {}, number(record.offset)),
    h("span", {}, h("b", {}, record.type), h("span", { class: "soft" }, ` epoch ${record.epoch} `), h("code", { class: "value" }, record.text)));
}

const SIGNS = { added: ["+", "good"], removed: ["−", "bad"], changed: ["~", "warn"] };

function differencePanel(context, state, current) {
  const from = h("input", { type: "number", min: 0, value: state.from ?? "", required: true });
  const to = h("input", { type: "number", min: 0, value: state.to ?? "", required: true });
  const here = (input) => h("button", { type: "button", class: "quiet", "aria-label": "take the offset of the slider", on: { click: () => { input.value = current(); } } }, "from slider");
  const note = h("p", { class: "soft note", role: "status" }, "Choose two offsets of the log.");
  const list = h("ol", { class: "differences" });
  const compare = async () => {
    try {
      const found = await ask(url("/api/metadata/diff", { from: from.value, to: to.value }));
      state.from = from.value;
      state.to = to.value;
      const cut = found.total > found.rows.length ? `, of which ${found.rows.length} are shown` : "";
      note.textContent = `${number(found.total)} differences between offset ${number(found.from)} and ${number(found.to)}${cut}.`;
      list.replaceChildren(...found.rows.map(differenceLine));
      context.clearProblem();
    } catch (error) {
      context.problem(error);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    compare();
  };
  const form = h("form", { class: "filters", on: { submit } },
    h("label", {}, "from ", from), here(from), h("label", {}, "to ", to), here(to),
    h("button", { type: "submit", class: "main" }, "Compare"));
  if (state.from && state.to) compare();
  return { element: h("section", { class: "panel" }, h("h2", {}, "Compare two offsets"), form, note, list) };
}

function differenceLine(row) {
  const [sign, kind] = SIGNS[row.change];
  const texts = [row.before, row.after].filter((text) => text !== undefined);
  return h("li", {},
    chip(sign, kind, row.change),
    h("span", {}, h("a", { href: url("/metadata", { path: row.path }) }, row.path), " ", h("code", { class: "value" }, texts.join(" → "))));
}
