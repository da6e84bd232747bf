// Groups of consumers and share groups with their lag; one group with its members and partitions.

import { h, chip, count, debounce, number, url } from "./dom.js";
import { heading } from "./parts.js";
import { liveTable, pager } from "./table.js";
import { cleaned } from "./topics.js";

const KINDS = { Stable: "good", Empty: "", Dead: "bad" };
const stateOf = (state) => chip(state, KINDS[state] ?? "warn");
const lagOf = (lag) => (lag > 0 ? chip(number(lag), "warn") : number(lag));

export function groups(context) {
  const state = Object.fromEntries(context.parameters);
  const lead = heading(context, "Groups");
  const search = h("input", {
    type: "search", value: state.q ?? "", placeholder: "part of a name", autocomplete: "off",
    on: { input: debounce(() => set({ q: search.value, start: "" }), 150) },
  });
  const pages = pager((start) => set({ start: start || "" }));
  const table = liveTable({
    caption: "Groups",
    empty: "No group.",
    columns: [
      { title: "group", of: (r) => r.group, show: (name) => h("a", { href: url("/group", { name }) }, name || "(empty name)"), wide: true },
      { title: "state", of: (r) => r.state, show: stateOf, flash: true },
      { title: "type", of: (r) => r.type },
      { title: "assignor", of: (r) => r.protocol || "–" },
      { title: "members", of: (r) => r.members, show: number, numeric: true, flash: true },
      { title: "partitions", of: (r) => r.partitions, show: number, numeric: true },
      { title: "lag", of: (r) => r.lag, show: lagOf, numeric: true },
      { title: "coordinator", of: (r) => r.coordinator, numeric: true },
    ],
  });
  context.main.append(
    h("form", { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } }, h("label", {}, "Search ", search)),
    table.element, pages.element,
  );
  let stop = () => {};

  function set(changes) {
    Object.assign(state, changes);
    context.go(url("/groups", state), { isSilent: true, replaces: true });
    start();
  }

  function start() {
    stop();
    stop = context.watch("groups", cleaned(state), (document) => {
      if (!document.rows || document.is_waiting) {
        lead.textContent = "Asking the coordinators …";
        return;
      }
      const more = document.left_out ? `; ${number(document.left_out)} more are not described here` : "";
      lead.textContent = `${count(document.total, "group")}${more}. Messages browsed in this console belong to none.`;
      table.update(document.order, document.rows);
      pages.update(document, "group");
    });
  }
  start();
}

const partitionLink = ([topic, partition]) =>
  h("a", { href: url("/messages", { topic, partition }) }, `${topic}-${partition}`);

const figure = (title, of) => ({ title, of, show: number, numeric: true, flash: true });

/** What only the metrics of a share-partition's leader have: "–" while no member fetches from it. */
const FIGURES = [
  figure("in flight", (r) => r.in_flight),
  figure("held", (r) => r.held),
  figure("delivered 1×", (r) => r.delivered_once),
  figure("2×", (r) => r.delivered_twice),
  figure("3× or more", (r) => r.delivered_more),
];

/** The columns of a group's partitions. In a share group several members may have a partition. */
export function partitionColumns(type) {
  const isShare = type === "share";
  return [
    { title: "partition", of: (r) => [r.topic, r.partition], show: partitionLink, wide: true },
    { title: isShare ? "start" : "committed", of: (r) => r.committed_offset, show: number, numeric: true, flash: true },
    { title: "end", of: (r) => r.end_offset, show: number, numeric: true },
    { title: "lag", of: (r) => r.lag, show: lagOf, numeric: true },
    ...(isShare ? FIGURES : []),
    isShare
      ? { title: "members", of: (r) => (r.members ?? []).join(", ") || "–", wide: true }
      : { title: "member", of: (r) => r.member_id, wide: true },
  ];
}

/** The columns of a group's members: only the classic protocol has no epoch of a member, and only share groups have no instances. */
export function memberColumns(type) {
  return [
    { title: "member", of: (r) => r.member_id, wide: true },
    { title: "client", of: (r) => r.client_id },
    { title: "host", of: (r) => r.client_host },
    type !== "share" && { title: "instance", of: (r) => r.group_instance_id },
    type !== "classic" && { title: "epoch", of: (r) => r.member_epoch, show: number, numeric: true, flash: true },
    { title: "partitions", of: (r) => (r.partitions ?? []).join(", ") || "–", wide: true, flash: true },
    type === "streams" && { title: "tasks", of: (r) => (r.active_tasks ?? []).join(", ") || "–", wide: true, flash: true },
    type === "streams" && { title: "standbys", of: (r) => (r.standby_tasks ?? []).join(", ") || "–", wide: true, flash: true },
  ].filter(Boolean);
}

/** The two tables of a group: their columns depend on its type, which the first document tells. */
function tablesOf(type, pages) {
  const isShare = type === "share";
  const offsets = liveTable({
    caption: "Partitions of the group",
    empty: isShare ? "No partition of the group has begun yet." : "The group has committed no offset.",
    columns: partitionColumns(type),
  });
  const members = liveTable({
    caption: "Members of the group",
    empty: "The group has no members.",
    columns: memberColumns(type),
  });
  const note = h("p", { class: "note", hidden: true });
  const panels = [
    h("section", { class: "panel" }, h("h2", {}, isShare ? "Share-partitions" : "Offsets"), note, offsets.element, pages.element),
    h("section", { class: "panel" }, h("h2", {}, "Members"), members.element),
  ];
  return { type, offsets, members, note, panels };
}

export function group(context) {
  const state = Object.fromEntries(context.parameters);
  const lead = heading(context, state.name || "Group");
  const pages = pager((start) => {
    context.go(url("/group", { ...state, start: start || "" }));
  });
  let tables = null;
  context.watch("group", cleaned(state), (document) => {
    if (!document.rows) return;
    if (tables?.type !== document.type) {
      // A group that was deleted may come back as one of another type.
      for (const panel of tables?.panels ?? []) panel.remove();
      tables = tablesOf(document.type, pages);
      context.main.append(...tables.panels);
    }
    lead.replaceChildren(stateOf(document.state), ` ${document.type} group, coordinator broker ${document.coordinator}, lag ${number(document.lag)}`);
    tables.note.textContent = document.figures_note ?? "";
    tables.note.hidden = !document.figures_note;
    tables.offsets.update(document.order, document.rows);
    pages.update(document, "partition");
    tables.members.update(Object.keys(document.member_rows), document.member_rows);
  });
}
