/* The one large chart. Colours come from the style sheet, so that light and dark are decided in one place. */

import { byId, draw, element, empty } from "./dom.js";
import * as format from "./format.js";

let chart = null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function paint() {
  const bars = chart.data.datasets[0];
  const size = bars.data.length;
  bars.backgroundColor = bars.data.map((_, index) => (index === size - 1 ? colour("--accent-soft") : colour("--accent")));
  bars.borderColor = colour("--accent");
  bars.borderWidth = bars.data.map((_, index) => (index === size - 1 ? 1 : 0));
  const scales = chart.options.scales;
  scales.x.ticks.color = scales.y.ticks.color = colour("--soft");
  scales.y.grid.color = colour("--line");
  Object.assign(chart.options.plugins.tooltip, {
    backgroundColor: colour("--ink"), titleColor: colour("--surface"), bodyColor: colour("--surface"),
  });
}

function create() {
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  chart = new Chart(byId("views-chart"), {
    type: "bar",
    data: { labels: [], datasets: [{ label: "Page views", data: [], borderRadius: 4, maxBarThickness: 22, categoryPercentage: 0.86 }] },
    options: {
      maintainAspectRatio: false,
      animation: still ? false : { duration: 300 },
      plugins: {
        legend: { display: false },
        tooltip: {
          displayColors: false, padding: 10, cornerRadius: 8,
          callbacks: { label: (item) => format.plural(item.raw, "view", "views") },
        },
      },
      scales: {
        x: { grid: { display: false }, border: { display: false }, ticks: { maxRotation: 0, autoSkipPadding: 18 } },
        y: { beginAtZero: true, border: { display: false }, grid: {}, ticks: { precision: 0, maxTicksLimit: 5 } },
      },
    },
  });
  document.addEventListener("themechange", () => { paint(); chart.update("none"); });
}

function note(text) {
  const box = byId("views-chart-box");
  const shown = box.querySelector(".empty");
  if (shown && shown.textContent === text) return;
  if (shown) shown.remove();
  if (text) box.append(empty(text));
}

/** Draw the minutes; without the chart library the table below it says the same. */
export function pageViews(minutes, nothing) {
  const any = minutes.some((minute) => minute.views > 0);
  const total = minutes.reduce((sum, minute) => sum + minute.views, 0);
  byId("views-total").textContent = any ? `${format.plural(total, "view", "views")} in ${minutes.length} minutes` : "";
  note(!any ? nothing : window.Chart ? "" : "The chart library is not installed; the table below has the figures.");
  const last = minutes[minutes.length - 1];
  byId("views-chart").setAttribute("aria-label",
    `Page views by minute: ${total} in ${minutes.length} minutes, ${last.views} in the running minute.`);
  asTable(minutes);
  if (!window.Chart) return;
  if (!chart) create();
  chart.data.labels = minutes.map((minute) => format.minute(minute.at));
  chart.data.datasets[0].data = minutes.map((minute) => minute.views);
  paint();
  chart.update();
}

function asTable(minutes) {
  draw("views-table", minutes, () => element("table", {},
    element("caption", {}, "Page views by minute"),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Minute"), element("th", { scope: "col", class: "number" }, "Page views"))),
    element("tbody", {}, ...[...minutes].reverse().map((minute) => element("tr", {},
      element("td", {}, format.minute(minute.at)), element("td", { class: "number" }, format.count(minute.views)))))));
}
