/* The dashboard: subscribes, keeps the pictures, and draws what changed. */

import { byId, draw, element } from "./dom.js";
import * as views from "./views.js";

const SLOW_MS = 400; // parts that sum over many rows are not drawn more often than this
const QUIET_MS = 50; // after so long without a change the next one is not part of a burst
const pictures = {};
const refused = {};
const dirty = new Map();
let connection = { state: "connecting", reason: "", retryAt: null };

// A token for topics that are not public comes in the fragment (never sent to a server) and stays in this tab.
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) sessionStorage.setItem("tailrace-token", given);
    return given || sessionStorage.getItem("tailrace-token");
  } catch (error) {
    return given;
  }
}

function nothing(topic) {
  const refusal = refused[topic];
  if (!refusal) return pictures[topic] ? null : connection.state === "live" ? "Loading…" : "Waiting for the connection.";
  if (refusal.code === 4401) return [`${topic} is private. Open this page with `, element("code", {}, "#token=…"), " from ", element("code", {}, `tailrace live token ${topic}`), "."];
  return [`${topic} is not open on this server: name it under `, element("code", {}, "[live.topics]"), "."];
}

const none = new Map();
const now = () => tailrace.clock();
const parts = {
  page_views: { ms: SLOW_MS, draw: () => views.views(pictures.page_views || none, now(), nothing("page_views")) },
  audience: { ms: SLOW_MS, draw: () => views.audience(pictures.audience || none, now(), nothing("audience")) },
  signups: { ms: SLOW_MS, draw: () => views.signups(pictures.signups || none, now(), nothing("signups")) },
  visitors_now: { ms: 0, draw: () => views.visitors(pictures.visitors_now || [], nothing("visitors_now")) },
  "events.enriched": { ms: 0, draw: () => views.feed(pictures["events.enriched"] || none, nothing("events.enriched")) },
  "tailrace.loop": { ms: 0, draw: () => { views.loop(pictures["tailrace.loop"] || none, nothing("tailrace.loop")); banners(); } },
  "tailrace.status": { ms: 0, draw: () => views.pipelines(pictures["tailrace.status"] || none, now(), nothing("tailrace.status")) },
};

function mark(topic) {
  if (dirty.has(topic)) return;
  const part = parts[topic];
  const quiet = performance.now() - (part.drawnAt || 0);
  const wait = Math.max(0, part.ms - quiet);
  dirty.set(topic, true);
  const run = () => {
    dirty.delete(topic);
    part.drawnAt = performance.now();
    part.draw();
  };
  // A page in the background gets no animation frames: draw it anyway, so that it is right when it comes back.
  if (wait || document.hidden) setTimeout(run, wait);
  // The first change after a quiet moment is drawn at once; those of a burst wait for the frame that shows them.
  else if (quiet > QUIET_MS) run();
  else requestAnimationFrame(run);
}

function banner(tone, title, ...rest) {
  return element("p", { class: `banner ${tone}`.trim() }, element("span", {}, element("strong", {}, title), " ", ...rest));
}

function banners() {
  const server = serverRow();
  const log = (pictures["tailrace.loop"] || none).get('["events"]');
  const shown = [];
  const wait = connection.retryAt ? Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1000)) : null;
  if (connection.state === "lost") shown.push(["", "Connection lost, retrying", wait > 1 ? `in ${wait} s. The figures are as they were.` : "now. The figures are as they were."]);
  if (connection.state === "refused") shown.push(["bad", "The live server refuses this page.", connection.reason]);
  if (connection.state === "live" && server) {
    if (!server.connected) shown.push(["bad", "The live server cannot reach Kafka.", "It keeps trying; the figures are as they were."]);
    else if (!server.caught_up) shown.push(["plain", "Catching up with the log.", server.problem]);
    else if (!log || log.value.records === 0) shown.push(["plain", "No events yet.", "Run", "tailrace demo", "or open a page of your site."]);
  }
  draw("banners", shown, () => shown.map(([tone, title, ...rest]) => banner(tone, title,
    ...rest.flatMap((text) => [text.startsWith("tailrace ") ? element("code", {}, text) : text, " "]))));
  byId("server-note").textContent = server ? `${server.clients} connected ${server.clients === 1 ? "page" : "pages"}` : "";
}

function serverRow() {
  const row = (pictures["tailrace.loop"] || none).get('["*"]');
  return row ? row.value : null;
}

const WORDS = { idle: "Not connected", connecting: "Connecting…", reconnecting: "Reconnecting…", live: "Live", lost: "Connection lost", refused: "Refused" };

function start() {
  tailrace.status((next) => {
    connection = next;
    byId("connection").dataset.state = next.state;
    byId("connection-text").textContent = WORDS[next.state];
    banners();
    if (next.state === "live" || next.state === "lost") Object.keys(parts).forEach(mark);
  });
  const access = token();
  for (const topic of Object.keys(parts)) {
    const options = { key: [], token: access, refused: (why) => { refused[topic] = why; mark(topic); } };
    if (topic === "visitors_now") {
      tailrace.now(topic, options, (_, rows) => { pictures[topic] = rows; mark(topic); });
    } else {
      tailrace.on(topic, options, (rows) => { refused[topic] = null; pictures[topic] = rows; mark(topic); });
    }
  }
  // Windows grow old and pauses run out without any message.
  setInterval(() => { banners(); ["page_views", "audience", "signups", "tailrace.status"].forEach(mark); }, 1000);
}

start();
