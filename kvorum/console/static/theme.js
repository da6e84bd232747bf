// Runs before the first paint, so that the page never shows the other theme for a moment.
"use strict";
(() => {
  const KEY = "kvorum-theme";
  const read = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is switched off: the theme of the system stays
    }
  };
  const chosen = read();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  window.kvorumTheme = {
    current() {
      const set = document.documentElement.dataset.theme;
      if (set) return set;
      return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    },
    toggle() {
      const next = this.current() === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try {
        localStorage.setItem(KEY, next);
      } catch {
        return; // the choice lasts as long as the page
      }
    },
  };
})();
