/* What the dashboard shows, computed from the pictures of the topics. Pure functions: rows in, figures out. */

const MINUTE = 60000;

function values(rows) { return [...rows.values()].map((row) => row.value); }

/** Keep rows whose window began less than so many minutes before `now`. */
function recent(rows, column, minutes, now) {
  const from = now - minutes * MINUTE;
  return values(rows).filter((row) => Date.parse(row[column]) > from);
}

/** Sum a column by a name; the largest first. */
export function ranked(rows, name, amount, limit) {
  const totals = new Map();
  for (const row of rows) totals.set(name(row), (totals.get(name(row)) || 0) + row[amount]);
  const all = [...totals].map(([label, total]) => ({ label, total })).sort((a, b) => b.total - a.total);
  return limit ? all.slice(0, limit) : all;
}

/** The last minutes, oldest first, with zero for the quiet ones; the last one is still running. */
export function viewsByMinute(rows, minutes, now) {
  const current = Math.floor(now / MINUTE) * MINUTE;
  const totals = new Map();
  for (let at = current - (minutes - 1) * MINUTE; at <= current; at += MINUTE) totals.set(at, 0);
  for (const row of values(rows)) {
    const at = Date.parse(row.window_start);
    if (totals.has(at)) totals.set(at, totals.get(at) + row.views);
  }
  return [...totals].map(([at, views]) => ({ at, views }));
}

export function topPages(rows, minutes, limit, now) {
  return ranked(recent(rows, "window_start", minutes, now), (row) => row.path, "views", limit);
}

export function audience(rows, minutes, now) {
  const kept = recent(rows, "window_start", minutes, now);
  const people = kept.filter((row) => !row.is_bot);
  const total = (list) => list.reduce((sum, row) => sum + row.views, 0);
  return {
    countries: ranked(kept, (row) => row.country || "", "views", 8),
    browsers: ranked(people, (row) => row.browser || "Unknown", "views", 6),
    people: total(people),
    bots: total(kept) - total(people),
  };
}

export function signups(rows, minutes, now) {
  const byRegion = ranked(recent(rows, "window_start", minutes, now), (row) => row.region || "Unknown", "signups", 8);
  return { byRegion, total: byRegion.reduce((sum, row) => sum + row.total, 0) };
}

export function pipelines(rows) {
  return values(rows).sort((a, b) => (a.pipeline < b.pipeline ? -1 : 1));
}

export function quarantine(statuses) {
  const totals = new Map();
  for (const status of statuses) {
    for (const [reason, total] of Object.entries(status.quarantine_reasons || {})) {
      const seen = totals.get(reason) || { label: reason, total: 0, pipelines: [] };
      seen.total = Math.max(seen.total, total);
      seen.pipelines.push(status.pipeline);
      totals.set(reason, seen);
    }
  }
  return [...totals.values()].sort((a, b) => b.total - a.total);
}

/** What a pipeline's status means, in one word with a tone. Silence outweighs what was said last. */
export function health(status, now) {
  const silent = (now - Date.parse(status.updated_at)) / 1000;
  if (status.state === "failed") return { tone: "bad", word: "failed" };
  if (status.state === "stopped") return { tone: "", word: "stopped" };
  if (silent > 30 && status.state !== "waiting") return { tone: "warn", word: "silent" };
  if (status.state === "restarting") return { tone: "warn", word: "restarting" };
  if (status.lag_seconds > 30) return { tone: "warn", word: "behind" };
  return { tone: "good", word: status.state };
}

/** The loop's rows: one per result topic with a latency, and those of the log and the server on their own. */
export function loop(rows) {
  const all = new Map(values(rows).map((row) => [row.topic, row]));
  const server = all.get("*") || null;
  const log = all.get("events") || null;
  const topics = [...all.values()].filter((row) => row.latency_p50_ms !== undefined && row.topic !== "events" && row.topic !== "*");
  return { server, log, topics: topics.filter((row) => !row.topic.startsWith("tailrace.")) };
}
