// The frame of all pages: menu, theme, status, announcements, and which page an address shows.

import { h, age, marked } from "./dom.js";
import { first, watch } from "./live.js";
import { quorum } from "./quorum.js";

// Other pages than the first are loaded when they are opened.
const PAGES = {
  "/": { name: "Quorum", load: async () => quorum },
  "/brokers": { name: "Brokers", load: async () => (await import("./brokers.js")).brokers },
  "/topics": { name: "Topics", load: async () => (await import("./topics.js")).topics },
  "/topic": { name: "Topic", load: async () => (await import("./topics.js")).topic, under: () => "/topics" },
  "/replication": { name: "Replication", load: async () => (await import("./replication.js")).replication, under: (given) => (given.has("name") ? "/topics" : "/") },
  "/messages": { name: "Messages", load: async () => (await import("./messages.js")).messages },
  "/groups": { name: "Groups", load: async () => (await import("./groups.js")).groups },
  "/group": { name: "Group", load: async () => (await import("./groups.js")).group, under: () => "/groups" },
  "/configs": { name: "Configs", load: async () => (await import("./configs.js")).configs },
  "/metadata": { name: "Metadata", load: async () => (await import("./metadata.js")).metadata },
  "/runs": { name: "Runs", load: async () => (await import("./runs.js")).runs, needs: "has_runs" },
};

const main = document.getElementById("main");
const status = document.getElementById("status");
const state = document.getElementById("state");
const ageOfState = document.getElementById("age");
const banner = document.getElementById("banner");
const announcer = document.getElementById("announcer");
const menu = document.getElementById("menu");
const themeButton = document.getElementById("theme");

let session = first.session;

// Of a console with sign-in.
if (session.user) {
  const out = h("button", { type: "button", class: "quiet" }, `Sign out ${session.user}`);
  out.addEventListener("click", async () => {
    await fetch("/sign-out", { method: "POST", headers: { "content-type": "application/x-www-form-urlencoded" } });
    location.assign("/sign-in");
  });
  themeButton.after(out);
}
let stops = [];
let turns = 0;
let meta = null;
let receivedAt = 0;
let problem = "";
let trouble = "";
let absence = "";

function say(text) {
  announcer.textContent = "";
  // A screen reader speaks only of a change.
  requestAnimationFrame(() => {
    announcer.textContent = text;
  });
}

/** A problem of the page's own question goes before the state of the cluster, until it is solved. */
function drawBanner() {
  const text = problem || trouble;
  if (banner.dataset.text === text) return;
  banner.dataset.text = text;
  banner.replaceChildren(...marked(text));
  banner.hidden = !text;
}

function setProblem(text) {
  problem = text;
  drawBanner();
}

/** The topic or group of the page is not there, or not for this user: nothing old stays on the page. */
function setAbsence(text, { isHiding = Boolean(text) } = {}) {
  absence = text && sentence(text);
  main.classList.toggle("absent", isHiding);
  showStatus();
}

/** The state of the reading that the page shows, with its age. */
function showStatus() {
  if (meta === null) return;
  const states = {
    live: ["live", "good"],
    waiting: ["no cluster", "bad"],
    stale: ["stale", "warn"],
    lost: ["stale", "warn"],
  };
  const [text, kind] = states[meta.status];
  if (state.textContent !== text) state.textContent = text;
  // Not part of what a screen reader hears: it changes every second.
  ageOfState.textContent = text === "stale" ? `, ${age(staleMs())} old` : "";
  status.className = `chip ${kind}`;
  main.classList.toggle("stale", text === "stale");
  const waiting = "No answer from the cluster yet; the console keeps trying. ";
  const prefix = { waiting, stale: "The page shows the last state. ", lost: "The page shows the last state. " };
  const reason = meta.error && (prefix[meta.status] ?? "") + sentence(meta.error);
  trouble = [absence, reason, meta.lab_error && sentence(meta.lab_error)].filter(Boolean).join(" ");
  drawBanner();
}

function setMeta(newest) {
  // The console's clock may differ from the browser's: only the time since the arrival counts.
  const isNew = meta === null || meta.taken_ms !== newest.taken_ms;
  meta = { ...newest, age_ms: isNew ? 0 : (meta.age_ms ?? 0) };
  if (isNew) receivedAt = Date.now();
  showStatus();
}

function staleMs() {
  return meta.taken_ms ? Math.max(0, meta.age_ms + Date.now() - receivedAt) : undefined;
}

function sentence(text) {
  const trimmed = text.trim();
  const end = /[.!?]$/.test(trimmed) ? "" : ".";
  return trimmed.charAt(0).toUpperCase() + trimmed.slice(1) + end;
}

/** What a page gets: its place, its parameters, and ways to ask that end with the page. */
function contextOf(path, parameters) {
  let told = null;
  let wasShown = false;
  const onStatus = (document) => {
    setMeta(document.meta);
    // Groups beyond the console's limit are not known to be deleted.
    const isDeleted = document.absent && wasShown && !document.left_out;
    setAbsence(isDeleted ? `${document.absent}; it was deleted while this page showed it` : (document.absent ?? ""));
    wasShown ||= Boolean(document.rows);
    const news = document.news ?? [];
    if (told !== null) {
      const fresh = news.filter((item) => item.at_ms > told).map((item) => item.text);
      if (fresh.length) say(fresh.slice(0, 4).join(". "));
    }
    told = Math.max(told ?? 0, ...news.map((item) => item.at_ms));
  };
  return {
    main,
    path,
    parameters,
    session,
    say,
    go,
    watch(view, query, onDocument) {
      const stop = watch(view, query, {
        onDocument(document) {
          onStatus(document);
          if (!document.absent) onDocument(document);
        },
        onProblem(error) {
          if (error.answer?.meta) {
            // The console answers, and refuses this view. A wrong parameter is mended on the page itself.
            setMeta(error.answer.meta);
            setAbsence(error.message, { isHiding: error.status !== 400 });
            return;
          }
          meta = { ...(meta ?? { taken_ms: 0, age_ms: 0 }), status: meta?.taken_ms ? "lost" : "waiting", error: error.message };
          showStatus();
        },
      });
      stops.push(stop);
      return stop;
    },
    onStop(stop) {
      stops.push(stop);
    },
    problem(error) {
      if (error.name !== "AbortError") setProblem(sentence(error.message));
    },
    clearProblem() {
      setProblem("");
    },
  };
}

async function show({ isFirst = false } = {}) {
  for (const stop of stops) stop();
  stops = [];
  meta = null;
  trouble = "";
  setAbsence("");
  setProblem("");
  state.textContent = "connecting";
  ageOfState.textContent = "";
  status.className = "chip";
  const path = location.pathname;
  const page = PAGES[path] ?? PAGES["/"];
  const parameters = new URLSearchParams(location.search);
  document.title = `${page.name} – Kvorum console`;
  drawMenu(page.under?.(parameters) ?? path);
  main.replaceChildren();
  main.dataset.page = path;
  const turn = (turns += 1);
  let start;
  try {
    start = await page.load();
  } catch {
    setProblem("This page cannot be loaded: the console does not answer. Load the page again.");
    return;
  }
  if (turn !== turns) return; // another page was opened meanwhile
  start(contextOf(path, parameters));
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
    say(page.name);
  }
}

function drawMenu(current) {
  const links = Object.entries(PAGES)
    .filter(([, page]) => !page.under && (!page.needs || session[page.needs]))
    .map(([path, page]) => h("a", { href: path, "aria-current": path === current && "page" }, page.name));
  menu.replaceChildren(...links);
  // On a narrow screen the menu is a row that scrolls.
  const here = menu.querySelector("[aria-current]");
  if (here) menu.scrollLeft = here.offsetLeft - menu.offsetLeft - 12;
}

/** Opens an address of this console. isSilent: the page itself goes on; only the address changes. */
function go(address, { isSilent = false, replaces = false } = {}) {
  history[replaces ? "replaceState" : "pushState"](null, "", address);
  if (!isSilent) show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  const address = new URL(link.href);
  if (address.origin !== location.origin || !(address.pathname in PAGES)) return;
  event.preventDefault();
  if (link.matches(".skip")) return main.focus(); // the page is already there: nothing to load
  go(address.href);
});

window.addEventListener("popstate", () => show());

function nameTheme() {
  const isDark = window.kvorumTheme.current() === "dark";
  themeButton.textContent = isDark ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Switch to the ${isDark ? "light" : "dark"} theme`);
}

themeButton.addEventListener("click", () => {
  window.kvorumTheme.toggle();
  nameTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();
drawMenu(location.pathname);
setInterval(showStatus, 1000);

show({ isFirst: true });
