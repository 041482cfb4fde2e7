/* One function for each part of the page: figures in, DOM out. */

import { bars, byId, draw, element, figure, spark, split, state, table } from "./dom.js";
import * as format from "./format.js";
import * as model from "./model.js";
import { pageViews } from "./charts.js";

const history = new Map();

function remember(name, value, size) {
  const points = history.get(name) || [];
  points.push(value);
  if (points.length > size) points.shift();
  history.set(name, points);
  return points;
}

export function views(rows, now, nothing) {
  const minutes = model.viewsByMinute(rows, 30, now);
  pageViews(minutes, nothing || "No page views yet.");
  figure("views-minute", rows.size ? format.count(minutes[minutes.length - 1].views) : format.missing);
  byId("views-note").textContent = rows.size ? `so far; ${format.count(minutes[minutes.length - 2].views)} the minute before` : "this minute so far";
  bars("top-pages", model.topPages(rows, 5, 8, now), nothing || "No page views in the last 5 minutes.");
}

export function visitors(rows, nothing) {
  const site = rows.find((row) => row.path === "*");
  figure("visitors-now", site ? format.count(site.visitors) : format.missing);
  const products = rows.filter((row) => row.path !== "*" && row.visitors > 0)
    .map((row) => ({ label: row.path, total: row.visitors })).sort((a, b) => b.total - a.total).slice(0, 8);
  bars("products-now", products, nothing || "Nobody is on a product page right now.");
}

export function audience(rows, now, nothing) {
  const figures = model.audience(rows, 15, now);
  bars("countries", figures.countries, nothing || "No visits in the last 15 minutes.", (row) => format.country(row.label));
  bars("browsers", figures.browsers, nothing || "No visits in the last 15 minutes.");
  const all = figures.people + figures.bots;
  const percent = (part) => `${Math.round((100 * part) / Math.max(1, all))} %`;
  draw("bots", [figures.people, figures.bots], () => all === 0 ? [] : [
    split(figures.people, figures.bots),
    element("p", {},
      element("span", {}, element("i", { class: "key", "aria-hidden": "true" }), "People ", element("b", {}, percent(figures.people))),
      element("span", {}, element("i", { class: "key second", "aria-hidden": "true" }), "Bots ", element("b", {}, percent(figures.bots)))),
  ]);
}

export function signups(rows, now, nothing) {
  const figures = model.signups(rows, 60, now);
  figure("signups-hour", rows.size || !nothing ? format.count(figures.total) : format.missing);
  bars("signups", figures.byRegion, nothing || "No sign-ups in the last hour.");
}

export function loop(rows, nothing) {
  const { log, topics } = model.loop(rows);
  const rate = log ? log.records_per_second : null;
  figure("events-rate", format.rate(rate));
  if (log) draw("events-spark", [log.at], () => spark(remember("events", rate, 90)));
  const timed = topics.filter((row) => row.samples > 0);
  const head = timed.find((row) => row.topic === "visitors_now") || timed[0];
  figure("loop-p50", ...format.latency(head && head.latency_p50_ms));
  byId("loop-note").textContent = head
    ? `p50 of ${head.topic}; p99 ${format.latencyText(head.latency_p99_ms)}` : "no results in the last minute";
  for (const row of topics) if (row.samples) remember(`loop ${row.topic}`, row.latency_p50_ms, 90);
  table("loop-table", "Latency from event to result by topic, over the last minute", [
    { title: "Result topic", name: true, cell: (row) => row.topic },
    { title: "p50", number: true, cell: (row) => format.latencyText(row.latency_p50_ms) },
    { title: "p99", number: true, cell: (row) => format.latencyText(row.latency_p99_ms) },
    { title: "Changes per second", number: true, cell: (row) => format.rate(row.records_per_second) },
    { title: "p50 while this page was open", number: true, kind: "line", cell: (row) => element("div", { class: "spark" }, spark(history.get(`loop ${row.topic}`) || [])) },
  ], topics, nothing || "No results have come yet.", { stamp: topics.map((row) => row.at) });
}

const MARKS = { good: "●", warn: "▲", bad: "✕", "": "■" };

export function pipelines(rows, now, nothing) {
  const statuses = model.pipelines(rows);
  const states = statuses.map((status) => model.health(status, now));
  const ill = states.filter((one) => one.tone === "bad" || one.tone === "warn").length;
  byId("pipelines-summary").textContent = !statuses.length ? "" : ill ? `${ill} of ${statuses.length} need a look` : `all ${statuses.length} well`;
  table("pipeline-table", "State, mode and lag of each pipeline", [
    { title: "Pipeline", name: true, cell: (row) => row.pipeline },
    { title: "State", cell: (row) => stateOf(row, now) },
    { title: "Mode", cell: (row) => row.mode },
    { title: "Rows per second", number: true, cell: (row) => format.rate(row.rows_per_second) },
    { title: "Lag", number: true, kind: "line", cell: lag },
    { title: "Time to catch up", number: true, cell: (row) => (row.lag_rows ? format.duration(row.catch_up_seconds) : format.missing) },
    { title: "Retention left", number: true, cell: (row) => format.duration(row.retention_seconds_left) },
    { title: "Batch", number: true, cell: (row) => (row.batch_id === null || row.batch_id === undefined ? format.missing : `#${row.batch_id}`) },
    { title: "Took", number: true, cell: (row) => format.latencyText(row.batch_duration_ms) },
  ], statuses, nothing || ["No pipeline has reported yet. Start them with ", element("code", {}, "tailrace run"), "."]);
  ledger(statuses, nothing);
}

function stateOf(row, now) {
  const { tone, word } = model.health(row, now);
  const cell = element("div", {}, state(tone, word, MARKS[tone]));
  if (word === "silent") cell.append(element("small", {}, `last heard ${format.second(row.updated_at)}`));
  else if (row.reason && tone !== "good") cell.append(element("small", {}, row.reason));
  return cell;
}

function lag(row) {
  if (row.lag_rows === null || row.lag_rows === undefined) return format.missing;
  if (!row.lag_rows) return "none";
  const seconds = row.lag_seconds === null || row.lag_seconds === undefined ? "" : ` · ${format.duration(row.lag_seconds)}`;
  return `${format.plural(row.lag_rows, "row", "rows")}${seconds}`;
}

function ledger(statuses, nothing) {
  const known = statuses.filter((row) => row.rows_in !== null && row.rows_in !== undefined);
  const column = (title, name) => ({ title, number: true, cell: (row) => format.count(row[name]) });
  table("ledger-table", "Ledger by pipeline", [
    { title: "Pipeline", name: true, cell: (row) => row.pipeline },
    column("In", "rows_in"), column("Out", "rows_out"), column("Late", "late"), column("Duplicate", "duplicate"),
    column("Quarantined", "quarantined"), column("Dropped", "dropped"),
    { title: "Balance", number: true, cell: (row) => (row.balance ? state("bad", `${format.count(row.balance)} missing`, "✕") : state("good", "0", "✓")) },
  ], known, nothing || "No batch has been booked yet.");
  const reasons = model.quarantine(statuses).map((row) => ({ ...row, title: `${row.label}: ${row.pipelines.join(", ")}` }));
  bars("quarantine", reasons, nothing || "No row has been quarantined.");
}

export function feed(rows, nothing) {
  const events = [...rows.values()].map((row) => row.value).sort((a, b) => (a.event_time < b.event_time ? 1 : -1)).slice(0, 7);
  const seen = history.get("feed") || "";
  if (events.length) history.set("feed", events[0].event_time);
  table("feed", "The latest requests", [
    { title: "Time", cell: (row) => format.second(row.event_time) },
    { title: "Page", kind: "path", cell: (row) => row.path || format.missing },
    { title: "Country", cell: (row) => format.country(row.country) },
    { title: "Browser", kind: "wide-only", cell: (row) => (row.is_bot ? `${row.browser || "Unknown"} (bot)` : row.browser || "Unknown") },
    { title: "Status", number: true, kind: "wide-only", cell: (row) => String(row.status ?? format.missing) },
  ], events, nothing || "No requests yet.", { style: "feed", fresh: (row) => row.event_time > seen && seen !== "", stamp: events.map((row) => row.event_time) });
}
