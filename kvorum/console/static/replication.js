// The logs of a partition's replicas as bars, and the metadata log of the quorum's nodes the same.

import { h, chip, count, fill, marked, number, url } from "./dom.js";
import { heading, newsList, stateChip } from "./parts.js";
import { liveTable, pager } from "./table.js";
import { cleaned } from "./topics.js";

// Records that a bar shows: the last ones, or the smallest of these in which all logs end.
const SPANS = [20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
const CHOICES = [20, 200, 2_000, 20_000];
const TONES = 6;
const CELLS_MAX = 50;

export function replication(context) {
  const state = Object.fromEntries(context.parameters);
  const name = state.name ?? "";
  if (state.span !== "all" && !CHOICES.includes(Number(state.span))) delete state.span;
  const lead = heading(context, name ? `Replication of ${name}` : "Replication of the metadata log");
  const links = h("p", { class: "links" }, name
    ? [h("a", { href: url("/topic", { name }) }, "Partitions"), h("a", { href: url("/messages", { topic: name }) }, "Messages")]
    : h("a", { href: "/" }, "Quorum"));
  const span = h(
    "select",
    { on: { change: () => set({ span: span.value }) } },
    [["", "as many as show where each log ends"], ...CHOICES.map((size) => [size, `the last ${number(size)}`]), ["all", "the whole log"]].map(
      ([value, text]) => h("option", { value, selected: (state.span ?? "") === String(value) }, text),
    ),
  );
  const panels = h("div", {});
  const nothing = h("p", { class: "nothing", hidden: true }, "The topic has no partition from here on.");
  const pages = pager((start) => set({ start: start || "" }, { isNew: true }));
  const news = newsList({ isShort: true });
  context.main.append(
    links,
    h("form", { class: "filters", on: { submit: (event) => event.preventDefault() } }, h("label", {}, "Records shown ", span)),
    panels,
    nothing,
    legend(Boolean(name)),
    pages.element,
    news.element,
  );
  pages.element.hidden = !name;
  const known = new Map();
  let last = null;
  let stop = () => {};

  function set(changes, { isNew = false } = {}) {
    Object.assign(state, changes);
    context.go(url("/replication", state), { isSilent: true, replaces: true });
    if (isNew) start();
    else if (last) draw(last);
  }

  function draw(document) {
    last = document;
    lead.replaceChildren(...leadOf(document, name));
    for (const [key, panel] of known) {
      if (!document.order.includes(key)) {
        panel.element.remove();
        known.delete(key);
      }
    }
    document.order.forEach((key, place) => {
      if (!known.has(key)) known.set(key, partitionPanel(name, key));
      const panel = known.get(key);
      if (panels.children[place] !== panel.element) panels.insertBefore(panel.element, panels.children[place] ?? null);
      panel.update(document.rows[key], state.span ?? "");
    });
    nothing.hidden = !name || document.order.length > 0;
    if (name) pages.update(document, "partition");
    news.update(document.news);
  }

  function start() {
    stop();
    const { span: _, ...asked } = state;
    stop = context.watch("replication", cleaned(asked), (document) => document.rows && draw(document));
  }
  start();
}

function leadOf(document, name) {
  if (name) return [`${count(document.matched, "partition")}. Each bar is a replica's log, as its broker tells it.`];
  if (document.hidden.quorum) return [`The quorum is shown to users with ${document.hidden.quorum}, which this user does not have.`];
  return ["Each controller tells its own log; of brokers, which follow it, the active controller knows the end."];
}

function legend(isTopic) {
  const sample = (kind) => h("span", { class: `log-sample ${kind}` });
  return h(
    "p",
    { class: "soft note log-legend" },
    h("span", {}, sample("committed"), " committed; one colour for each leader epoch"),
    h("span", {}, sample("uncommitted"), " above the replica's high watermark"),
    h("span", {}, sample("mark"), " high watermark (HW)"),
    isTopic && h("span", {}, sample("mark stable"), " last stable offset (LSO), where it is lower"),
    h("span", {}, sample("silent"), " no answer now; its last state"),
  );
}

/** One partition's replicas. Rows and bars keep their elements, so that bars can grow. */
function partitionPanel(name, key) {
  const isTopic = Boolean(name);
  const title = h("h2", {}, isTopic ? `Partition ${key}` : "Metadata log");
  const facts = h("span", { class: "process" });
  const bars = new Map();
  const barOf = (row) => {
    if (!bars.has(row.id)) bars.set(row.id, logBar());
    return bars.get(row.id);
  };
  const table = liveTable({
    caption: isTopic ? `Replicas of ${name}-${key}` : "Voters and observers",
    empty: "No node tells its log.",
    columns: [
      { title: isTopic ? "replica" : "node", of: (r) => [r.id, r.kind, r.role, r.is_in_sync, r.problem], show: whoCell(isTopic) },
      { title: "log", of: (r) => r.id, show: (_, row) => barOf(row).element, wide: true },
      { title: "start", of: (r) => r.start, show: number, numeric: true },
      ...(isTopic ? [{ title: "LSO", of: (r) => r.stable, show: number, numeric: true }] : []),
      { title: "HW", of: (r) => r.high_watermark, show: number, numeric: true },
      { title: "end", of: (r) => r.end, show: number, numeric: true },
      { title: "epoch", of: (r) => r.epochs?.at(-1)?.[0], show: number, numeric: true },
    ],
  });
  const element = h("section", { class: "panel logs" }, h("div", { class: "card-head" }, title, facts), table.element);
  const update = (partition, span) => {
    fill(facts, [partition.state, partition.leader, partition.leader_epoch], () => [
      stateChip(partition.state),
      h("span", { class: "soft" }, partition.leader === undefined ? "no leader" : `${partition.leader} leads`, `, epoch ${number(partition.leader_epoch)}`),
    ]);
    const rows = Object.values(partition.replicas);
    const scale = scaleOf(rows, span);
    table.update(partition.replica_order, partition.replicas);
    for (const row of rows) barOf(row).update(row, scale);
  };
  return { element, update };
}

const ROLES = { leader: ["leader", "leads"], unreachable: ["unreachable", "bad"], silent: ["silent", "warn"] };

const whoCell = (isTopic) => ([id, kind, role, isInSync, problem]) => {
  const [text, look] = ROLES[role] ?? [isTopic ? (isInSync ? "in sync" : "not in sync") : role, isInSync ? "good" : "bad"];
  const parts = [h("b", {}, isTopic ? id : `${kind} ${id}`), chip(text, look)];
  if (isTopic && role === "leader" && !isInSync) parts.push(chip("not in sync", "bad"));
  if (problem && role !== "unreachable") parts.push(h("details", { class: "why" }, h("summary", {}, "no answer"), marked(problem)));
  return h("span", { class: "process" }, parts);
};

/** {first, last}: the offsets at the left and right ends of all bars of a partition. */
function scaleOf(rows, span) {
  const ends = rows.map((row) => row.end).filter((end) => end !== undefined);
  const starts = rows.map((row) => row.start).filter((start) => start !== undefined);
  const last = Math.max(0, ...ends);
  const lowest = Math.min(last, ...starts);
  if (span === "all") return { first: lowest, last: Math.max(last, lowest + 1) };
  // Both ends of every log, and where consumers stop, are to be seen.
  const low = Math.min(last, ...rows.flatMap((row) => [row.end, row.high_watermark, row.stable]).filter((offset) => offset !== undefined));
  const size = Number(span) || SPANS.find((each) => last - low < each * 0.9) || last - lowest || 1;
  return { first: Math.max(0, last - size), last: Math.max(last, size) };
}

function logBar() {
  const track = h("div", { class: "log-track" });
  const left = h("span", {});
  const right = h("span", {});
  const element = h("div", { class: "log-bar", role: "img" }, track, h("div", { class: "log-scale", "aria-hidden": "true" }, left, right));
  const parts = new Map();

  const update = (row, scale) => {
    const size = scale.last - scale.first;
    const place = (offset) => (100 * Math.min(Math.max(offset - scale.first, 0), size)) / size;
    const wanted = piecesOf(row, scale);
    for (const [key, part] of parts) {
      if (!wanted.has(key)) {
        part.remove();
        parts.delete(key);
      }
    }
    for (const [key, { kind, from, to, text }] of wanted) {
      if (!parts.has(key)) {
        parts.set(key, h("span", {}));
        track.append(parts.get(key));
      }
      const part = parts.get(key);
      part.className = kind;
      part.style.left = `${place(from)}%`;
      part.style.width = to === undefined ? "" : `${place(to) - place(from)}%`;
      if (part.textContent !== text) part.textContent = text;
    }
    element.classList.toggle("silent", Boolean(row.problem));
    element.classList.toggle("unknown", row.end === undefined);
    // Single records show as cells while there is room for them.
    track.style.setProperty("--cell", size <= CELLS_MAX ? `${100 / size}%` : "100%");
    left.textContent = number(scale.first);
    right.textContent = number(scale.last);
    element.setAttribute("aria-label", saidOf(row));
  };
  return { element, update };
}

/** The pieces of a bar by key: epochs, the part above the high watermark, and marks. */
function piecesOf(row, { first, last }) {
  const pieces = new Map();
  if (row.end === undefined) return pieces;
  const start = row.start ?? 0;
  const high = row.high_watermark ?? row.end;
  const epochs = [...(row.epochs ?? [])];
  if (!epochs.length || epochs[0][1] > start) epochs.unshift([undefined, start]);
  epochs.forEach(([epoch, from], at) => {
    const to = Math.min(epochs[at + 1]?.[1] ?? row.end, row.end);
    const begin = Math.max(from, start);
    if (to <= Math.max(begin, first) || begin >= last) return;
    const tone = epoch === undefined ? "older" : `tone-${epoch % TONES}`;
    const text = epoch === undefined ? "older" : `epoch ${epoch}`;
    pieces.set(`epoch ${epoch}`, { kind: `log-part ${tone}`, from: Math.max(begin, first), to, text });
  });
  if (high < row.end) pieces.set("uncommitted", { kind: "log-open", from: Math.max(high, start), to: row.end, text: "" });
  if (start > first && start <= last) pieces.set("start", { kind: "log-mark start", from: start, text: "" });
  if (high >= first && high <= last && row.high_watermark !== undefined) pieces.set("high", { kind: "log-mark", from: high, text: "" });
  const stable = row.stable ?? high;
  if (stable < high && stable >= first) pieces.set("stable", { kind: "log-mark stable", from: stable, text: "" });
  return pieces;
}

function saidOf(row) {
  if (row.end === undefined) return "its log is not known";
  const parts = [];
  if (row.start !== undefined) parts.push(`log start ${row.start}`);
  if (row.stable !== undefined) parts.push(`last stable offset ${row.stable}`);
  if (row.high_watermark !== undefined) parts.push(`high watermark ${row.high_watermark}`);
  parts.push(`log end ${row.end}`);
  for (const [epoch, from] of row.epochs ?? []) parts.push(`epoch ${epoch} from ${Math.max(from, row.start ?? 0)}`);
  return `${row.problem ? "no answer now; last seen: " : ""}${parts.join(", ")}`;
}
