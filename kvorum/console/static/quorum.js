// The quorum: its leader, voters and observers with their lag, and the elections as they happen.

import { h, chip, fill, age, number, time } from "./dom.js";
import { PARTITION_TILES, heading, labNote, newsList, processCell, tiles } from "./parts.js";
import { liveTable } from "./table.js";

const ROLES = {
  leader: ["leader", "leads"],
  follower: ["follower", "good"],
  observer: ["observer", ""],
  unreachable: ["unreachable", "bad"],
  silent: ["silent", "warn"],
};

const roleChip = (role) => {
  const [text, kind] = ROLES[role] ?? [role, "warn"];
  return chip(text, kind);
};

export function quorum(context) {
  const lead = heading(context, "Quorum", "Asking the controllers …");
  const figures = tiles([
    { label: "epoch", of: (d) => d.leader_epoch },
    { label: "high watermark", of: (d) => d.high_watermark },
    { label: "brokers", of: (d) => `${d.brokers.active} / ${d.brokers.all}`, isBad: (_, d) => d.brokers.active < d.brokers.all },
    ...PARTITION_TILES,
  ]);
  const cards = h("div", { class: "cards" });
  const observers = liveTable({
    caption: "Observers of the metadata log",
    empty: "No node follows the metadata log.",
    columns: [
      { title: "node", of: (r) => [r.id, r.is_broker], show: ([id, isBroker]) => `${isBroker ? "broker" : "controller"} ${id}` },
      { title: "role", of: (r) => r.role, show: roleChip, flash: true },
      { title: "address", of: (r) => r.address },
      { title: "end offset", of: (r) => r.end_offset, show: number, numeric: true },
      { title: "lag", of: (r) => r.lag, show: number, numeric: true },
      { title: "last fetch", of: (r) => fetchText(r), numeric: true },
      ...(context.session.lab ? [{ title: "process", of: (r) => r.process, show: processCell(context) }] : []),
    ],
  });
  const timeline = h("ol", { class: "feed timeline" });
  const news = newsList();
  const logs = h("p", { class: "links" }, h("a", { href: "/replication" }, "Replication of the metadata log"));
  const voters = h("section", { class: "panel" }, h("h2", {}, "Voters"), cards, labNote(context));
  const followers = h("section", { class: "panel" }, h("h2", {}, "Observers"), observers.element);
  context.main.append(
    figures.element,
    logs,
    voters,
    followers,
    h(
      "div",
      { class: "pair" },
      h("section", { class: "panel" }, h("h2", {}, "Elections"), timeline),
      news.element,
    ),
  );
  const drawCards = voterCards(context, cards);

  context.watch("quorum", {}, (document) => {
    if (!document.nodes) {
      lead.textContent = "No controller has answered yet.";
      drawCards(rowsOfProcesses(document.processes));
      return;
    }
    lead.replaceChildren(...leadOf(document));
    figures.update(document);
    const rows = Object.entries(document.nodes);
    drawCards(document.order.map((key) => document.nodes[key]).filter((row) => row.kind === "voter"));
    const order = document.order.filter((key) => document.nodes[key].kind === "observer");
    observers.update(order, Object.fromEntries(rows));
    logs.hidden = voters.hidden = followers.hidden = Boolean(document.hidden.quorum);
    drawTimeline(timeline, document.timeline, document.hidden.elections);
    news.update(document.news);
  });
}

function leadOf(document) {
  if (document.hidden.quorum) return [`The quorum is shown to users with ${document.hidden.quorum}, which this user does not have.`];
  if (document.leader_id === undefined) return [chip("no leader", "bad"), ` ${document.no_quorum}`];
  return [
    h("strong", {}, `Controller ${document.leader_id} leads`),
    ` in epoch ${document.leader_epoch} of cluster `,
    h("code", {}, document.cluster_id),
    ".",
  ];
}

/** Nodes of a lab whose cluster does not answer: their buttons are needed most then. */
function rowsOfProcesses(processes = {}) {
  return Object.entries(processes).map(([id, process]) => ({ id: Number(id), role: "unreachable", process, title: process.name }));
}

function voterCards(context, element) {
  const known = new Map();
  const process = processCell(context);
  const make = (id) => {
    const card = {
      frame: h("article", { class: "card", "data-node": id }),
      name: h("h3", {}),
      role: h("span", {}),
      facts: h("dl", {}),
      process: h("div", {}),
    };
    card.frame.append(h("div", { class: "card-head" }, card.name, card.role), card.facts, card.process);
    return card;
  };
  return (rows) => {
    const ids = rows.map((row) => row.id);
    for (const [id, card] of known) {
      if (!ids.includes(id)) {
        card.frame.remove();
        known.delete(id);
      }
    }
    rows.forEach((row, place) => {
      if (!known.has(row.id)) known.set(row.id, make(row.id));
      const card = known.get(row.id);
      card.name.textContent = row.title ?? `controller ${row.id}`;
      fill(card.role, row.role, () => roleChip(row.role));
      card.frame.classList.toggle("leads", row.role === "leader");
      card.frame.classList.toggle("lost", row.role === "unreachable");
      const facts = [
        ["epoch", number(row.epoch)],
        ["end offset", number(row.end_offset)],
        ["lag", number(row.lag)],
        ["last fetch", fetchText(row)],
        ["address", row.address ?? "–"],
      ];
      fill(card.facts, facts, () => facts.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
      if (context.session.lab) fill(card.process, row.process ?? null, () => process(row.process));
      if (element.children[place] !== card.frame) element.insertBefore(card.frame, element.children[place] ?? null);
    });
  };
}

function fetchText(row) {
  if (row.role === "leader") return "leads";
  return row.fetch_age_ms === undefined ? "–" : age(row.fetch_age_ms);
}

function kindOf(text) {
  if (/leader=\d/.test(text)) return "good";
  return /leader=-1|stands/.test(text) ? "warn" : "";
}

/** right: the one that shows elections, if the user does not have it. */
function drawTimeline(element, lines, right) {
  const nothing = right ? `Elections are shown to users with ${right}, which this user does not have.` : "No controller reports an election.";
  fill(element, [lines, nothing], () =>
    lines.length
      ? lines.map((line) =>
          h(
            "li",
            { class: kindOf(line.text) },
            h("time", {}, time(line.at_ms)),
            h("span", {}, h("b", {}, `controller ${line.node} `), line.text),
          ),
        )
      : h("li", { class: "soft" }, nothing),
  );
}
