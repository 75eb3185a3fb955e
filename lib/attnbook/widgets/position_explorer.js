// The position explorer. Pure functions first: a test holds them to the library.

const REACH = 3; // the longest query or key
const SHOWN = 4.4; // half the plane's side: a wave adds a length of 1
const LAST = 63; // positions go from 0 to here
const WIDEST = 32;
const METHODS = { rotary: "Rotary (RoPE)", sinusoidal: "Sinusoidal" };
const BASES = [10, 100, 1000, 10000, 500000];

/** The angle per step of each pair of columns, fast ones first. */
export function computeFrequencies(width, base) {
  return Array.from({ length: width / 2 }, (_, i) => base ** ((-2 * i) / width));
}

/** How many steps a pair needs for a full turn. */
export function computeWavelength(width, base, pair) {
  return (2 * Math.PI) / computeFrequencies(width, base)[pair];
}

/** Two numbers rotated by an angle. */
export function rotate([x, y], angle) {
  const [s, c] = [Math.sin(angle), Math.cos(angle)];
  return [x * c - y * s, x * s + y * c];
}

/** One pair at a position: rotated, or with its sinusoids added. */
export function encodePair(method, pair, position, step) {
  const angle = position * step;
  if (method === "rotary") return rotate(pair, angle);
  return [pair[0] + Math.sin(angle), pair[1] + Math.cos(angle)];
}

/** The pair that is encoded like this at a position: the inverse. */
export function decodePair(method, seen, position, step) {
  const angle = position * step;
  if (method === "rotary") return rotate(seen, -angle);
  return [seen[0] - Math.sin(angle), seen[1] - Math.cos(angle)];
}

/** A whole vector, columns in turns, whose pairs all hold the same two numbers. */
export function encode(state, pair, position) {
  return computeFrequencies(state.width, state.base).flatMap((step) => encodePair(state.method, pair, position, step));
}

/** The scaled dot product of two vectors. */
export function computeScaledProduct(query, key) {
  return query.reduce((sum, x, d) => sum + x * key[d], 0) / Math.sqrt(query.length);
}

/** The score at the positions chosen. */
export function computeScore(state) {
  const [m, n] = state.positions;
  return computeScaledProduct(encode(state, state.query, m), encode(state, state.key, n));
}

/** For each distance from -LAST to LAST the least and the most score with it. */
export function computeBand(state) {
  const at = (pair) => Array.from({ length: LAST + 1 }, (_, p) => encode(state, pair, p));
  const [queries, keys] = [at(state.query), at(state.key)];
  const found = Array.from({ length: 2 * LAST + 1 }, (_, i) => ({ distance: i - LAST, low: Infinity, high: -Infinity }));
  queries.forEach((query, m) =>
    keys.forEach((key, n) => {
      const entry = found[n - m + LAST];
      const s = computeScaledProduct(query, key);
      entry.low = Math.min(entry.low, s);
      entry.high = Math.max(entry.high, s);
    }),
  );
  return found;
}

/** Both positions moved so that the query is at `to`, as far as both stay in. */
export function moveTogether([m, n], to) {
  const by = Math.min(Math.max(to - m, -Math.min(m, n)), LAST - Math.max(m, n));
  return [m + by, n + by];
}

/** A vector shortened to what the plane shows. */
export function limitLength([x, y]) {
  const long = Math.hypot(x, y);
  return long > REACH ? [(x * REACH) / long, (y * REACH) / long] : [x, y];
}

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const numbers = (x, low, high) => [0, 1].map((i) => clamp(Array.isArray(x) ? x[i] : null, low, high, 0));
  const width = 2 * Math.round(clamp(given?.width, 2, WIDEST, 16) / 2);
  return {
    method: given?.method === "sinusoidal" ? "sinusoidal" : "rotary",
    query: limitLength(numbers(given?.query, -1e6, 1e6)),
    key: limitLength(numbers(given?.key, -1e6, 1e6)),
    positions: numbers(given?.positions, 0, LAST).map(Math.round),
    pair: Math.round(clamp(given?.pair, 0, width / 2 - 1, 0)),
    width,
    base: clamp(given?.base, 2, 1e6, 10000),
  };
}

/** A number in few characters, with a real minus. */
export function formatNumber(x, digits = 2) {
  const text = x.toFixed(digits);
  return (/[1-9]/.test(text) ? text : text.replace("-", "")).replace("-", "−");
}

/** A wavelength in few characters. */
export function formatWavelength(x) {
  return String(Number(x.toPrecision(3))).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** The positions of query and key, in words. */
export function describePositions([m, n]) {
  const by = Math.abs(n - m);
  if (!by) return `Query and key both at ${m}`;
  return `Query at ${m}, key at ${n}, ${by} ${by === 1 ? "step" : "steps"} ${n > m ? "after" : "before"} it`;
}

/** What the widget finds, in words. */
export function describeScore(state, all = computeBand(state)) {
  const [m, n] = state.positions;
  const { low, high } = all[n - m + LAST];
  const here = `${describePositions(state.positions)}: score ${formatNumber(computeScore(state))}.`;
  if (Math.abs(n - m) === LAST) return `${here} No other positions here are so far apart.`;
  if (high - low < 1e-6) return `${here} The score is the same at all positions with this distance.`;
  return `${here} At the same distance elsewhere: ${formatNumber(low)} to ${formatNumber(high)}.`;
}

/** Where a key press moves a point, or null if it is none of ours. */
export function moveByKey(place, key, far) {
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  if (!Object.hasOwn(ways, key)) return null;
  return place.map((x, i) => x + (far ? 0.5 : 0.1) * ways[key][i]);
}

/** Points as SVG wants them, x from 0 to 1, y from low (bottom) to high (top). */
export function formatPoints(points, low, high) {
  return points.map(([x, y]) => `${(100 * x).toFixed(2)},${(100 - (100 * (y - low)) / (high - low)).toFixed(2)}`).join(" ");
}

const graph = (...children) => makeSvg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" }, ...children);

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, given, changed) {
  const id = `position-explorer-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const first = cleanState(given);
  const now = cleanState(given);
  const root = make("div", { className: "book-widget pe", role: "group", "aria-label": "Position explorer" });
  el.append(root);

  // The plane of one pair of columns.
  const both = ["query", "key"];
  const lines = makeSvg("svg", { class: "pe-lines", viewBox: `${-SHOWN} ${-SHOWN} ${2 * SHOWN} ${2 * SHOWN}`, "aria-hidden": "true" });
  for (const [x1, y1, x2, y2] of [[-SHOWN, 0, SHOWN, 0], [0, -SHOWN, 0, SHOWN]]) {
    lines.append(makeSvg("line", { x1, y1, x2, y2, class: "pe-axis" }));
  }
  const arrows = both.map((name) => ({
    before: makeSvg("line", { x1: 0, y1: 0, class: `pe-before pe-${name}` }),
    track: makeSvg("polyline", { class: `pe-track pe-${name}` }),
    after: makeSvg("line", { x1: 0, y1: 0, class: `pe-after pe-${name}` }),
  }));
  for (const arrow of arrows) lines.append(arrow.before, arrow.track, arrow.after);
  const tips = both.map((name) => make("button", { type: "button", className: `pe-tip pe-${name}` }, make("span", { text: name[0] })));
  // An application: a screen reader then leaves the arrow keys to the points.
  const about = "Plane of one pair of columns; Tab goes from query to key, arrow keys move one";
  const plane = make("div", { className: "pe-plane", role: "application", "aria-label": about }, lines, ...tips);
  const below = make("p", { className: "pe-label" });

  // Controls.
  const row = (name, text, control, shown) => {
    control.id = `${id}-${name}`;
    const label = make("label", { for: control.id, text });
    return make("div", { className: "pe-control" }, label, control, ...(shown ? [shown] : []));
  };
  const slider = (name, text, low, high) => {
    const input = make("input", { type: "range", min: low, max: high, step: 1 });
    const shown = make("output", { for: `${id}-${name}` });
    return { input, shown, row: row(name, text, input, shown) };
  };
  const options = (entries) => make("select", {}, ...entries.map(([value, text]) => make("option", { value, text })));
  const method = options(Object.entries(METHODS));
  const bases = [...new Set([...BASES, first.base])].sort((a, b) => a - b);
  const base = options(bases.map((x) => [x, x.toLocaleString("en")]));
  const places = [slider("query", "Query position", 0, LAST), slider("key", "Key position", 0, LAST)];
  const shift = slider("both", "Move both", 0, LAST);
  const wide = slider("width", "Width D", 1, Math.log2(WIDEST)); // by powers of 2
  const again = make("button", { type: "button", className: "pe-again", text: "Start again" });

  // What is found.
  const finding = make("p", { className: "pe-finding", "aria-hidden": "true" });
  const status = make("p", { className: "pe-hidden", role: "status" }); // speaks when a point rests

  // The score against the distance.
  const spread = makeSvg("polygon", { class: "pe-band" });
  const curve = makeSvg("polyline", { class: "pe-curve" });
  const zero = makeSvg("line", { x1: 0, x2: 100, class: "pe-axis" });
  const middle = makeSvg("line", { x1: 50, x2: 50, y1: 0, y2: 100, class: "pe-axis" });
  const dot = make("span", { className: "pe-dot" });
  const plot = make("div", { className: "pe-plot", role: "img" }, graph(middle, zero, spread, curve), dot);
  const [top, bottom] = [make("span", {}), make("span", {})];
  const ends = [`−${LAST}`, "0", `+${LAST}`].map((text) => make("span", { text }));
  const chart = make(
    "div", { className: "pe-chart" },
    make("div", { className: "pe-high", "aria-hidden": "true" }, top, bottom), plot,
    make("div", { className: "pe-across", "aria-hidden": "true" }, ...ends),
  );

  // The waves: a row for each pair.
  const waves = make("div", { className: "pe-waves", role: "group", "aria-label": "Pairs of columns, fast ones first; choose one" });
  const wavesLabel = make("p", { className: "pe-label" });

  /** Rows for as many pairs as there are. */
  function lay() {
    const each = computeFrequencies(now.width, now.base);
    waves.replaceChildren(
      ...each.map((step, i) => {
        const along = Array.from({ length: 4 * LAST + 1 }, (_, j) => j / 4);
        const wave = (f) => formatPoints(along.map((p) => [p / LAST, f(p * step)]), -1.25, 1.25);
        const sine = makeSvg("polyline", { class: "pe-sine", points: wave(Math.sin) });
        const cosine = makeSvg("polyline", { class: "pe-cosine", points: wave(Math.cos) });
        const marks = both.map((name) => make("span", { className: `pe-mark pe-${name}`, "aria-hidden": "true" }));
        const long = formatWavelength(computeWavelength(now.width, now.base, i));
        const name = `Pair ${i + 1} of ${each.length}, wavelength ${long} steps`;
        const strip = make("span", { className: "pe-strip", "aria-hidden": "true" }, graph(sine, cosine), ...marks);
        const number = make("span", { className: "pe-long", "aria-hidden": "true", text: long });
        const button = make("button", { type: "button", "aria-label": name }, strip, number);
        button.addEventListener("click", () => set("pair", i));
        return button;
      }),
    );
  }

  function show(rests = true) {
    const each = computeFrequencies(now.width, now.base);
    const step = each[now.pair];
    both.forEach((name, i) => {
      const at = now.positions[i];
      const seen = encodePair(now.method, now[name], at, step);
      const { before, track, after } = arrows[i];
      for (const [line, [x, y]] of [[before, now[name]], [after, seen]]) {
        line.setAttribute("x2", x);
        line.setAttribute("y2", -y);
      }
      track.setAttribute("points", tracePath(now.method, now[name], at * step).map(([x, y]) => `${x.toFixed(3)},${(-y).toFixed(3)}`).join(" "));
      tips[i].style.left = `${(100 * (SHOWN + seen[0])) / (2 * SHOWN)}%`;
      tips[i].style.top = `${(100 * (SHOWN - seen[1])) / (2 * SHOWN)}%`;
      const where = seen.map((x) => formatNumber(x, 1)).join(", ");
      tips[i].setAttribute("aria-label", `${name === "query" ? "Query" : "Key"} at ${where}; arrow keys move it`);
      places[i].input.value = at;
      places[i].shown.textContent = at;
      for (const mark of waves.querySelectorAll(`.pe-mark.pe-${name}`)) mark.style.left = `${(100 * at) / LAST}%`;
    });
    [...waves.children].forEach((button, j) => button.setAttribute("aria-pressed", j === now.pair));
    const [m, n] = now.positions;
    // Both move between the ends that either of them meets first.
    shift.input.min = m - Math.min(m, n);
    shift.input.max = m + LAST - Math.max(m, n);
    shift.input.value = m;
    shift.shown.textContent = `${m}, ${n}`;
    shift.input.setAttribute("aria-valuetext", `query ${m}, key ${n}`);
    wide.input.value = Math.log2(now.width);
    wide.shown.textContent = now.width;
    wide.input.setAttribute("aria-valuetext", now.width);
    method.value = now.method;
    base.value = now.base;
    const way = now.method === "rotary" ? "rotated by position × frequency" : "with the wave of its position added";
    const past = formatNumber((n - m) * step);
    below.textContent =
      `Pair ${now.pair + 1} of ${each.length}: columns ${2 * now.pair} (across) and ${2 * now.pair + 1} (up). ` +
      `Dashed: as it comes; solid: ${way}. From query to key the pair rotates by ${past} rad.`;
    const all = computeBand(now);
    plotted(all);
    const text = (finding.textContent = describeScore(now, all));
    if (rests && status.textContent !== text) status.textContent = text;
  }

  /** Draw the scores of all distances, and the one chosen. */
  function plotted(all) {
    let low = Math.min(0, ...all.map((e) => e.low));
    let high = Math.max(0, ...all.map((e) => e.high));
    if (high - low < 1e-6) [low, high] = [low - 1, high + 1];
    const across = (e) => (e.distance + LAST) / (2 * LAST);
    const line = (side) => all.map((e) => [across(e), e[side]]);
    spread.setAttribute("points", formatPoints([...line("high"), ...line("low").reverse()], low, high));
    curve.setAttribute("points", now.method === "rotary" ? formatPoints(line("high"), low, high) : "");
    const y0 = 100 + (100 * low) / (high - low);
    for (const name of ["y1", "y2"]) zero.setAttribute(name, y0);
    const [m, n] = now.positions;
    dot.style.left = `${100 * across({ distance: n - m })}%`;
    dot.style.top = `${100 - (100 * (computeScore(now) - low)) / (high - low)}%`;
    top.textContent = formatNumber(high, 1);
    bottom.textContent = formatNumber(low, 1);
    const what = now.method === "rotary" ? "a line: one score for each distance" : "a band: many scores for each distance";
    plot.setAttribute("aria-label", `Score, from ${formatNumber(low, 1)} to ${formatNumber(high, 1)}, against the distance from query to key; ${what}`);
  }

  const set = (name, value) => {
    now[name] = value;
    changed(name, value);
    if (name === "width" && now.pair >= value / 2) {
      now.pair = value / 2 - 1;
      changed("pair", now.pair);
    }
    if (name === "width" || name === "base") lay();
    show();
  };
  /** Move the tip of query (0) or key (1); told to the model only when it rests. */
  const shifted = (i, seen, rests = true) => {
    const step = computeFrequencies(now.width, now.base)[now.pair];
    now[both[i]] = limitLength(decodePair(now.method, seen, now.positions[i], step));
    show(rests);
    if (rests) changed(both[i], now[both[i]]);
  };
  const tip = (i) => encodePair(now.method, now[both[i]], now.positions[i], computeFrequencies(now.width, now.base)[now.pair]);
  const here = (event) => {
    const box = plane.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    return share.map((x) => SHOWN * (2 * x - 1));
  };
  tips.forEach((node, i) => {
    let held = [0, 0]; // where the tip was taken hold of, off its middle
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      held = here(event).map((x, axis) => x - tip(i)[axis]);
      node.focus();
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => {
      if (!node.hasPointerCapture(event.pointerId)) return;
      shifted(i, here(event).map((x, axis) => x - held[axis]), false);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      node.addEventListener(end, (event) => {
        if (node.hasPointerCapture(event.pointerId)) shifted(i, tip(i));
      });
    }
    node.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const place = moveByKey(tip(i), event.key, event.shiftKey);
      if (!place) return;
      event.preventDefault();
      event.stopPropagation(); // the theme and the notebook listen to arrows too
      shifted(i, place);
    });
  });
  places.forEach(({ input }, i) =>
    input.addEventListener("input", () => set("positions", now.positions.map((p, j) => (i === j ? Number(input.value) : p)))),
  );
  shift.input.addEventListener("input", () => set("positions", moveTogether(now.positions, Number(shift.input.value))));
  wide.input.addEventListener("input", () => set("width", 2 ** Number(wide.input.value)));
  method.addEventListener("change", () => set("method", method.value));
  base.addEventListener("change", () => set("base", Number(base.value)));
  again.addEventListener("click", () => {
    Object.assign(now, structuredClone(first));
    lay();
    show();
    for (const [name, value] of Object.entries(first)) changed(name, value);
  });
  for (const control of [...places, shift, wide].map((s) => s.input).concat(method, base)) {
    control.addEventListener("keydown", (event) => event.stopPropagation());
  }
  waves.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    set("pair", Math.min(Math.max(now.pair + by, 0), now.width / 2 - 1));
    waves.children[now.pair].focus();
  });

  wavesLabel.textContent = `All pairs over positions 0 to ${LAST}: sine dashed, cosine solid; at the right the wavelength in steps`;
  const label = (text) => make("p", { className: "pe-label", text });
  const legend = make("p", { className: "pe-label pe-legend" }, ...both.map((name) => make("span", { className: `pe-${name}`, text: name })));
  const controls = make(
    "div", { className: "pe-controls" },
    row("method", "Method", method), places[0].row, places[1].row, shift.row,
    wide.row, row("base", "Base", base), make("div", { className: "pe-control" }, again), finding, status,
  );
  root.append(
    make(
      "div", { className: "pe-grid" },
      make("div", { className: "pe-left" }, plane, legend, below), controls,
      make("div", { className: "pe-wide" }, label("Score (query · key ÷ √D) against the distance from query to key, in steps"), chart),
      make("div", { className: "pe-wide" }, wavesLabel, waves),
      label("Every pair of the query holds the same two numbers, and so does every pair of the key."),
    ),
  );
  lay();
  show();
  return () => root.remove();
}

/** The path from a pair to its encoding: an arc, or a wave. */
export function tracePath(method, pair, angle) {
  if (method !== "rotary") return [pair, encodePair(method, pair, 1, angle)];
  const rest = angle % (2 * Math.PI); // full turns lead nowhere
  const count = Math.max(2, Math.ceil(12 * Math.abs(rest)));
  return Array.from({ length: count + 1 }, (_, i) => rotate(pair, (rest * i) / count));
}

export default {
  render(view) {
    return bind(view, ["method", "query", "key", "positions", "pair", "width", "base"], build);
  },
};
