/* Light or dark: what the system says, unless the reader chose. Runs before the page is drawn, so it never flashes. */
(function () {
  "use strict";
  const KEY = "tailrace-theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try { return localStorage.getItem(KEY); } catch (error) { return null; }
  }

  function show() {
    document.documentElement.dataset.theme = chosen() || (dark.matches ? "dark" : "light");
    document.dispatchEvent(new CustomEvent("themechange"));
  }

  function change() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem(KEY, next); } catch (error) { /* private mode: the choice lasts for this page */ }
    document.documentElement.dataset.theme = next;
    document.dispatchEvent(new CustomEvent("themechange"));
  }

  show();
  dark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", change));
})();
