// The frame of all pages: menu, theme, status, announcements, and which page an address shows.

import { h, chip, age, marked } from "./dom.js";
import { ask, watch } from "./live.js";
import { brokers } from "./brokers.js";
import { configs } from "./configs.js";
import { group, groups } from "./groups.js";
import { messages } from "./messages.js";
import { metadata } from "./metadata.js";
import { quorum } from "./quorum.js";
import { runs } from "./runs.js";
import { topic, topics } from "./topics.js";

const PAGES = {
  "/": { name: "Quorum", start: quorum },
  "/brokers": { name: "Brokers", start: brokers },
  "/topics": { name: "Topics", start: topics },
  "/topic": { name: "Topic", start: topic, under: "/topics" },
  "/messages": { name: "Messages", start: messages },
  "/groups": { name: "Groups", start: groups },
  "/group": { name: "Group", start: group, under: "/groups" },
  "/configs": { name: "Configs", start: configs },
  "/metadata": { name: "Metadata", start: metadata },
  "/runs": { name: "Runs", start: runs, needs: "has_runs" },
};

const main = document.getElementById("main");
const status = document.getElementById("status");
const banner = document.getElementById("banner");
const announcer = document.getElementById("announcer");
const menu = document.getElementById("menu");
const themeButton = document.getElementById("theme");

let session = {};
let stops = [];
let meta = null;
let receivedAt = 0;
let problem = "";
let trouble = "";

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

/** The state of the reading that the page shows, with its age. */
function showStatus() {
  if (meta === null) return;
  const states = {
    live: ["live", "good"],
    waiting: ["no cluster", "bad"],
    stale: [`stale, ${age(staleMs())} old`, "warn"],
    lost: [`stale, ${age(staleMs())} old`, "warn"],
  };
  const [text, kind] = states[meta.status];
  if (status.textContent !== text) status.textContent = text;
  status.className = `chip ${kind}`;
  const waiting = "No answer from the cluster yet; the console keeps trying. ";
  const prefix = { waiting, stale: "The page shows the last state. ", lost: "The page shows the last state. " };
  trouble = meta.error ? (prefix[meta.status] ?? "") + sentence(meta.error) : "";
  drawBanner();
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
  const onStatus = (document) => {
    // The console's clock may differ from the browser's: only the time since the arrival counts.
    const isNew = meta === null || meta.taken_ms !== document.meta.taken_ms;
    meta = { ...document.meta, age_ms: isNew ? 0 : (meta.age_ms ?? 0) };
    if (isNew) receivedAt = Date.now();
    showStatus();
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
          onDocument(document);
        },
        onProblem(text) {
          meta = { ...(meta ?? { taken_ms: 0, age_ms: 0 }), status: meta?.taken_ms ? "lost" : "waiting", error: text };
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

function show({ isFirst = false } = {}) {
  for (const stop of stops) stop();
  stops = [];
  meta = null;
  trouble = "";
  setProblem("");
  status.textContent = "connecting";
  status.className = "chip";
  const path = location.pathname;
  const page = PAGES[path] ?? PAGES["/"];
  const parameters = new URLSearchParams(location.search);
  document.title = `${page.name} – Kvorum console`;
  drawMenu(page.under ?? path);
  main.replaceChildren();
  main.dataset.page = path;
  page.start(contextOf(path, parameters));
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

ask("/api/session")
  .then((found) => {
    session = found;
    show({ isFirst: true });
  })
  .catch((error) => {
    status.replaceWith(chip("refused", "bad"));
    setProblem(sentence(error.message));
  });
