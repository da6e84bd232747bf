// Messages of a partition: by offset, by time, by key. Reading them leaves no trace in the cluster.

import { h, bytes, chip, number, time, url } from "./dom.js";
import { ask } from "./live.js";
import { heading } from "./parts.js";
import { liveTable } from "./table.js";
import { cleaned } from "./topics.js";

const LIST_LINES_MAX = 8;

export function messages(context) {
  const state = Object.fromEntries(context.parameters);
  context.watch("status", {}, () => {});
  const lead = heading(context, "Messages", "Reads without a group: nothing is committed.");
  const form = formOf(state, (asked) => context.go(url("/messages", asked)));
  const table = messageTable((row) => open(context, state, row));
  const note = h("p", { class: "note soft", role: "status" });
  const pages = h("nav", { class: "pager", "aria-label": "Pages of messages" });
  context.main.append(form, note, table.element, pages);
  table.element.hidden = true;
  if (!state.topic) return;

  const control = new AbortController();
  context.onStop(() => control.abort());
  note.textContent = "Reading …";
  ask(url("/api/messages", cleaned(state)), { signal: control.signal })
    .then((page) => draw(page))
    .catch((error) => {
      note.textContent = "";
      context.problem(error);
    });

  function draw(page) {
    table.element.hidden = false;
    lead.replaceChildren(
      h("a", { href: url("/topic", { name: page.topic }) }, page.topic),
      state.partition === "all" ? ", all partitions" : ` partition ${page.partition}: offsets ${number(page.first)} to ${number(page.end)} (exclusive)`,
    );
    note.textContent = page.note ?? "";
    const keys = page.rows.map((row) => `${row.partition}/${row.offset}`);
    table.update(keys, Object.fromEntries(page.rows.map((row) => [`${row.partition}/${row.offset}`, row])));
    pages.replaceChildren(...links(page));
  }

  function links(page) {
    const base = { topic: page.topic, partition: state.partition, decode: state.decode, limit: state.limit };
    const link = (text, more, isThere) =>
      isThere ? h("a", { class: "button", href: url("/messages", { ...base, ...more }) }, text) : h("span", { class: "button off" }, text);
    if (page.is_search) {
      const isMore = page.next < page.end && state.partition !== "all";
      return [link("Search on →", { key: state.key, from: "offset", value: page.next }, isMore)];
    }
    return [
      link("Oldest", { from: "earliest" }, page.start > page.first),
      link("← Older", { before: page.start }, page.start > page.first),
      link("Newer →", { from: "offset", value: page.next }, page.next < page.end),
      link("Newest", { from: "latest" }, true),
    ];
  }
}

function formOf(state, go) {
  const field = (label, input, kind) => h("label", { class: kind }, h("span", {}, label), input);
  const topic = h("input", { name: "topic", required: true, value: state.topic ?? "", autocomplete: "off", spellcheck: "false" });
  const partition = h("input", { name: "partition", value: state.partition ?? "0", size: 4, pattern: "[0-9]+|all", title: "a number, or all with a key" });
  const from = select("from", ["latest", "earliest", "offset", "time"], state.from ?? "latest");
  const value = h("input", { name: "value", value: valueText(state), autocomplete: "off" });
  const key = h("input", { name: "key", value: state.key ?? "", placeholder: "text or 0x…", autocomplete: "off", spellcheck: "false" });
  const decode = select("decode", ["auto", "text", "json", "hex"], state.decode ?? "auto");
  const adapt = () => {
    const isTime = from.value === "time";
    value.disabled = from.value !== "offset" && !isTime;
    value.required = !value.disabled;
    value.type = isTime ? "datetime-local" : "text";
    value.inputMode = isTime ? "" : "numeric";
    if (isTime) value.step = "0.001";
  };
  from.addEventListener("change", () => {
    value.value = "";
    adapt();
  });
  adapt();
  if (state.from === "time") value.value = valueText(state);
  const submit = (event) => {
    event.preventDefault();
    const asked = {
      topic: topic.value.trim(),
      partition: partition.value.trim(),
      from: from.value === "latest" ? "" : from.value,
      value: value.disabled ? "" : from.value === "time" ? String(new Date(value.value).getTime()) : value.value.trim(),
      key: key.value,
      decode: decode.value === "auto" ? "" : decode.value,
    };
    go(asked);
  };
  return h(
    "form",
    { class: "filters boxed", on: { submit } },
    field("topic", topic, "grow"),
    field("partition", partition),
    field("from", from),
    field("offset or time", value),
    field("key", key, "grow"),
    field("decode", decode),
    h("button", { type: "submit", class: "main" }, "Read"),
  );
}

function valueText(state) {
  if (state.from !== "time" || !state.value) return state.value ?? "";
  const at = new Date(Number(state.value));
  const local = new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  return Number.isNaN(local.getTime()) ? "" : local.toISOString().slice(0, 23);
}

function select(name, options, chosen) {
  return h("select", { name }, options.map((each) => h("option", { value: each, selected: each === chosen }, each)));
}

function messageTable(openRow) {
  return liveTable({
    caption: "Messages",
    empty: "No message here.",
    columns: [
      {
        title: "offset",
        of: (r) => [r.partition, r.offset],
        show: ([, offset], row) =>
          h("button", { type: "button", class: "link", "aria-label": `open the message at offset ${offset}`, on: { click: () => openRow(row) } }, number(offset)),
        numeric: true,
      },
      { title: "time", of: (r) => r.timestamp_ms, show: (ms) => h("time", { class: "nowrap" }, time(ms)) },
      { title: "key", of: (r) => r.key, show: (data) => content(data, 3) },
      { title: "value", of: (r) => [r.value, r.marker], show: ([data, marker]) => (marker ? chip(`transaction ${marker}`, "") : content(data, LIST_LINES_MAX)), wide: true },
      { title: "headers", of: (r) => r.headers, show: headerText },
    ],
  });
}

function headerText(headers) {
  if (!headers.length) return "–";
  return headers.map((header) => h("div", { class: "nowrap-cut" }, `${header.key}=${header.value.text}`));
}

/** Bytes as the server decoded them; says their form and what was cut. */
function content(data, linesMax) {
  if (data.form === "null") return h("span", { class: "soft" }, "null");
  if (data.bytes === 0) return h("span", { class: "soft" }, "empty");
  const lines = data.text.split("\n");
  const isLong = linesMax && lines.length > linesMax;
  const text = isLong ? `${lines.slice(0, linesMax).join("\n")}\n…` : data.text;
  return [
    h("pre", { class: `content ${data.form}` }, text),
    data.is_cut || data.form === "hex"
      ? h("span", { class: "soft small" }, `${data.form}, ${bytes(data.bytes)}${data.is_cut ? ", only the beginning is shown" : ""}`)
      : null,
  ];
}

async function open(context, state, row) {
  const topic = state.topic;
  let message;
  try {
    message = await ask(url("/api/message", { topic, partition: row.partition, offset: row.offset, decode: state.decode }));
  } catch (error) {
    context.problem(error);
    return;
  }
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog = h(
    "dialog",
    { class: "message", "aria-label": `Message ${row.offset} of ${topic}-${row.partition}` },
    h("div", { class: "card-head" }, h("h2", {}, `${topic}-${row.partition}, offset ${number(row.offset)}`), close),
    h(
      "dl",
      { class: "facts" },
      [
        ["time", `${time(message.timestamp_ms)} (${message.timestamp_type})`],
        ["codec", message.codec],
        ["transactional", message.is_transactional ? "yes" : "no"],
      ].map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text))),
    ),
    h("h3", {}, `Key, ${bytes(message.key.bytes)}`),
    content(message.key),
    h("h3", {}, `Value, ${bytes(message.value.bytes)}`),
    content(message.value),
    h("h3", {}, "Headers"),
    message.headers.length
      ? h("dl", { class: "facts" }, message.headers.map((header) => h("div", {}, h("dt", {}, header.key), h("dd", {}, content(header.value)))))
      : h("p", { class: "soft" }, "none"),
    message.headers_left_out ? h("p", { class: "soft" }, `and ${number(message.headers_left_out)} more`) : null,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
