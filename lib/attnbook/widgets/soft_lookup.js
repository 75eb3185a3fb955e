// The soft lookup. Pure functions first: a test holds them to the library.

const REACH = 3;
const WIDEST = 1024;

/** What a vector holds beyond the plane: the same normal numbers as in Python. */
export function unseen(row, count) {
  let state = Math.imul(row + 1, 0x9e3779b1) >>> 0;
  const chance = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1) >>> 0;
    t = (t ^ (t + Math.imul(t ^ (t >>> 7), t | 61))) >>> 0;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return Array.from({ length: count }, () => {
    const size = Math.sqrt(-2 * Math.log(1 - chance()));
    return size * Math.cos(2 * Math.PI * chance());
  });
}

/** The dot products of the query and each key, in all D dimensions. */
export function products(query, places, width) {
  const asked = [...query, ...unseen(0, width - 2)];
  return places.map((place, i) => {
    const key = [...place, ...unseen(i + 1, width - 2)];
    return asked.reduce((sum, x, d) => sum + x * key[d], 0);
  });
}

/** Softmax, shifted by the maximum so that nothing overflows. */
export function softmax(scores) {
  const most = Math.max(...scores);
  const shares = scores.map((s) => Math.exp(s - most));
  const total = shares.reduce((a, b) => a + b, 0);
  return shares.map((x) => x / total);
}

/** What products are multiplied by. */
export function factor(state) {
  return (state.divided ? 1 / Math.sqrt(state.width) : 1) / state.temperature;
}

/** How much the answer takes from each key. */
export function weights(state) {
  const places = state.entries.map((key) => key.place);
  return softmax(products(state.query, places, state.width).map((p) => p * factor(state)));
}

/** The average of the values (rows of numbers), by weight. */
export function mix(shares, values) {
  return values[0].map((_, i) => values.reduce((sum, value, j) => sum + shares[j] * value[i], 0));
}

/** A number moved into a range; what is no number becomes `otherwise`. */
export function within(x, low, high, otherwise) {
  const number = x === null || x === "" ? NaN : Number(x);
  return Number.isFinite(number) ? Math.min(high, Math.max(low, number)) : otherwise;
}

/** A state that can be drawn, whatever came in. */
export function cleaned(given) {
  const list = (x, count, low, high) =>
    Array.from({ length: count }, (_, i) => within(Array.isArray(x) ? x[i] : null, low, high, 0));
  const keys = (Array.isArray(given?.entries) ? given.entries : []).slice(0, 8);
  return {
    entries: keys.map((key) => ({
      label: String(key?.label ?? ""),
      place: list(key?.place, 2, -REACH, REACH),
      value: list(key?.value, 3, 0, 1),
    })),
    query: list(given?.query, 2, -REACH, REACH),
    temperature: within(given?.temperature, 0.01, 100, 1),
    width: Math.round(within(given?.width, 2, WIDEST, 2)),
    divided: given?.divided !== false,
  };
}

/** A colour of three numbers between 0 and 1, as CSS wants it. */
export function css(value) {
  return `rgb(${value.map((x) => Math.round(255 * x)).join(", ")})`;
}

/** What the widget says, for eyes that cannot see it. */
export function told(state) {
  const shares = weights(state);
  const best = shares.indexOf(Math.max(...shares));
  const mixed = mix(shares, state.entries.map((key) => key.value)).map((x) => x.toFixed(2));
  const name = state.entries[best].label || `key ${best + 1}`;
  return `Most from ${name} (${shares[best].toFixed(2)}); the answer is ${mixed.join(", ")} of red, green, blue`;
}

/** Where a key press moves a point, or null if it is none of ours. */
export function moved(place, key, far) {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  if (!Object.hasOwn(steps, key)) return null;
  const size = far ? 0.5 : 0.1;
  return place.map((x, i) => within(Math.round((x + size * steps[key][i]) * 1e6) / 1e6, -REACH, REACH, 0));
}

const SVG = "http://www.w3.org/2000/svg";

function make(tag, props = {}, ...children) {
  const { className, text, ...attributes } = props;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text; // text, never HTML
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function draft(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, given, changed) {
  const id = `soft-lookup-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const first = cleaned(given);
  const now = cleaned(given);
  const root = make("div", { className: "sl", role: "group", "aria-label": "Soft lookup" });
  el.append(root);
  if (!now.entries.length) {
    root.append(make("p", { text: "There is no key to look up." }));
    return () => root.remove();
  }
  const lines = draft("svg", { class: "sl-lines", viewBox: "-3 -3 6 6", "aria-hidden": "true" });
  for (const [x1, y1, x2, y2] of [[-3, 0, 3, 0], [0, -3, 0, 3]]) {
    lines.append(draft("line", { x1, y1, x2, y2, class: "sl-axis" }));
  }
  const rays = now.entries.map(() => draft("line", { class: "sl-ray" }));
  lines.append(...rays);
  const plane = make("div", { className: "sl-plane" }, lines);
  const point = (className, ...inside) => make("button", { type: "button", className: `sl-point ${className}` }, ...inside);
  const keys = now.entries.map((key) => {
    const node = point("sl-key", make("bdi", { text: key.label }));
    node.style.setProperty("--value", css(key.value));
    return node;
  });
  const query = point("sl-query", "?");
  plane.append(...keys, query);

  const rows = now.entries.map((key) => {
    const dot = make("span", { className: "sl-dot", "aria-hidden": "true" });
    dot.style.setProperty("--value", css(key.value));
    const gauge = make("span", { className: "sl-gauge", "aria-hidden": "true" }, make("span", { className: "sl-fill" }));
    return make("li", {}, dot, make("bdi", { text: key.label }), gauge, make("span", { className: "sl-number" }));
  });
  const list = make("ol", { className: "sl-rows", "aria-label": "Keys, with the weight of each" }, ...rows);
  const answer = make("div", { className: "sl-answer", role: "img" });
  const status = make("p", { className: "sl-status", role: "status" });
  const slider = (name, text, low, high, step) => {
    const input = make("input", { type: "range", id: `${id}-${name}`, min: low, max: high, step });
    const shown = make("output", { for: input.id });
    const label = make("label", { for: input.id, text });
    return { input, shown, row: make("div", { className: "sl-control" }, label, input, shown) };
  };
  // Both move by powers: of 10 and of 2.
  const heat = slider("temperature", "Temperature", -2, 2, 0.05);
  const wide = slider("width", "Width D", 1, 10, 1);
  const divide = make("input", { type: "checkbox", id: `${id}-divided` });
  const again = make("button", { type: "button", className: "sl-again", text: "Start again" });
  const tick = make("label", { className: "sl-tick", for: divide.id }, divide, " divide by √D");

  function show() {
    const shares = weights(now);
    const place = (node, [x, y]) => {
      node.style.left = `${(100 * (x + REACH)) / (2 * REACH)}%`;
      node.style.top = `${(100 * (REACH - y)) / (2 * REACH)}%`;
    };
    const at = ([x, y]) => `at ${x.toFixed(1)}, ${y.toFixed(1)}; arrow keys move it`;
    now.entries.forEach((key, i) => {
      place(keys[i], key.place);
      keys[i].setAttribute("aria-label", `Key ${key.label} ${at(key.place)}`);
      const ends = { x1: now.query[0], y1: -now.query[1], x2: key.place[0], y2: -key.place[1] };
      for (const [name, value] of Object.entries(ends)) rays[i].setAttribute(name, value);
      rays[i].style.strokeWidth = `${0.14 * shares[i]}px`;
      rows[i].style.setProperty("--weight", shares[i]);
      rows[i].lastChild.textContent = shares[i].toFixed(2);
    });
    place(query, now.query);
    query.setAttribute("aria-label", `Query ${at(now.query)}`);
    const mixed = mix(shares, now.entries.map((key) => key.value));
    query.style.setProperty("--value", css(mixed));
    answer.style.setProperty("--value", css(mixed));
    answer.setAttribute("aria-label", `The answer: ${mixed.map((x) => x.toFixed(2)).join(", ")} of red, green, blue`);
    heat.input.value = Math.log10(now.temperature);
    wide.input.value = Math.log2(now.width);
    heat.shown.textContent = Number(now.temperature.toPrecision(2));
    wide.shown.textContent = now.width;
    heat.input.setAttribute("aria-valuetext", heat.shown.textContent);
    wide.input.setAttribute("aria-valuetext", wide.shown.textContent);
    divide.checked = now.divided;
    const text = told(now);
    if (status.textContent !== text) status.textContent = text;
  }

  const set = (name, value) => {
    now[name] = value;
    show();
    changed(name, value);
  };
  /** Move point i (the query is -1); told to the model only when it rests. */
  const shift = (i, place, rests = true) => {
    if (i < 0) now.query = place;
    else now.entries = now.entries.map((key, j) => (j === i ? { ...key, place } : key));
    show();
    if (rests) changed(i < 0 ? "query" : "entries", i < 0 ? now.query : now.entries);
  };
  const here = (event) => {
    const box = plane.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    return share.map((x) => within(Math.round(200 * REACH * (2 * x - 1)) / 200, -REACH, REACH, 0));
  };
  [query, ...keys].forEach((node, n) => {
    const i = n - 1;
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      node.focus();
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => {
      if (node.hasPointerCapture(event.pointerId)) shift(i, here(event), false);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      node.addEventListener(end, (event) => {
        if (node.hasPointerCapture(event.pointerId)) shift(i, i < 0 ? now.query : now.entries[i].place);
      });
    }
    node.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const place = moved(i < 0 ? now.query : now.entries[i].place, event.key, event.shiftKey);
      if (!place) return;
      event.preventDefault();
      event.stopPropagation(); // the theme and the notebook listen to arrows too
      shift(i, place);
    });
  });
  heat.input.addEventListener("input", () => set("temperature", 10 ** Number(heat.input.value)));
  wide.input.addEventListener("input", () => set("width", 2 ** Number(wide.input.value)));
  divide.addEventListener("change", () => set("divided", divide.checked));
  again.addEventListener("click", () => {
    for (const [name, value] of Object.entries(structuredClone(first))) set(name, value);
  });
  for (const control of [heat.input, wide.input, divide]) {
    control.addEventListener("keydown", (event) => event.stopPropagation());
  }
  const note = make("p", {
    className: "sl-label",
    text: "The plane shows two of D dimensions. In the others, query and keys hold fixed random numbers.",
  });
  root.append(
    plane,
    make(
      "div", { className: "sl-side" },
      heat.row, wide.row, make("div", { className: "sl-control" }, tick, again),
      list, make("p", { className: "sl-label", text: "The answer, mixed of the values:" }), answer, status, note,
    ),
  );
  show();
  return () => root.remove();
}

export default {
  render({ model, el }) {
    const names = ["entries", "query", "temperature", "width", "divided"];
    let mine = false; // a change that comes from here needs no rebuilding
    let remove = () => {};
    const fresh = () => {
      if (mine) return;
      remove();
      const state = Object.fromEntries(names.map((name) => [name, model.get(name)]));
      remove = build(el, state, (name, value) => {
        mine = true;
        model.set(name, value);
        model.save_changes();
        mine = false;
      });
    };
    fresh();
    for (const name of names) model.on(`change:${name}`, fresh);
    return () => {
      for (const name of names) model.off(`change:${name}`, fresh);
      remove();
    };
  },
};
