// A table whose rows keep their elements: an update changes the cells that differ, and nothing else
// moves or loses focus. Arrow keys walk through the rows.

import { h, count, fill } from "./dom.js";

/**
 * columns: {title, of(row) -> plain value, show(value, row) -> text or nodes, numeric, flash, wide}.
 * A cell is made anew only when of(row) changes; with `flash` it then lights up for a moment.
 */
export function liveTable({ caption, columns, empty }) {
  const body = h("tbody", { role: "rowgroup" });
  const head = columns.map((column) =>
    h("th", { scope: "col", role: "columnheader", class: column.numeric && "number" }, column.title),
  );
  const table = h(
    "table",
    { role: "table", class: "rows" },
    h("caption", { class: "unseen" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    body,
  );
  const nothing = h("p", { class: "nothing", hidden: true }, empty ?? "Nothing to show.");
  const element = h("div", { class: "table-frame" }, table, nothing);
  const known = new Map();

  const makeRow = () => {
    const cells = columns.map((column) =>
      h("td", {
        role: "cell",
        "data-label": column.title,
        class: [column.numeric && "number", column.wide && "wide"].filter(Boolean).join(" "),
      }),
    );
    return { element: h("tr", { role: "row", tabindex: "-1" }, cells), cells };
  };

  const update = (order, rows) => {
    for (const [key, row] of known) {
      if (!order.includes(key)) {
        row.element.remove();
        known.delete(key);
      }
    }
    order.forEach((key, place) => {
      let row = known.get(key);
      if (row === undefined) {
        row = makeRow();
        row.element.dataset.key = key;
        known.set(key, row);
      }
      columns.forEach((column, index) => {
        const value = column.of(rows[key]);
        const cell = row.cells[index];
        const didChange = fill(cell, value ?? null, () => column.show?.(value, rows[key]) ?? text(value));
        if (didChange && column.flash) light(cell);
      });
      if (body.children[place] !== row.element) body.insertBefore(row.element, body.children[place] ?? null);
    });
    if (body.children.length && !body.querySelector('tr[tabindex="0"]')) body.firstElementChild.tabIndex = 0;
    nothing.hidden = order.length > 0;
    table.hidden = order.length === 0;
  };

  table.addEventListener("keydown", walk);
  body.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr");
    for (const other of body.querySelectorAll('tr[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
  });
  return { element, update };
}

function text(value) {
  return value === undefined || value === null ? "–" : String(value);
}

function light(cell) {
  cell.classList.remove("changed");
  void cell.offsetWidth; // starts the animation again
  cell.classList.add("changed");
}

function walk(event) {
  const row = event.target.closest("tbody tr");
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const rows = [...row.parentElement.children];
  const place = rows.indexOf(row);
  const inner = [...row.querySelectorAll("a[href], button:not([disabled])")];
  const at = inner.indexOf(event.target);
  const goals = {
    ArrowDown: rows[place + 1],
    ArrowUp: rows[place - 1],
    Home: rows[0],
    End: rows[rows.length - 1],
    ArrowRight: inner[at + 1],
    ArrowLeft: at > 0 ? inner[at - 1] : row,
  };
  if (event.key === "Enter" && event.target === row) {
    inner[0]?.click();
    event.preventDefault();
    return;
  }
  const goal = goals[event.key];
  if (!goal) return;
  event.preventDefault();
  goal.focus();
}

/** Buttons for the pages of a long list. go(start) is called. */
export function pager(go) {
  const label = h("span", { class: "soft" });
  const make = (text, act) => h("button", { type: "button", class: "quiet", on: { click: act } }, text);
  let state = { start: 0, limit: 50, matched: 0 };
  const earlier = make("← Previous", () => go(Math.max(0, state.start - state.limit)));
  const later = make("Next →", () => go(state.start + state.limit));
  const element = h("nav", { class: "pager", "aria-label": "Pages of this list" }, earlier, label, later);
  const update = ({ start = 0, limit = 50, matched = 0 }, noun) => {
    state = { start, limit, matched };
    const last = Math.min(start + limit, matched);
    label.textContent = matched
      ? `${(start + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${count(matched, noun)}`
      : `no ${noun}s`;
    earlier.disabled = start === 0;
    later.disabled = last >= matched;
    earlier.hidden = later.hidden = matched <= limit && start === 0;
  };
  return { element, update };
}
