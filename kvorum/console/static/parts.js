// Parts that several pages have.

import { h, chip, fill, marked, number, time } from "./dom.js";
import { change } from "./live.js";

/** The heading of a page, with a line below it that the page keeps up to date. */
export function heading(context, title, lead) {
  const line = h("p", { class: "lead" }, lead ?? " ");
  context.main.append(h("div", { class: "heading" }, h("h1", {}, title), line));
  return line;
}

/** Figures of the cluster as tiles: {label, of(document), isBad(value)}. */
export function tiles(specifications) {
  const made = specifications.map((each) => {
    const value = h("strong", {}, "–");
    const element = h("div", { class: "tile" }, value, h("span", {}, each.label));
    return { ...each, value, element };
  });
  return {
    element: h("div", { class: "tiles" }, made.map((tile) => tile.element)),
    update(document) {
      for (const tile of made) {
        const value = tile.of(document);
        tile.value.textContent = typeof value === "number" ? number(value) : (value ?? "–");
        tile.element.classList.toggle("bad", Boolean(tile.isBad?.(value, document)));
      }
    },
  };
}

export const PARTITION_TILES = [
  { label: "partitions", of: (d) => d.totals.partitions },
  { label: "offline", of: (d) => d.totals.offline, isBad: (v) => v > 0 },
  { label: "under min ISR", of: (d) => d.totals.under_min_isr, isBad: (v) => v > 0 },
  { label: "under-replicated", of: (d) => d.totals.under_replicated, isBad: (v) => v > 0 },
];

/** The newest changes that the page saw. */
export function newsList({ isShort = false } = {}) {
  const list = h("ol", { class: `feed ${isShort ? "short" : ""}` });
  const element = h("section", { class: "panel" }, h("h2", {}, "Changes"), list);
  const update = (news) => {
    fill(list, news ?? [], () =>
      (news ?? []).length
        ? news.map((item) =>
            h("li", { class: item.kind }, h("time", {}, time(item.at_ms, { withDate: false })), h("span", {}, item.text)),
          )
        : h("li", { class: "soft" }, "None since this console began to watch."),
    );
  };
  update([]);
  return { element, update };
}

/** Replicas of a partition: the leader marked, those out of the ISR struck through. */
export function replicaChips({ replicas, isr, leader, adding, removing }) {
  return h(
    "span",
    { class: "replicas" },
    replicas.map((id) => {
      const isIn = isr.includes(id);
      const words = [id === leader && "leader", isIn ? "in sync" : "not in sync"];
      if (adding.includes(id)) words.push("being added");
      if (removing.includes(id)) words.push("being removed");
      const kind = `replica ${isIn ? "in" : "out"} ${id === leader ? "leads" : ""}`;
      const said = words.filter(Boolean).join(", ");
      return h("span", { class: kind, title: `broker ${id}: ${said}` }, id, h("span", { class: "unseen" }, ` ${said}`));
    }),
  );
}

const STATES = {
  ok: ["ok", "good"],
  offline: ["offline", "bad"],
  "under-min-isr": ["under min ISR", "bad"],
  "under-replicated": ["under-replicated", "warn"],
};

export function stateChip(state) {
  const [text, kind] = STATES[state] ?? [state, ""];
  return chip(text, kind);
}

// --- a lab --------------------------------------------------------------------------------------

const PROCESS_KINDS = { running: "good", starting: "warn", paused: "warn", dead: "bad", stopped: "" };
const BUTTONS = {
  running: ["kill", "pause"],
  starting: ["kill", "pause"],
  paused: ["resume", "kill"],
  dead: ["restart"],
  stopped: [],
};

/** The state of a node's process, and its buttons. They stay the same elements over updates. */
export function processCell(context) {
  return (process) => {
    if (!process) return h("span", { class: "soft" }, "–");
    const parts = [chip(process.state, PROCESS_KINDS[process.state], process.reason)];
    if (process.is_cut) parts.push(chip("links cut", "bad"));
    if (context.session.allows_changes) parts.push(buttonsOf(context, process));
    return h("span", { class: "process" }, parts);
  };
}

function buttonsOf(context, process) {
  const actions = [...(BUTTONS[process.state] ?? [])];
  if (process.is_cut !== undefined) actions.push(process.is_cut ? "heal" : "cut");
  return h(
    "span",
    { class: "buttons" },
    actions.map((action) =>
      h(
        "button",
        {
          type: "button",
          class: action === "kill" || action === "cut" ? "danger" : "",
          "aria-label": `${action} ${process.name}`,
          on: { click: (event) => carryOut(context, event.currentTarget, action, process.name) },
        },
        action,
      ),
    ),
  );
}

async function carryOut(context, button, action, name) {
  button.disabled = true;
  context.clearProblem();
  try {
    context.say(await change(action, name));
  } catch (error) {
    context.problem(error);
  } finally {
    button.disabled = false;
  }
}

/** A line below a lab's nodes that says which buttons are not there, and why. */
export function labNote(context) {
  const { session } = context;
  if (!session.lab) return null;
  if (!session.allows_changes) {
    return h("p", { class: "soft note" }, "Processes of ", h("code", {}, session.lab), ". No buttons: start the console with --allow-changes.");
  }
  const links = session.has_links ? null : [" No cut and heal: ", marked(session.no_links), "."];
  return h("p", { class: "soft note" }, "Processes of ", h("code", {}, session.lab), ": faults strike them.", links);
}
