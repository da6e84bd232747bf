// Topics, a page of them at a time, and one topic with its partitions and their ISRs.

import { h, chip, count, debounce, fill, number, url } from "./dom.js";
import { PARTITION_TILES, heading, newsList, replicaChips, stateChip, tiles } from "./parts.js";
import { liveTable, pager } from "./table.js";

export function topics(context) {
  const state = Object.fromEntries(context.parameters);
  const lead = heading(context, "Topics");
  const figures = tiles([{ label: "topics", of: (d) => d.totals.topics }, ...PARTITION_TILES]);
  let stop = () => {};

  const search = h("input", {
    type: "search",
    value: state.q ?? "",
    placeholder: "part of a name",
    autocomplete: "off",
    on: { input: debounce(() => set({ q: search.value, start: "" }), 150) },
  });
  const sort = h(
    "select",
    { on: { change: () => set({ sort: sort.value, start: "" }) } },
    ["name", "partitions", "problems"].map((name) => h("option", { value: name, selected: state.sort === name }, name)),
  );
  const only = checkbox("problems only", state.only === "problems", (on) => set({ only: on ? "problems" : "", start: "" }));
  const internal = checkbox("internal topics", state.internal === "1", (on) => set({ internal: on ? "1" : "", start: "" }));
  const pages = pager((start) => set({ start: start || "" }));
  const table = liveTable({
    caption: "Topics",
    empty: "No topic matches.",
    columns: [
      { title: "topic", of: (r) => r.name, show: (name) => h("a", { href: url("/topic", { name }) }, name), wide: true },
      { title: "partitions", of: (r) => r.partitions, show: number, numeric: true, flash: true },
      { title: "replicas", of: (r) => r.replication_factor, numeric: true },
      { title: "min ISR", of: (r) => r.min_isr, show: number, numeric: true },
      { title: "state", of: (r) => [r.offline, r.under_min_isr, r.under_replicated], show: states, flash: true },
      { title: "messages", of: (r) => r.name, show: (topic) => h("a", { href: url("/messages", { topic }) }, "browse") },
    ],
  });
  context.main.append(
    figures.element,
    h("form", { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
      h("label", {}, "Search ", search), h("label", {}, "Sort by ", sort), only, internal),
    table.element,
    pages.element,
  );

  function set(changes) {
    Object.assign(state, changes);
    context.go(url("/topics", state), { isSilent: true, replaces: true });
    start();
  }

  function start() {
    stop();
    stop = context.watch("topics", cleaned(state), (document) => {
      if (!document.rows) return;
      lead.textContent = `${count(document.total, "topic")} with ${count(document.totals.partitions, "partition")}.`;
      figures.update(document);
      table.update(document.order, document.rows);
      pages.update(document, "topic");
    });
  }
  start();
}

export function topic(context) {
  const state = Object.fromEntries(context.parameters);
  const name = state.name ?? "";
  const lead = heading(context, name || "Topic");
  const links = h(
    "p",
    { class: "links" },
    h("a", { href: url("/replication", { name }) }, "Replication"),
    h("a", { href: url("/messages", { topic: name }) }, "Messages"),
    h("a", { href: url("/configs", { kind: "topic", name }) }, "Configs"),
    h("a", { href: url("/metadata", { path: `/topics/${name}` }) }, "Metadata"),
  );
  const table = liveTable({
    caption: `Partitions of ${name}`,
    empty: "No partition matches.",
    columns: [
      { title: "partition", of: (r) => r.partition, show: (partition) => h("a", { href: url("/messages", { topic: name, partition }) }, partition) },
      { title: "state", of: (r) => r.state, show: stateChip, flash: true },
      { title: "leader", of: (r) => r.leader, show: (id) => (id === undefined || id === null ? chip("none", "bad") : id), numeric: true, flash: true },
      { title: "epoch", of: (r) => r.leader_epoch, numeric: true },
      { title: "replicas and ISR", of: (r) => ({ replicas: r.replicas, isr: r.isr, leader: r.leader, adding: r.adding, removing: r.removing }), show: replicaChips, flash: true },
      { title: "ELR", of: (r) => r.elr.join(", ") || "–" },
    ],
  });
  const pages = pager((start) => set({ start: start || "" }));
  const only = checkbox("problems only", state.only === "problems", (on) => set({ only: on ? "problems" : "", start: "" }));
  const news = newsList({ isShort: true });
  const key = h("p", { class: "soft note" });
  fill(key, "key", () => [
    "Replicas: ",
    h("span", { class: "replica in leads" }, "1"), " leads, ",
    h("span", { class: "replica in" }, "2"), " in sync, ",
    h("span", { class: "replica out" }, "3"), " not in sync.",
  ]);
  context.main.append(
    links,
    h("form", { class: "filters", on: { submit: (event) => event.preventDefault() } }, only),
    table.element, key, pages.element, news.element,
  );
  let stop = () => {};

  function set(changes) {
    Object.assign(state, changes);
    context.go(url("/topic", state), { isSilent: true, replaces: true });
    start();
  }

  function start() {
    stop();
    stop = context.watch("topic", cleaned(state), (document) => {
      if (!document.rows) return;
      const { partitions, replication_factor: copies, min_isr: minIsr } = document.summary;
      lead.replaceChildren(
        `${count(partitions, "partition")}, ${count(copies, "replica")}, min.insync.replicas ${number(minIsr)}, id `,
        h("code", {}, document.topic_id),
      );
      table.update(document.order, document.rows);
      pages.update(document, "partition");
      news.update(document.news);
    });
  }
  start();
}

function states([offline, underMin, under]) {
  const parts = [];
  if (offline) parts.push(chip(`${number(offline)} offline`, "bad"));
  if (underMin) parts.push(chip(`${number(underMin)} under min ISR`, "bad"));
  if (under) parts.push(chip(`${number(under)} under-replicated`, "warn"));
  return parts.length ? h("span", { class: "process" }, parts) : chip("ok", "good");
}

export function checkbox(label, isOn, act) {
  const box = h("input", { type: "checkbox", checked: isOn, on: { change: () => act(box.checked) } });
  return h("label", { class: "check" }, box, ` ${label}`);
}

export function cleaned(state) {
  return Object.fromEntries(Object.entries(state).filter(([, value]) => value !== "" && value !== undefined));
}
