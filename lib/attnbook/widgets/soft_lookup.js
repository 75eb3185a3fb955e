// The soft lookup. Pure functions first: a test holds them to the library.

const REACH = 3;
const SHOWN = 3.5; // half the plane's side: a point at its limit is still whole
const WIDEST = 1024;

/** What a vector holds beyond the plane: the same normal numbers as in Python. */
export function drawHiddenCoordinates(row, count) {
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
export function computeProducts(query, places, width) {
  const asked = [...query, ...drawHiddenCoordinates(0, width - 2)];
  return places.map((place, i) => {
    const key = [...place, ...drawHiddenCoordinates(i + 1, width - 2)];
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
export function computeFactor(state) {
  return (state.divided ? 1 / Math.sqrt(state.width) : 1) / state.temperature;
}

/** What softmax gets: the products, divided. */
export function computeScores(state) {
  const places = state.entries.map((key) => key.place);
  return computeProducts(state.query, places, state.width).map((p) => p * computeFactor(state));
}

/** The weight of each key. */
export function computeWeights(state) {
  return softmax(computeScores(state));
}

/** The average of the values (rows of numbers), by weight. */
export function mix(shares, values) {
  return values[0].map((_, i) => values.reduce((sum, value, j) => sum + shares[j] * value[i], 0));
}

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const list = (x, count, low, high) =>
    Array.from({ length: count }, (_, i) => clamp(Array.isArray(x) ? x[i] : null, low, high, 0));
  const keys = (Array.isArray(given?.entries) ? given.entries : []).slice(0, 8);
  return {
    entries: keys.map((key) => ({
      label: String(key?.label ?? ""),
      place: list(key?.place, 2, -REACH, REACH),
      value: list(key?.value, 3, 0, 1),
    })),
    query: list(given?.query, 2, -REACH, REACH),
    temperature: clamp(given?.temperature, 0.01, 100, 1),
    width: Math.round(clamp(given?.width, 2, WIDEST, 2)),
    divided: given?.divided !== false,
  };
}

/** A colour of three numbers between 0 and 1, as CSS wants it. */
export function formatColor(value) {
  return `rgb(${value.map((x) => Math.round(255 * x)).join(", ")})`;
}

/** A score in few characters. */
export function formatScore(x) {
  return Math.abs(x) < 99.95 ? (x.toFixed(1) === "-0.0" ? "0.0" : x.toFixed(1)) : x.toFixed(0);
}

/** What the widget finds, in words. */
export function describeResult(state) {
  const shares = computeWeights(state);
  const names = state.entries.map((key, i) => key.label || `key ${i + 1}`);
  const [first, second] = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]);
  const [most, next] = [shares[first], shares[second] ?? 0];
  const mixed = mix(shares, state.entries.map((key) => key.value)).map((x) => x.toFixed(2));
  const answer = `The output is ${mixed.join(", ")} of red, green, blue.`;
  const large = Math.log(shares.length);
  if (shares.length === 1) return `One key: it gets all the weight, whatever the query. ${answer}`;
  if (most > 0.995) return `Close to a hard lookup: ${names[first]} has the weight ${most.toFixed(2)}. ${answer}`;
  if (entropy(shares) > 0.99 * large) return `Nearly the mean of all values. ${answer}`;
  if (most - next < 0.005) return `${names[first]} and ${names[second]} are about equal (${most.toFixed(2)} each). ${answer}`;
  return `A mixture, most of it from ${names[first]} (${most.toFixed(2)}). ${answer}`;
}

/** Where a key press moves a point, or null if it is none of ours. */
export function moveByKey(place, key, far) {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  if (!Object.hasOwn(steps, key)) return null;
  const size = far ? 0.5 : 0.1;
  return place.map((x, i) => clamp(Math.round((x + size * steps[key][i]) * 1e6) / 1e6, -REACH, REACH, 0));
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, given, changed) {
  const id = `soft-lookup-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const first = cleanState(given);
  const now = cleanState(given);
  const root = make("div", { className: "book-widget sl", role: "group", "aria-label": "Soft lookup" });
  el.append(root);
  if (!now.entries.length) {
    root.append(make("p", { text: "There is no key to look up." }));
    return () => root.remove();
  }
  const lines = makeSvg("svg", { class: "sl-lines", viewBox: `${-SHOWN} ${-SHOWN} ${2 * SHOWN} ${2 * SHOWN}`, "aria-hidden": "true" });
  for (const [x1, y1, x2, y2] of [[-SHOWN, 0, SHOWN, 0], [0, -SHOWN, 0, SHOWN]]) {
    lines.append(makeSvg("line", { x1, y1, x2, y2, class: "sl-axis" }));
  }
  const rays = now.entries.map(() => makeSvg("line", { class: "sl-ray" }));
  lines.append(...rays);
  // An application: a screen reader then leaves the arrow keys to the points.
  const about = "Plane of the query and the keys; Tab goes from point to point, arrow keys move one";
  const plane = make("div", { className: "sl-plane", role: "application", "aria-label": about }, lines);
  const point = (className, ...inside) => make("button", { type: "button", className: `sl-point ${className}` }, ...inside);
  const keys = now.entries.map((key) => {
    const node = point("sl-key", make("bdi", { text: key.label }));
    node.style.setProperty("--value", formatColor(key.value));
    return node;
  });
  const query = point("sl-query", "?");
  plane.append(...keys, query);

  const rows = now.entries.map((key) => {
    const dot = make("span", { className: "sl-dot", "aria-hidden": "true" });
    dot.style.setProperty("--value", formatColor(key.value));
    const gauge = make("span", { className: "sl-gauge", "aria-hidden": "true" }, make("span", { className: "sl-fill" }));
    const cell = (...inside) => make("td", {}, ...inside);
    const name = make("th", { scope: "row" }, dot, make("bdi", { text: key.label || "key" }));
    return make("tr", {}, name, cell(), cell(gauge), cell());
  });
  const heads = ["key", "score", "weight", ""].map((text, i) =>
    i < 3 ? make("th", { scope: "col", text, ...(i === 2 && { colspan: 2 }) }) : "",
  );
  const list = make(
    "table", { className: "sl-rows", "aria-label": "Score and weight of each key" },
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows),
  );
  const even = make("p", { className: "sl-label sl-entropy" });
  const answer = make("div", { className: "sl-answer", role: "img" });
  const finding = make("p", { className: "sl-finding", "aria-hidden": "true" });
  const status = make("p", { className: "sl-hidden", role: "status" }); // speaks when a point rests
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

  function show(rests = true) {
    const [shares, fit] = [computeWeights(now), computeScores(now)];
    const place = (node, [x, y]) => {
      node.style.left = `${(100 * (SHOWN + x)) / (2 * SHOWN)}%`;
      node.style.top = `${(100 * (SHOWN - y)) / (2 * SHOWN)}%`;
    };
    const at = ([x, y]) => `at ${x.toFixed(1)}, ${y.toFixed(1)}; arrow keys move it`;
    now.entries.forEach((key, i) => {
      place(keys[i], key.place);
      keys[i].setAttribute("aria-label", `Key ${key.label} ${at(key.place)}`);
      const ends = { x1: now.query[0], y1: -now.query[1], x2: key.place[0], y2: -key.place[1] };
      for (const [name, value] of Object.entries(ends)) rays[i].setAttribute(name, value);
      rays[i].style.strokeWidth = `${0.14 * shares[i]}px`;
      rows[i].style.setProperty("--weight", shares[i]);
      rows[i].children[1].textContent = formatScore(fit[i]).replace("-", "−");
      rows[i].lastChild.textContent = shares[i].toFixed(2);
    });
    even.textContent = `Entropy ${entropy(shares).toFixed(2)} nats, of at most ${Math.log(shares.length).toFixed(2)}`;
    place(query, now.query);
    query.setAttribute("aria-label", `Query ${at(now.query)}`);
    const mixed = mix(shares, now.entries.map((key) => key.value));
    query.style.setProperty("--value", formatColor(mixed));
    answer.style.setProperty("--value", formatColor(mixed));
    answer.setAttribute("aria-label", `The output: ${mixed.map((x) => x.toFixed(2)).join(", ")} of red, green, blue`);
    heat.input.value = Math.log10(now.temperature);
    wide.input.value = Math.log2(now.width);
    heat.shown.textContent = Number(now.temperature.toPrecision(2));
    wide.shown.textContent = now.width;
    heat.input.setAttribute("aria-valuetext", heat.shown.textContent);
    wide.input.setAttribute("aria-valuetext", wide.shown.textContent);
    divide.checked = now.divided;
    const text = (finding.textContent = describeResult(now));
    if (rests && status.textContent !== text) status.textContent = text;
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
    show(rests);
    if (rests) changed(i < 0 ? "query" : "entries", i < 0 ? now.query : now.entries);
  };
  const here = (event) => {
    const box = plane.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    return share.map((x) => SHOWN * (2 * x - 1));
  };
  const where = (i) => (i < 0 ? now.query : now.entries[i].place);
  [query, ...keys].forEach((node, n) => {
    const i = n - 1;
    let held = [0, 0]; // where the point was taken hold of, off its middle
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      held = here(event).map((x, axis) => x - where(i)[axis]);
      node.focus();
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => {
      if (!node.hasPointerCapture(event.pointerId)) return;
      const place = here(event).map((x, axis) => Math.round(100 * (x - held[axis])) / 100);
      shift(i, place.map((x) => clamp(x, -REACH, REACH, 0)), false);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      node.addEventListener(end, (event) => {
        if (node.hasPointerCapture(event.pointerId)) shift(i, where(i));
      });
    }
    node.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const place = moveByKey(where(i), event.key, event.shiftKey);
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
    text:
      "Score = query · key ÷ temperature, and ÷ √D if ticked. The plane shows 2 of D coordinates; the others are " +
      "fixed draws from a standard normal distribution, so the larger D, the less your drag decides.",
  });
  const side = make(
    "div", { className: "sl-side" },
    heat.row, wide.row, make("div", { className: "sl-control" }, tick, again),
    list, even, make("p", { className: "sl-label", text: "The output, the weighted average of the values:" }), answer,
    finding, status,
  );
  root.append(make("div", { className: "sl-grid" }, plane, side, note));
  show();
  return () => root.remove();
}

export default {
  render(view) {
    return bind(view, ["entries", "query", "temperature", "width", "divided"], build);
  },
};
