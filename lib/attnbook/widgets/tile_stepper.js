// The tile stepper. Pure functions first: a test holds them to the library.

const MOST = 10;
const BYTES = 4; // of a number

/** A whole number moved into a range; what is no number becomes `otherwise`. */
const clampInteger = (x, low, high, otherwise) => Math.round(clamp(x, low, high, otherwise));

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const list = (x) => (Array.isArray(x) ? x : []);
  const number = (x) => (Number.isFinite(Number(x)) ? Number(x) : 0);
  const table = (x, width) =>
    Array.from({ length: MOST }, (_, i) => Array.from({ length: width }, (_, j) => number(list(list(x)[i])[j])));
  const state = {
    T: clampInteger(given?.T, 1, MOST, 5), S: clampInteger(given?.S, 1, MOST, 7),
    rows: clampInteger(given?.rows, 1, MOST, 2), columns: clampInteger(given?.columns, 1, MOST, 3),
    causal: given?.causal === true, step: 0,
    query: table(given?.query, 4), key: table(given?.key, 4), value: table(given?.value, 2),
  };
  return { ...state, step: clampInteger(given?.step, 0, listTiles(state).length, 0) };
}

/** Whether query t can attend to key s; the last query is at the position of the last key. */
function canAttend(state, t, s) {
  return !state.causal || s <= t + state.S - state.T;
}

/** The score of query t and key s; -Infinity where it is masked out. */
export function computeScore(state, t, s) {
  if (!canAttend(state, t, s)) return -Infinity;
  const { query, key } = state;
  return query[t].reduce((sum, x, d) => sum + x * key[s][d], 0) / Math.sqrt(query[t].length);
}

const listIndices = (start, size, end) => Array.from({ length: Math.min(size, end - start) }, (_, i) => start + i);

/** The queries and the keys of the tile at a corner; no key if column is -1. */
function listTile(state, [row, column]) {
  return [listIndices(row, state.rows, state.T), column < 0 ? [] : listIndices(column, state.columns, state.S)];
}

/** The corners of the tiles in the order of the walk; -1: queries without a tile. */
export function listTiles(state) {
  const found = [];
  for (let row = 0; row < state.T; row += state.rows) {
    const corners = [];
    for (let column = 0; column < state.S; column += state.columns) {
      const [ts, keys] = listTile(state, [row, column]);
      if (ts.some((t) => keys.some((s) => canAttend(state, t, s)))) corners.push([row, column]);
    }
    found.push(...(corners.length ? corners : [[row, -1]]));
  }
  return found;
}

/** What every query knows after the steps, and the factor of the last one. */
export function runSteps(state) {
  const E = state.value[0].length;
  const known = Array.from({ length: state.T }, () => ({ maximum: -Infinity, before: -Infinity, factor: 1, total: 0, output: Array(E).fill(0) }));
  for (const corner of listTiles(state).slice(0, state.step)) {
    const [ts, keys] = listTile(state, corner);
    for (const t of ts) {
      const one = known[t];
      const scores = keys.map((s) => computeScore(state, t, s));
      const highest = Math.max(one.maximum, ...scores);
      const shift = highest === -Infinity ? 0 : highest; // -Infinity - -Infinity is NaN
      const factor = Math.exp(one.maximum - shift);
      const weights = scores.map((x) => Math.exp(x - shift));
      one.total = one.total * factor + weights.reduce((a, x) => a + x, 0);
      one.output = one.output.map((x, e) => weights.reduce((sum, w, i) => sum + w * state.value[keys[i]][e], x * factor));
      [one.before, one.maximum, one.factor] = [one.maximum, highest, factor];
    }
  }
  return known;
}

/** The average of the values seen so far: the output divided by the total. */
export function computeAverage(one) {
  return one.output.map((x) => (one.total ? x / one.total : 0));
}

/** The bytes read and written so far. */
export function countBytes(state) {
  const order = listTiles(state);
  const [D, E] = [state.query[0].length, state.value[0].length];
  let [read, written] = [0, 0];
  order.slice(0, state.step).forEach((corner, n) => {
    const [ts, keys] = listTile(state, corner);
    if (order[n - 1]?.[0] !== corner[0]) read += ts.length * D; // the queries come once
    read += keys.length * (D + E);
    if (order[n + 1]?.[0] !== corner[0]) written += ts.length * (E + 1); // output and logsumexp
  });
  return [BYTES * read, BYTES * written];
}

/** The bytes that the version with a matrix of scores reads and writes. */
export function countStandardBytes({ T, S, query, value }) {
  const [D, E] = [query[0].length, value[0].length];
  return [BYTES * ((T + S) * D + T * S + T * S + S * E), BYTES * (2 * T * S + T * E)];
}

const formatRange = (all, one, many) => (all.length === 1 ? `${one} ${all[0]}` : `${many} ${all[0]} to ${all.at(-1)}`);

/** What the last step did, in words. */
export function describeStep(state) {
  const order = listTiles(state);
  const all = (state.T && Math.ceil(state.T / state.rows)) * Math.ceil(state.S / state.columns);
  if (state.step === 0) {
    const met = order.filter(([, column]) => column >= 0).length;
    const left = all - met ? ` ${all - met} more would be masked out entirely and ${all - met === 1 ? "is" : "are"} left out.` : "";
    return `Nothing is done yet. ${met} ${met === 1 ? "tile is" : "tiles are"} to be walked, row by row.${left}`;
  }
  const corner = order[state.step - 1];
  const [ts, keys] = listTile(state, corner);
  const known = runSteps(state);
  const who = formatRange(ts, "query", "queries");
  const asked = `${who[0].toUpperCase()}${who.slice(1)}`;
  const wrote = order[state.step]?.[0] === corner[0] ? "" : ` The row of tiles is done: divided by the totals and written.`;
  const end = state.step === order.length ? " All is done." : "";
  if (!keys.length) return `Step ${state.step} of ${order.length}. ${asked} see${ts.length === 1 ? "s" : ""} no key: zeros are written.${end}`;
  const risen = ts.filter((t) => known[t].before > -Infinity && known[t].maximum > known[t].before);
  const most = risen.reduce((a, t) => (a === null || known[t].factor < known[a].factor ? t : a), null);
  const first = corner[1] === order.find(([row]) => row === corner[0])[1];
  const what = first
    ? " It is their first tile: nothing to rescale."
    : most === null
      ? " No maximum rises: all factors are 1."
      : ` The maximum of query ${most} rises from ${formatNumber(known[most].before)} to ${formatNumber(known[most].maximum)}: its sums are multiplied by ${formatNumber(known[most].factor)}.`;
  return `Step ${state.step} of ${order.length}. ${asked} meet${ts.length === 1 ? "s" : ""} ${formatRange(keys, "key", "keys")}.${what}${wrote}${end}`;
}

/** A number with two digits, never -0.00. */
export function formatNumber(x) {
  if (x === -Infinity) return "−∞";
  const text = x.toFixed(2);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, from, changed) {
  const id = `tile-stepper-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const now = cleanState(from);
  const root = make("div", { className: "book-widget ts", role: "group", "aria-label": "Tile stepper" });
  el.append(root);
  let count = 0;
  const named = (text, control, ...more) => {
    control.id = `${id}-${count++}`;
    return make("span", { className: "ts-pair" }, make("label", { for: control.id, text }), control, ...more);
  };
  const slider = (text, name, low, high) => {
    const input = make("input", { type: "range", min: low, max: high, step: 1 });
    const shown = make("output", {});
    const pair = named(text, input, shown);
    pair.classList.add("ts-slider");
    input.addEventListener("input", () => set(name, Number(input.value)));
    return { pair, show: (most) => {
      if (most !== undefined) input.max = most;
      input.value = now[name];
      shown.textContent = now[name];
    } };
  };
  const button = (text, go) => {
    const node = make("button", { type: "button", text });
    node.addEventListener("click", () => set("step", go()));
    return node;
  };
  const sizes = [
    slider("Queries T", "T", 1, MOST), slider("Keys S", "S", 1, MOST),
    slider("Queries in a tile", "rows", 1, MOST), slider("Keys in a tile", "columns", 1, MOST),
  ];
  const causal = make("input", { type: "checkbox" });
  causal.addEventListener("change", () => set("causal", causal.checked));
  const place = slider("Tiles done", "step", 0, 1);
  const back = button("Back", () => now.step - 1);
  const next = button("Next tile", () => now.step + 1);
  const start = button("To the start", () => 0);
  const table = (className, name) => make("table", { className: `ts-table ${className}`, "aria-label": name });
  const grid = table("ts-scores", "Scores of the tile at hand");
  const runs = table("ts-runs", "What each query keeps");
  const finding = make("p", { className: "ts-finding", role: "status" });
  const gauge = () => {
    const fill = make("span", { className: "ts-fill" });
    return { fill, bar: make("span", { className: "ts-gauge", "aria-hidden": "true" }, fill), said: make("output", {}) };
  };
  const [ours, theirs] = [gauge(), gauge()];

  function fill() {
    const order = listTiles(now);
    const state = (t, s) => {
      const at = order.findIndex((corner) => {
        const [ts, keys] = listTile(now, corner);
        return ts.includes(t) && keys.includes(s);
      });
      return at < 0 ? "skipped" : at === now.step - 1 ? "now" : at < now.step ? "done" : "later";
    };
    const lines = listIndices(0, now.T, now.T).map((t) => {
      const cells = listIndices(0, now.S, now.S).map((s) => {
        const where = state(t, s);
        const hidden = !canAttend(now, t, s);
        const text = hidden ? "·" : where === "now" ? formatNumber(computeScore(now, t, s)) : where === "done" ? "✓" : "";
        const className = `${hidden ? "ts-hidden-key" : ""} ${where === "now" ? "ts-now" : where === "done" ? "ts-done" : ""}`;
        return make("td", { text, className });
      });
      return make("tr", {}, make("th", { scope: "row", text: t }), ...cells);
    });
    const top = listIndices(0, now.S, now.S).map((s) => make("th", { scope: "col", text: s }));
    grid.replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...top)), make("tbody", {}, ...lines));
    const corner = order[now.step - 1];
    const current = corner ? listTile(now, corner)[0] : [];
    const heads = ["query", "maximum", "factor", "total", "average so far"];
    const rows = runSteps(now).map((one, t) => {
      const mean = computeAverage(one).map(formatNumber).join(", ");
      const factor = current.includes(t) && one.before > -Infinity ? formatNumber(one.factor) : "";
      const cells = [formatNumber(one.maximum), factor, formatNumber(one.total), one.total ? mean : ""];
      const className = current.includes(t) ? "ts-row" : "";
      return make("tr", { className }, make("th", { scope: "row", text: t }), ...cells.map((text) => make("td", { text })));
    });
    const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })));
    runs.replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  }

  function show() {
    const last = listTiles(now).length;
    now.step = clampInteger(now.step, 0, last, 0);
    sizes.forEach((one) => one.show());
    place.show(last);
    causal.checked = now.causal;
    next.disabled = now.step >= last;
    back.disabled = start.disabled = now.step <= 0;
    fill();
    const [mine, usual] = [countBytes(now), countStandardBytes(now)];
    const most = Math.max(usual[0] + usual[1], mine[0] + mine[1]);
    for (const [one, [read, written]] of [[ours, mine], [theirs, usual]]) {
      one.fill.style.setProperty("--share", (read + written) / most);
      one.said.textContent = `${read} read + ${written} written`;
    }
    const text = describeStep(now);
    if (finding.textContent !== text) finding.textContent = text;
  }

  function set(name, value) {
    const focused = document.activeElement;
    now[name] = value;
    if (name !== "step" && now.step) now.step = Math.min(now.step, listTiles(now).length);
    show();
    if (focused === next && next.disabled) back.focus(); // a button that is disabled loses the keyboard
    if ((focused === back || focused === start) && back.disabled) next.focus();
    changed(name, now[name]);
    if (name !== "step") changed("step", now.step);
  }

  root.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // the theme and the notebook listen to arrows too
  });
  const label = (text) => make("p", { className: "ts-label", text });
  const figure = (text, node) => make("div", {}, label(text), node);
  root.append(
    make("div", { className: "ts-bar" }, ...sizes.map((one) => one.pair), named("causal", causal)),
    make("div", { className: "ts-bar" }, next, back, start, place.pair),
    finding,
    make(
      "div", { className: "ts-pictures" },
      figure("Scores: queries down, keys across; ✓ already processed, · masked out", grid),
      figure("All that is kept: three numbers and a row for each query", runs),
    ),
    make(
      "div", { className: "ts-bytes" },
      make("span", { text: "Bytes so far, tiled" }), ours.bar, ours.said,
      make("span", { text: "All bytes, standard attention" }), theirs.bar, theirs.said,
    ),
    label("Widths D = 4 and E = 2, 4 bytes a number. With a matrix: scores written and read, weights written and read."),
  );
  show();
  return () => root.remove();
}

export default {
  render(view) {
    return bind(view, ["T", "S", "rows", "columns", "causal", "step", "query", "key", "value"], build);
  },
};
