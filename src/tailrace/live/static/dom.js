/* The few ways the dashboard touches the page. Text goes in as text, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Draw only what changed: `signature` is what the reader would see. */
const drawn = new Map();
export function draw(id, signature, make) {
  const text = JSON.stringify(signature);
  if (drawn.get(id) === text) return;
  drawn.set(id, text);
  const made = make();
  byId(id).replaceChildren(...(Array.isArray(made) ? made : [made]));
}

export function figure(id, text, unit) {
  const place = byId(id);
  const next = unit ? `${text} ${unit}` : text;
  if (place.dataset.shown === next) return;
  place.dataset.shown = next;
  place.dataset.empty = String(text === "–");
  place.replaceChildren(text, ...(unit ? [element("small", {}, unit)] : []));
}

export function empty(...words) { return element("p", { class: "empty" }, ...words); }

/** A ranked list with a bar behind each line. */
export function bars(id, rows, nothing, label) {
  const shown = rows.map((row) => [label ? label(row) : row.label, row.total, row.title]);
  draw(id, [shown, nothing], () => {
    if (!rows.length) return empty(...[nothing].flat());
    const most = Math.max(...rows.map((row) => row.total), 1);
    const items = shown.map(([name, total, title]) => {
      const svg = shape("svg", { "aria-hidden": "true" });
      svg.append(shape("rect", { width: `${Math.max(1.5, (100 * total) / most)}%`, height: "100%", rx: 6 }));
      return element("li", { title: title || name }, svg, element("span", {}, name),
        element("span", { class: "count" }, new Intl.NumberFormat("en").format(total)));
    });
    return element("ol", {}, ...items);
  });
}

/** Two shares of a whole as one bar. */
export function split(first, second) {
  const svg = shape("svg", { "aria-hidden": "true" });
  const whole = Math.max(1, first + second);
  const part = (100 * first) / whole;
  svg.append(shape("rect", { class: "people", width: `${first && second ? Math.max(0, part - 0.6) : part}%`, height: 10, rx: 4 }));
  if (second) svg.append(shape("rect", { class: "bot", x: `${part}%`, width: `${100 - part}%`, height: 10, rx: 4 }));
  return svg;
}

/** A small line without axes: the shape of the last minutes. */
export function spark(points) {
  const svg = shape("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length > 1) {
    const most = Math.max(...points, 1e-9);
    const at = points.map((value, index) => `${((100 * index) / (points.length - 1)).toFixed(2)},${(19 - (17 * value) / most).toFixed(2)}`);
    svg.append(shape("path", { class: "area", d: `M0,20 L${at.join(" L")} L100,20 Z` }), shape("path", { d: `M${at.join(" L")}` }));
  }
  return svg;
}

/** A table that becomes cards on a phone. Columns: {title, cell(row), number, name, wide}. */
export function table(id, caption, columns, rows, nothing, options) {
  const cells = rows.map((row) => columns.map((column) => column.cell(row)));
  const signature = [cells.map((line) => line.map((cell) => (cell instanceof Node ? cell.textContent : cell))), nothing, (options || {}).stamp];
  draw(id, signature, () => {
    if (!rows.length) return empty(...[nothing].flat());
    const style = (column) => [column.number ? "number" : "", column.name ? "name" : "", column.kind || ""].join(" ").trim() || null;
    const head = columns.map((column) => element("th", { scope: "col", class: style(column) }, column.title));
    const body = cells.map((line, index) => element("tr", { class: options && options.fresh && options.fresh(rows[index]) ? "fresh" : null },
      ...line.map((cell, place) => element("td", { class: style(columns[place]), "data-label": columns[place].title }, cell))));
    return element("table", { class: (options && options.style) || "stack" }, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  });
}

export function state(tone, word, mark) {
  return element("span", { class: `state ${tone}`.trim() }, element("span", { "aria-hidden": "true" }, mark), word);
}
