// Brokers: state, rack, what they lead and hold, how far they follow the metadata.

import { chip, number } from "./dom.js";
import { PARTITION_TILES, heading, labNote, newsList, processCell, tiles } from "./parts.js";
import { liveTable } from "./table.js";

const KINDS = { active: "good", fenced: "bad", "shutting down": "warn" };

export function brokers(context) {
  const lead = heading(context, "Brokers");
  const figures = tiles(PARTITION_TILES);
  const table = liveTable({
    caption: "Registered brokers",
    empty: "No broker is registered.",
    columns: [
      { title: "broker", of: (r) => r.id },
      { title: "state", of: (r) => r.state, show: (state) => chip(state, KINDS[state]), flash: true },
      { title: "address", of: (r) => r.address },
      { title: "rack", of: (r) => r.rack },
      { title: "leads", of: (r) => r.leaders, show: number, numeric: true, flash: true },
      { title: "replicas", of: (r) => r.replicas, show: number, numeric: true },
      { title: "out of sync", of: (r) => r.out_of_sync, show: (n) => (n ? chip(number(n), "warn") : "0"), numeric: true, flash: true },
      { title: "metadata lag", of: (r) => r.lag, show: number, numeric: true },
      ...(context.session.lab ? [{ title: "process", of: (r) => r.process, show: processCell(context) }] : []),
    ],
  });
  const news = newsList({ isShort: true });
  context.main.append(figures.element, table.element);
  const note = labNote(context);
  if (note) context.main.append(note);
  context.main.append(news.element);

  context.watch("brokers", {}, (document) => {
    if (!document.rows) return;
    const active = document.order.filter((key) => document.rows[key].state === "active").length;
    lead.textContent = `${active} of ${document.order.length} brokers are active.`;
    figures.update(document);
    table.update(document.order, document.rows);
    news.update(document.news);
  });
}
