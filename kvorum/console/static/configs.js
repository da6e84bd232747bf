// Configs of a topic, of a broker, or of all brokers: values, their sources, defaults too.

import { h, chip, fill, url } from "./dom.js";
import { ask } from "./live.js";
import { heading } from "./parts.js";
import { liveTable } from "./table.js";
import { checkbox } from "./topics.js";

const DEFAULTS = new Set(["DEFAULT_CONFIG", "STATIC_BROKER_CONFIG"]);

export function configs(context) {
  const kind = context.parameters.get("kind") ?? "broker";
  const name = context.parameters.get("name") ?? "";
  const isFirst = !context.parameters.has("kind");
  const ids = h("datalist", { id: "brokers" });
  const lead = heading(context, "Configs", "Values only: this page changes none. Passwords are hidden.");
  let rows = [];
  let isSetOnly = false;

  const kinds = h("select", {}, ["topic", "broker"].map((each) => h("option", { value: each, selected: each === kind }, each)));
  const names = h("input", { value: name, list: "brokers", placeholder: "name, or empty: all brokers", autocomplete: "off", spellcheck: "false" });
  const text = h("input", { type: "search", placeholder: "part of a key or value", autocomplete: "off", on: { input: draw } });
  const form = h(
    "form",
    {
      class: "filters boxed",
      on: {
        submit: (event) => {
          event.preventDefault();
          context.go(url("/configs", { kind: kinds.value, name: names.value.trim() }));
        },
      },
    },
    h("label", {}, h("span", {}, "kind"), kinds),
    h("label", { class: "grow" }, h("span", {}, "name"), names),
    ids,
    h("button", { type: "submit", class: "main" }, "Show"),
  );
  const table = liveTable({
    caption: "Configs",
    empty: "No config is set here, or none matches.",
    columns: [
      { title: "config", of: (r) => r.name, show: (key) => h("code", {}, key), wide: true },
      { title: "value", of: (r) => [r.value, r.is_sensitive], show: ([value, isSensitive]) => (isSensitive ? chip("hidden", "") : h("code", { class: "value" }, value || "–")), wide: true },
      { title: "source", of: (r) => r.source, show: (source) => chip(source.replace("_CONFIG", "").replaceAll("_", " ").toLowerCase(), DEFAULTS.has(source) ? "" : "leads") },
      { title: "type", of: (r) => r.type.toLowerCase() },
      { title: "changes", of: (r) => (r.read_only ? "at a start" : "at run time") },
    ],
  });
  context.main.append(
    form,
    h("form", { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
      h("label", {}, "Search ", text),
      checkbox("only what is set", false, (on) => {
        isSetOnly = on;
        draw();
      })),
    table.element,
  );
  table.element.hidden = true;

  function draw() {
    const part = text.value.toLowerCase();
    const shown = rows.filter(
      (row) => (!isSetOnly || !DEFAULTS.has(row.source)) && `${row.name} ${row.value ?? ""}`.toLowerCase().includes(part),
    );
    table.element.hidden = false;
    table.update(shown.map((row) => row.name), Object.fromEntries(shown.map((row) => [row.name, row])));
  }

  context.watch("status", {}, (document) => {
    const brokers = document.brokers ?? [];
    fill(ids, brokers, () => brokers.map((id) => h("option", { value: id })));
    // Without a choice the page shows some broker, for all of them have the same defaults.
    if (isFirst && brokers.length && context.parameters.size === 0) {
      context.go(url("/configs", { kind: "broker", name: brokers[0] }), { replaces: true });
    }
  });
  if (isFirst || (kind === "topic" && !name)) return;
  const control = new AbortController();
  context.onStop(() => control.abort());
  ask(`/api/configs?${new URLSearchParams({ kind, name })}`, { signal: control.signal })
    .then((found) => {
      rows = found.rows;
      const whose = kind === "topic" ? `topic ${name}` : name ? `broker ${name}` : "all brokers";
      lead.textContent = `Configs of ${whose}. This page changes none; passwords are hidden.`;
      draw();
    })
    .catch(context.problem);
}
