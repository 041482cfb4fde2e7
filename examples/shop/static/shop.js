/* The live figures of the shop. Without the live server every page works, just without them. */
(function () {
  "use strict";

  const tailrace = window.tailrace;
  const MINUTE_MS = 60000;
  const STALE_MS = 15000;

  // Calls back with false once the connection has been gone for a while: a figure that old is no longer "now".
  function watchConnection(callback) {
    let timer = null;
    tailrace.status((status) => {
      clearTimeout(timer);
      if (status.state === "live") callback(true);
      else timer = setTimeout(() => callback(false), status.state === "refused" ? 0 : STALE_MS);
    });
  }

  function looking(element) {
    const text = element.querySelector("[data-text]");
    let figure = 0;
    let fresh = true;
    function show() {
      element.hidden = !fresh || figure < 1;
      text.textContent = figure === 1 ? "One person is looking at this now" : figure + " people are looking at this now";
      element.dataset.visitors = String(figure);
    }
    watchConnection((is) => { fresh = is; show(); });
    tailrace.now("visitors_now", { key: [element.dataset.path] }, (row) => {
      figure = row ? row.visitors : 0;
      show();
    });
  }

  function popular(element) {
    const list = element.querySelector("[data-list]");
    const names = JSON.parse(element.querySelector("[data-names]").textContent);
    let minutes = new Map();
    let fresh = true;

    function minuteAt(moment) {
      return new Date(Math.floor(moment / MINUTE_MS) * MINUTE_MS).toISOString().replace(".000Z", ".000000Z");
    }

    // Subscribes to this minute and the last; older ones are let go.
    function follow() {
      const moment = tailrace.clock();
      const wanted = [minuteAt(moment), minuteAt(moment - MINUTE_MS)];
      const kept = new Map();
      wanted.forEach((start) => {
        const known = minutes.get(start) || { rows: new Map() };
        if (!known.stop) known.stop = tailrace.on("page_views", { key: [start] }, (rows) => { known.rows = rows; show(); });
        kept.set(start, known);
      });
      minutes.forEach((minute, start) => { if (!kept.has(start)) minute.stop(); });
      minutes = kept;
      show();
      setTimeout(follow, MINUTE_MS - (tailrace.clock() % MINUTE_MS) + 50);
    }

    function viewsIn(start) {
      const views = new Map();
      const minute = minutes.get(start);
      if (minute) {
        minute.rows.forEach((row) => {
          const slug = row.value.path.startsWith("/products/") ? row.value.path.slice(10) : "";
          if (Object.hasOwn(names, slug)) views.set(slug, (views.get(slug) || 0) + row.value.views);
        });
      }
      return [...views].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, 5);
    }

    function show() {
      const moment = tailrace.clock();
      let top = viewsIn(minuteAt(moment));
      // The first seconds of a minute have seen nobody yet: the minute before still tells the truth better.
      if (top.length === 0 && moment % MINUTE_MS < 10000) top = viewsIn(minuteAt(moment - MINUTE_MS));
      element.dataset.state = fresh ? "live" : "away";
      element.querySelector("[data-away]").hidden = fresh;
      element.querySelector("[data-empty]").hidden = !fresh || top.length > 0;
      list.hidden = !fresh || top.length === 0;
      list.replaceChildren(...top.map(([slug, views]) => item(slug, views, top[0][1])));
    }

    function item(slug, views, most) {
      const link = Object.assign(document.createElement("a"), { href: "/products/" + slug, textContent: names[slug] });
      const meter = Object.assign(document.createElement("progress"), { className: "meter", max: most, value: views });
      meter.setAttribute("aria-hidden", "true");
      const count = Object.assign(document.createElement("span"), { className: "views" });
      count.textContent = views + (views === 1 ? " view" : " views");
      const entry = document.createElement("li");
      entry.append(meter, link, count);
      return entry;
    }

    watchConnection((is) => { fresh = is; show(); });
    follow();
    setInterval(show, 5000);
  }

  function away() {
    document.querySelectorAll("[data-live=popular]").forEach((element) => {
      element.dataset.state = "away";
      element.querySelector("[data-empty]").hidden = true;
      element.querySelector("[data-away]").hidden = false;
    });
  }

  if (!tailrace) {
    away();
    return;
  }
  document.querySelectorAll("[data-live=looking]").forEach(looking);
  document.querySelectorAll("[data-live=popular]").forEach(popular);
})();
