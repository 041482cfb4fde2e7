/*
 * live.js: live results of Tailrace on any page. No dependencies, no build step.
 *
 *   <script src="https://live.example/live.js"></script>
 *   const stop = tailrace.on("page_views", {key: []}, (rows, change) => …);
 *   tailrace.now("visitors_now", {key: ["/products/lamp"]}, (row) => …);
 *
 * rows    Map: JSON text of the key -> {key, value, revision}; the current picture of what was asked for
 * change  {kind: "snapshot" | "delta", changes: [{key, value, revision}], slow: boolean}; value null: the row is gone
 *
 * The connection opens with the first subscription, comes back by itself (with growing pauses and some chance in
 * them) and goes on where it was; after a restart of the server it gets a fresh picture.
 */
(function (root) {
  "use strict";

  const FIRST_PAUSE_MS = 250;
  const LONGEST_PAUSE_MS = 10000;
  const OPENING_MS = 10000;
  // Codes that a second try would get again. 4503 (full), 4430 (too many from here) and 4429 (too fast) are worth another, later.
  const FINAL_CODES = new Set([4400, 4403, 4409]);
  const REFUSED_CODES = new Set([4401, 4404]);

  const here = root.document && root.document.currentScript ? root.document.currentScript.src : "";

  function liveAddress(text) {
    const address = new URL(text || "/live", here || root.location.href);
    if (address.protocol === "http:") address.protocol = "ws:";
    if (address.protocol === "https:") address.protocol = "wss:";
    if (address.pathname === "/") address.pathname = "/live";
    return address.href;
  }

  function createClient() {
    const subscriptions = new Map();
    const watchers = new Set();
    let address = null;
    let socket = null;
    let pauses = 0;
    let retryTimer = null;
    let quietTimer = null;
    let quietMs = 30000;
    let skew = 0; // how far the server's clock is ahead of the visitor's, which may be anything
    let state = { state: "idle", reason: "", retryAt: null };

    function tell(next, reason, retryAt) {
      state = { state: next, reason: reason || "", retryAt: retryAt || null };
      watchers.forEach((watcher) => guarded(watcher, state));
    }

    function guarded(callback, ...values) {
      try {
        callback(...values);
      } catch (error) {
        // One page's callback that throws must not stop the others.
        setTimeout(() => { throw error; });
      }
    }

    function open() {
      if (socket || address === null) return;
      clearTimeout(retryTimer);
      tell(pauses ? "reconnecting" : "connecting", state.reason);
      const opened = new WebSocket(address);
      socket = opened;
      opened.onopen = () => subscriptions.forEach(ask);
      opened.onmessage = (message) => { listen(); take(JSON.parse(message.data)); };
      opened.onclose = (event) => { if (socket === opened) lost(event.code, event.reason); };
      listen(OPENING_MS);
    }

    // A line that died without a word is only noticed by its silence: the server says something every few seconds.
    function listen(ms) {
      clearTimeout(quietTimer);
      const listened = socket;
      quietTimer = setTimeout(() => {
        if (socket !== listened) return;
        lost(1006, "The server has gone quiet.");
        listened.close();
      }, ms || quietMs);
    }

    function lost(code, reason) {
      clearTimeout(quietTimer);
      socket = null;
      if (FINAL_CODES.has(code)) {
        tell("refused", reason || "Refused with code " + code + ".");
        return;
      }
      const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** pauses);
      const pause = longest / 2 + Math.random() * (longest / 2);
      pauses += 1;
      retryTimer = setTimeout(open, pause);
      tell("lost", reason || "Connection lost.", Date.now() + pause);
    }

    function say(message) {
      if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
    }

    function ask(subscription) {
      const message = { op: "subscribe", topic: subscription.topic, key: subscription.key };
      if (subscription.epoch !== null) message.resume = { epoch: subscription.epoch, seq: subscription.seq };
      if (subscription.token) message.token = subscription.token;
      say(message);
    }

    function take(frame) {
      if (frame.op === "hello") {
        pauses = 0;
        quietMs = frame.beat * 3000;
        skew = frame.at - Date.now();
        tell("live");
        return;
      }
      const subscription = subscriptions.get(name(frame.topic, frame.key));
      if (!subscription) return;
      if (frame.op === "snapshot") snapshot(subscription, frame);
      else if (frame.op === "delta") delta(subscription, frame);
      else if (frame.op === "slow") subscription.slow = true;
      else if (frame.op === "error") refuse(subscription, frame);
    }

    function snapshot(subscription, frame) {
      subscription.epoch = frame.epoch;
      subscription.seq = frame.seq;
      subscription.rows.clear();
      frame.rows.forEach((row) => subscription.rows.set(JSON.stringify(row.key), row));
      publish(subscription, "snapshot", frame.rows);
    }

    function delta(subscription, frame) {
      // An empty delta answers a resume: nothing was missed.
      if (frame.seq < subscription.seq || (frame.seq === subscription.seq && frame.changes.length)) return;
      subscription.seq = frame.seq;
      for (const change of frame.changes) {
        const key = JSON.stringify(change.key);
        if (change.value === null) subscription.rows.delete(key);
        else subscription.rows.set(key, change);
      }
      publish(subscription, "delta", frame.changes);
    }

    function publish(subscription, kind, changes) {
      subscription.ready = true;
      const change = { kind: kind, changes: changes, slow: subscription.slow };
      subscription.slow = false;
      subscription.callbacks.forEach((callback) => guarded(callback, subscription.rows, change));
    }

    function refuse(subscription, frame) {
      subscription.refused = { code: frame.code, reason: frame.reason };
      if (REFUSED_CODES.has(frame.code)) subscription.epoch = null;
      subscription.refusals.forEach((callback) => guarded(callback, subscription.refused));
    }

    function name(topic, key) {
      return JSON.stringify([topic, key]);
    }

    function on(topic, options, callback) {
      const wanted = options || {};
      const key = wanted.key || [];
      const id = name(topic, key);
      let subscription = subscriptions.get(id);
      if (!subscription) {
        subscription = {
          topic: topic, key: key, token: wanted.token || null, rows: new Map(), epoch: null, seq: -1,
          ready: false, slow: false, refused: null, callbacks: new Set(), refusals: new Set(),
        };
        subscriptions.set(id, subscription);
        if (address === null) connect();
        ask(subscription);
      } else if (wanted.token && (wanted.token !== subscription.token || subscription.refused)) {
        // A fresh token, before the old one ends or after it was refused.
        subscription.token = wanted.token;
        subscription.refused = null;
        ask(subscription);
      }
      const heard = (rows, change) => callback(rows, change);
      subscription.callbacks.add(heard);
      if (wanted.refused) subscription.refusals.add(wanted.refused);
      if (subscription.ready) {
        guarded(heard, subscription.rows, { kind: "snapshot", changes: [...subscription.rows.values()], slow: false });
      }
      return function stop() {
        subscription.callbacks.delete(heard);
        if (wanted.refused) subscription.refusals.delete(wanted.refused);
        if (subscription.callbacks.size === 0 && subscriptions.get(id) === subscription) {
          subscriptions.delete(id);
          say({ op: "unsubscribe", topic: topic, key: key });
        }
      };
    }

    // Windows that slide: at a moment, the row that counts is the one whose window ends next. It also changes when
    // nobody clicks, so the clock asks again when that window ends.
    function now(topic, options, callback) {
      const column = (options && options.end) || "window_end";
      const rest = options && options.by ? options.by : (row) => JSON.stringify(row.key.filter((part) => part !== row.value[column]));
      let timer = null;
      let picture = null;
      let shown = null;

      function show() {
        clearTimeout(timer);
        const moment = new Date(Date.now() + skew).toISOString().replace("Z", "000Z");
        const current = new Map();
        let next = null;
        picture.forEach((row) => {
          const end = row.value[column];
          if (end <= moment) return;
          const group = rest(row);
          const best = current.get(group);
          if (!best || end < best.value[column]) current.set(group, row);
          if (next === null || end < next) next = end;
        });
        const rows = [...current.values()].map((row) => row.value);
        const text = JSON.stringify(rows);
        if (next !== null) timer = setTimeout(show, Math.min(60000, Math.max(20, Date.parse(next) - Date.now() - skew + 5)));
        if (text === shown) return;
        shown = text;
        callback(rows[0] || null, rows);
      }

      const stop = on(topic, options, (rows) => { picture = rows; show(); });
      return function () { clearTimeout(timer); stop(); };
    }

    function connect(url) {
      const next = liveAddress(url);
      if (next === address) return;
      address = next;
      if (socket) socket.close();
      socket = null;
      open();
    }

    function close() {
      clearTimeout(retryTimer);
      clearTimeout(quietTimer);
      const closing = socket;
      socket = null;
      address = null;
      if (closing) closing.close();
      tell("idle");
    }

    function status(callback) {
      watchers.add(callback);
      guarded(callback, state);
      return () => watchers.delete(callback);
    }

    if (root.addEventListener) {
      // Whoever comes back to the page or to the network should not have to wait for the pause to end.
      const again = () => { if (!socket && address !== null && state.state === "lost") open(); };
      root.addEventListener("online", again);
      if (root.document) root.document.addEventListener("visibilitychange", () => { if (!root.document.hidden) again(); });
    }

    return { connect: connect, on: on, now: now, status: status, close: close, clock: () => Date.now() + skew };
  }

  root.tailrace = createClient();
})(typeof window === "undefined" ? globalThis : window);
