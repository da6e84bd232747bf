// Chaos runs and duels of a folder: verdicts, and their reports.

import { h, chip, time, url } from "./dom.js";
import { ask } from "./live.js";
import { heading } from "./parts.js";
import { liveTable } from "./table.js";

const KINDS = { passed: "good", failed: "bad", inconclusive: "warn", damaged: "bad" };
const EVERY_MS = 5000;

export function runs(context) {
  const lead = heading(context, "Runs", "Reading the folder …");
  const table = liveTable({
    caption: "Chaos runs and duels",
    empty: "The folder has no run yet; `kvorum chaos run` makes one.",
    columns: [
      { title: "experiment", of: (r) => [r.title, r.name, r.page], show: ([title, name, page]) => [titleOf(title, name, page), h("div", { class: "soft small" }, name)], wide: true },
      { title: "verdict", of: (r) => r.verdict, show: verdicts, flash: true },
      { title: "kind", of: (r) => r.kind },
      { title: "system", of: (r) => r.system },
      { title: "seed", of: (r) => r.seed, numeric: true },
      { title: "time", of: (r) => r.at_ms, show: (ms) => h("time", { class: "nowrap" }, time(ms).slice(0, 19)) },
      { title: "summary", of: (r) => r.summary, wide: true },
    ],
  });
  context.main.append(table.element);
  let isFirst = true;
  const read = async () => {
    try {
      const found = await ask("/api/runs");
      isFirst = false;
      const cut = found.is_cut ? "; the folder has more folders than are looked at" : "";
      lead.replaceChildren(`${found.total} runs and duels in `, h("code", {}, found.folder), `${cut}.`);
      table.update(found.rows.map((row) => row.name), Object.fromEntries(found.rows.map((row) => [row.name, row])));
      context.clearProblem();
    } catch (error) {
      if (isFirst) lead.textContent = "The folder was not read.";
      context.problem(error);
    }
  };
  const timer = setInterval(() => {
    if (!document.hidden) read();
  }, EVERY_MS);
  context.onStop(() => clearInterval(timer));
  context.watch("status", {}, () => {});
  read();
}

function titleOf(title, name, page) {
  if (!page) return title;
  return h("a", { href: url(`/report/${page}`, { run: name }), target: "_blank", rel: "noopener noreferrer" }, title);
}

function verdicts(text) {
  return text.split(" / ").map((verdict) => chip(verdict, KINDS[verdict] ?? ""));
}
