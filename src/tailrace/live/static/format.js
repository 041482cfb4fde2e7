/* Numbers, times and names as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const clockSeconds = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const regions = new Intl.DisplayNames(["en"], { type: "region" });

export const missing = "–";

export function count(value) {
  if (value === null || value === undefined) return missing;
  return value < 100000 ? whole.format(value) : short.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return missing;
  return value < 10 && value > 0 ? value.toFixed(1) : count(Math.round(value));
}

/** Milliseconds as [number, unit]. */
export function latency(ms) {
  if (ms === null || ms === undefined) return [missing, ""];
  if (ms < 1000) return [ms < 10 ? ms.toFixed(1) : String(Math.round(ms)), "ms"];
  if (ms < 60000) return [(ms / 1000).toFixed(ms < 10000 ? 2 : 1), "s"];
  return [String(Math.round(ms / 60000)), "min"];
}

export function latencyText(ms) {
  return latency(ms).join(" ").trim();
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return missing;
  if (seconds < 1) return seconds <= 0 ? "0 s" : `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function minute(iso) { return clock.format(new Date(iso)); }
export function second(iso) { return clockSeconds.format(new Date(iso)); }

export function country(code) {
  if (!code) return "Unknown";
  try { return regions.of(code) || code; } catch (error) { return code; }
}

export function plural(number, one, many) { return `${count(number)} ${number === 1 ? one : many}`; }
