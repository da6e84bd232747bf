// Consumer groups with their lag; one group with its members and partitions.

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
    caption: "Consumer groups",
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

export function group(context) {
  const state = Object.fromEntries(context.parameters);
  const lead = heading(context, state.name || "Group");
  const offsets = liveTable({
    caption: "Partitions of the group",
    empty: "The group has committed no offset.",
    columns: [
      { title: "partition", of: (r) => [r.topic, r.partition], show: ([topic, partition]) => h("a", { href: url("/messages", { topic, partition }) }, `${topic}-${partition}`), wide: true },
      { title: "committed", of: (r) => r.committed_offset, show: number, numeric: true, flash: true },
      { title: "end", of: (r) => r.end_offset, show: number, numeric: true },
      { title: "lag", of: (r) => r.lag, show: lagOf, numeric: true },
      { title: "member", of: (r) => r.member_id, wide: true },
    ],
  });
  const members = liveTable({
    caption: "Members of the group",
    empty: "The group has no members.",
    columns: [
      { title: "member", of: (r) => r.member_id, wide: true },
      { title: "client", of: (r) => r.client_id },
      { title: "host", of: (r) => r.client_host },
      { title: "instance", of: (r) => r.group_instance_id },
      { title: "partitions", of: (r) => (r.partitions ?? []).join(", ") || "–", wide: true, flash: true },
    ],
  });
  const pages = pager((start) => {
    context.go(url("/group", { ...state, start: start || "" }));
  });
  context.main.append(
    h("section", { class: "panel" }, h("h2", {}, "Offsets"), offsets.element, pages.element),
    h("section", { class: "panel" }, h("h2", {}, "Members"), members.element),
  );
  context.watch("group", cleaned(state), (document) => {
    if (!document.rows) return;
    lead.replaceChildren(stateOf(document.state), ` ${document.type} group, coordinator broker ${document.coordinator}, lag ${number(document.lag)}`);
    offsets.update(document.order, document.rows);
    pages.update(document, "partition");
    members.update(Object.keys(document.member_rows), document.member_rows);
  });
}
