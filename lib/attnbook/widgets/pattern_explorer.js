// The pattern explorer. Pure functions first: a test holds them to the library.

const MOST = 64;
const SEED = 0;
const BLOCKS = [1, 4, 8, 16];
const RANGES = { window: [1, MOST], step: [1, 8], sinks: [0, 8], global_tokens: [0, 8], random_blocks: [0, 4] };
const PARTS = [...Object.keys(RANGES), "block"];
const LAYERS = [1, 8];
const SAYS = { window: "Window (keys)", step: "Step (dilation)", sinks: "Sinks", global_tokens: "Global tokens", random_blocks: "Random blocks" };

const list = (x) => (Array.isArray(x) ? x : []);
const integer = (x, low, high, otherwise) => Math.round(clamp(x, low, high, otherwise));
const mean = (row) => (row.length ? row.reduce((sum, x) => sum + x, 0) / row.length : 0);
const percent = (x) => `${Math.round(100 * x)} %`;
const groupDigits = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
const count = (n, one, several = `${one}s`) => `${groupDigits(n)} ${n === 1 ? one : several}`;

/** The sizes of blocks that divide a length. */
export function listSizes(T) {
  return BLOCKS.filter((size) => T % size === 0);
}

/** A pattern that can be drawn, whatever came in. */
export function cleanPattern(given, T) {
  const block = Number(given?.block);
  const made = { block: listSizes(T).includes(block) ? block : 1 };
  for (const [name, [low, high]] of Object.entries(RANGES)) {
    made[name] = integer(given?.[name], low, name === "window" ? Math.max(T, 1) : high, low);
  }
  return made;
}

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const tokens = list(given?.tokens).slice(0, MOST).map(String);
  const T = tokens.length;
  const row = (rows, t) => Array.from({ length: t + 1 }, (_, s) => integer(list(list(rows)[t])[s], 0, 1000, 0));
  const heads = list(given?.heads).map((head) => ({
    title: String(head?.title ?? ""),
    thousandths: tokens.map((_, t) => row(head?.thousandths, t)),
  }));
  const orders = listSizes(T).slice(1).map((size) => {
    const ranks = list(list(given?.orders).find((order) => order?.size === size)?.ranks);
    const N = T / size;
    return { size, ranks: Array.from({ length: N }, (_, n) => Array.from({ length: N }, (_, m) => integer(list(ranks[n])[m], 0, N - 1, m))) };
  });
  return {
    title: String(given?.title ?? ""), tokens, heads, orders,
    presets: list(given?.presets).map((preset) => ({ name: String(preset?.name ?? ""), ...cleanPattern(preset, T) })),
    ...cleanPattern(given, T),
    layers: integer(given?.layers, ...LAYERS, 1),
    position: integer(given?.position, 0, Math.max(T - 1, 0), 0),
    head: integer(given?.head, 0, Math.max(heads.length - 1, 0), 0),
  };
}

/** The positions of the global tokens, evenly spread. */
export function spreadGlobals(number, T) {
  return Array.from({ length: number }, (_, i) => Math.floor(((2 * i + 1) * T) / (2 * number)));
}

/** Which keys each query can attend to, before the pattern is rounded to blocks. */
function buildFine(pattern, T) {
  const { window, step, sinks } = pattern;
  const chosen = new Set(spreadGlobals(pattern.global_tokens, T));
  const sees = (q, k) => {
    const back = q - k;
    if (back < 0) return false; // never a later key
    return (back < window * step && back % step === 0) || k < sinks || chosen.has(q) || chosen.has(k);
  };
  return Array.from({ length: T }, (_, q) => Array.from({ length: T }, (_, k) => sees(q, k)));
}

/** The blocks in which scores are computed: rows of blocks of queries. */
export function buildLayout(pattern, T, orders) {
  const fine = buildFine(pattern, T);
  const size = pattern.block;
  if (size === 1) return fine;
  const inside = (n) => fine.slice(n * size, (n + 1) * size);
  const ranks = orders.find((order) => order.size === size).ranks;
  return ranks.map((order, n) => {
    const kept = order.map((_, m) => inside(n).some((row) => row.slice(m * size, (m + 1) * size).some(Boolean)));
    const left = order.map((_, m) => m).filter((m) => m <= n && !kept[m]);
    left.sort((a, b) => order[a] - order[b] || a - b);
    for (const m of left.slice(0, pattern.random_blocks)) kept[m] = true;
    return kept;
  });
}

/** The mask: rows of queries, true where a query can attend. */
export function buildMask(pattern, T, orders) {
  const layout = buildLayout(pattern, T, orders);
  const block = (i) => Math.floor(i / pattern.block);
  return Array.from({ length: T }, (_, q) => Array.from({ length: T }, (_, k) => k <= q && layout[block(q)][block(k)]));
}

/** How many scores are computed: whole blocks. */
export function countScores(pattern, T, orders) {
  return buildLayout(pattern, T, orders).flat().filter(Boolean).length * pattern.block ** 2;
}

/** Through how many layers each input reaches a position at least; -1: through none. */
export function findDistances(mask, position) {
  const found = mask.map(() => -1);
  let front = [position];
  for (let layer = 0; front.length; layer += 1) {
    for (const q of front) found[q] = layer;
    const next = new Set(front.flatMap((q) => mask[q].flatMap((sees, k) => (sees && found[k] < 0 ? [k] : []))));
    front = [...next];
  }
  return found;
}

/** For each query, the share of its recorded weight on the keys of a mask. */
export function computeKept(mask, rows) {
  return rows.map((row, q) => {
    const total = row.reduce((sum, x) => sum + x, 0);
    return total ? row.reduce((sum, x, k) => sum + (mask[q][k] ? x : 0), 0) / total : 0;
  });
}

/** The same for as many keys, chosen by their weight. */
export function computeBest(mask, rows) {
  return rows.map((row, q) => {
    const total = row.reduce((sum, x) => sum + x, 0);
    const keys = mask[q].filter(Boolean).length;
    const chosen = [...row].sort((a, b) => b - a).slice(0, keys);
    return total ? chosen.reduce((sum, x) => sum + x, 0) / total : 0;
  });
}

/** What a pattern costs, reaches and keeps of one head, as numbers. */
export function measurePattern(state, pattern, head = state.head) {
  const T = state.tokens.length;
  const mask = buildMask(pattern, T, state.orders);
  const rows = state.heads[head].thousandths;
  const distances = findDistances(mask, state.position);
  return {
    scores: countScores(pattern, T, state.orders),
    used: mask.flat().filter(Boolean).length,
    all: (T * (T + 1)) / 2,
    kept: mean(computeKept(mask, rows)),
    best: mean(computeBest(mask, rows)),
    reached: distances.filter((d) => d >= 0 && d <= state.layers).length,
    direct: mask[state.position].filter(Boolean).length,
    ever: distances.filter((d) => d >= 0).length,
    depth: Math.max(...distances),
  };
}

/** What the pattern costs and keeps, in words. */
export function describeCost(state) {
  const { scores, used, all, kept, best } = measurePattern(state, state);
  const size = state.block;
  const inBlocks = size > 1 ? ` in blocks of ${size} by ${size}` : "";
  const uses = size > 1 ? `, and uses ${groupDigits(used)} of them` : "";
  return (
    `The pattern computes ${count(scores, "score")}${inBlocks}, ${percent(scores / all)} of the ${groupDigits(all)} of causal attention${uses}. ` +
    `On average over the queries, it keeps ${percent(kept)} of this head's weight. As many keys, chosen by their weight, keep ${percent(best)}.`
  );
}

/** What reaches the position, in words. */
export function describeReach(state) {
  const { position, layers } = state;
  const { reached, direct, ever, depth } = measurePattern(state, state);
  const whole = position + 1;
  const begin = `Position ${position} attends to ${count(direct, "key")}. Inputs that can reach it through ${count(layers, "layer")}: ${reached} of ${whole}.`;
  if (ever < whole) return `${begin} More layers reach at most ${ever}: no path leads to the others.`;
  return `${begin} ${count(Math.max(depth, 1), "layer reaches", "layers reach")} all of them.`;
}

/** What the query at the position keeps and loses, in words. */
export function describeQuery(state) {
  const { position } = state;
  const mask = buildMask(state, state.tokens.length, state.orders);
  const rows = state.heads[state.head].thousandths;
  const lost = rows[position].map((x, k) => (mask[position][k] ? 0 : x));
  const kept = computeKept(mask, rows)[position];
  const begin = `Of the weight of this query, the pattern keeps ${percent(kept)}`;
  const worst = findLargest(lost);
  if (!(lost[worst] > 0)) return `${begin}.`;
  return `${begin}; the largest weight that it loses is ${(lost[worst] / 1000).toFixed(3)}, on ${quote(showToken(state.tokens[worst]).trim())} at position ${worst}.`;
}

/** Lines of Python that make the mask and the receptive field with the library. */
export function formatCode(state) {
  const T = state.tokens.length;
  const { window, step, sinks, block } = state;
  const globals = spreadGlobals(state.global_tokens, T);
  const lines = ["from attnbook import masks"];
  if (block > 1 && state.random_blocks) lines.push("from attnbook.masks.layouts import random_layout");
  lines.push("from attnbook.masks.layouts import receptive_field", "");
  lines.push(`mask = masks.dilated(${T}, ${T}, size=${window}, step=${step})`);
  if (sinks) lines.push(`mask = mask | masks.sinks(${T}, ${T}, count=${sinks})`);
  if (globals.length) {
    lines.push(`chosen = masks.global_tokens(${T}, ${T}, [${globals.join(", ")}])`, `mask = mask | (chosen & masks.causal(${T}, ${T}))`);
  }
  if (block > 1) {
    const N = T / block;
    lines.push(`blocks = mask.unflatten(0, (${N}, ${block})).unflatten(2, (${N}, ${block}))`, "layout = blocks.any(3).any(1)");
    if (state.random_blocks) {
      lines.push(
        `taken = layout | ~masks.causal(${N}, ${N})`,
        `layout = layout | random_layout(taken, count=${state.random_blocks}, seed=${SEED})`,
      );
    }
    lines.push(`mask = masks.block_sparse(layout, ${block}) & masks.causal(${T}, ${T})`);
  }
  return [...lines, `reached = receptive_field(mask, layers=${state.layers})[${state.position}]`].join("\n");
}

/** An outline of cells as one path of a picture. */
export function drawCells(cells) {
  return cells.map(([q, k]) => `M${k} ${q}h1v1h-1z`).join("");
}

const LEVELS = 8;

/** The cells of a map by whether they are kept and how dark they are: 1 to LEVELS. */
export function sortCells(mask, rows) {
  const found = { kept: Array.from({ length: LEVELS + 1 }, () => []), lost: Array.from({ length: LEVELS + 1 }, () => []) };
  rows.forEach((row, q) =>
    row.forEach((x, k) => {
      const level = Math.ceil(Math.sqrt(x / 1000) * LEVELS);
      if (level) found[mask[q][k] ? "kept" : "lost"][level].push([q, k]);
    }),
  );
  return found;
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, from, changed) {
  const id = `pattern-explorer-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const first = cleanState(from);
  const now = cleanState(from);
  const T = now.tokens.length;
  const root = make("div", { className: "book-widget pt", role: "group", "aria-label": "Pattern explorer" });
  el.append(root);
  if (!T || !now.heads.length) {
    root.append(make("p", { text: "There is no map to show." }));
    return () => root.remove();
  }
  let controls = 0;
  const named = (text, control) => {
    controls += 1;
    control.id = `${id}-${controls}`;
    return make("span", { className: "pt-pair" }, make("label", { for: control.id, text }), control);
  };
  const refresh = []; // what each control shows, after another one changed the state
  const slider = (text, name, low, high) => {
    const input = make("input", { type: "range", min: low, max: high, step: 1 });
    const shown = make("output", {});
    input.addEventListener("input", () => set({ [name]: Number(input.value) }));
    refresh.push(() => {
      input.value = now[name];
      shown.textContent = now[name];
      input.disabled = name === "random_blocks" && now.block === 1;
    });
    const pair = named(text, input);
    pair.classList.add("pt-slider");
    pair.append(shown);
    return pair;
  };
  const choice = (options, read, choose) => {
    const select = make("select", {}, ...options.map(([value, text]) => make("option", { value, text })));
    select.addEventListener("change", () => choose(Number(select.value)));
    refresh.push(() => {
      select.value = read();
    });
    return select;
  };

  const same = (a, b) => PARTS.every((name) => a[name] === b[name]);
  const presets = now.presets.map((preset, i) => [i, preset.name || `Pattern ${i + 1}`]);
  const pattern = choice(
    [...presets, [-1, "your own"]],
    () => now.presets.findIndex((preset) => same(preset, now)),
    (i) => set(Object.fromEntries(PARTS.map((name) => [name, (now.presets[i] ?? now)[name]]))),
  );
  const head = choice(now.heads.map((x, i) => [i, x.title || `Head ${i + 1}`]), () => now.head, (i) => set({ head: i }));
  const block = choice(
    listSizes(T).map((size) => [size, size === 1 ? "none" : `${size} by ${size}`]), () => now.block, (size) => set({ block: size }),
  );
  const again = make("button", { type: "button", text: "Start again" });
  const sliders = Object.entries(RANGES).map(([name, [low, high]]) => slider(SAYS[name], name, low, name === "window" ? T : high));
  const status = () => make("p", { className: "pt-finding", role: "status" });
  const [cost, reach] = [status(), status()];
  const query = make("p", { className: "pt-query" });
  const picture = () => makeSvg("svg", { viewBox: `-0.5 -0.5 ${T + 1} ${T + 1}`, role: "img", class: "pt-picture" });
  const [masked, weighed] = [picture(), picture()];
  const passage = make("p", { className: "pt-passage", dir: "auto" });
  const spans = now.tokens.map((token) => make("span", { text: showToken(token) }));
  passage.append(...spans);
  const [heads, others] = [make("tbody", {}), make("tbody", {})];
  const listing = make("pre", { tabindex: 0, role: "region", "aria-label": "Code" }, make("code"));

  const frame = () => makeSvg("rect", { x: -0.3, y: now.position - 0.3, width: T + 0.6, height: 1.6, class: "pt-frame" });
  const path = (cells, name, opacity = 1) => makeSvg("path", { d: drawCells(cells), class: name, "fill-opacity": opacity });
  const triangle = () => makeSvg("path", { d: `M0 0${Array.from({ length: T }, () => "h1v1").join("")}H0z`, class: "pt-past" });

  function drawPictures(mask) {
    const layout = buildLayout(now, T, now.orders);
    const cells = mask.flatMap((row, q) => row.map((sees, k) => [q, k, sees]));
    const at = (i) => Math.floor(i / now.block);
    const extra = cells.filter(([q, k, sees]) => !sees && layout[at(q)][at(k)]);
    masked.replaceChildren(triangle(), path(extra, "pt-extra"), path(cells.filter((cell) => cell[2]), "pt-may"), frame());
    masked.setAttribute("aria-label", `The mask of ${T} queries, down, and keys, across. ${describeCost(now)}`);
    const { kept, lost } = sortCells(mask, now.heads[now.head].thousandths);
    const paths = (levels, name) => levels.map((some, n) => path(some, name, n / LEVELS)).filter((_, n) => levels[n].length);
    weighed.replaceChildren(triangle(), ...paths(kept, "pt-kept"), ...paths(lost, "pt-lost"), frame());
    weighed.setAttribute("aria-label", `The recorded weights of ${now.heads[now.head].title}, kept and lost. ${describeQuery(now)}`);
  }

  function drawPassage(mask) {
    const distances = findDistances(mask, now.position);
    spans.forEach((span, k) => {
      const d = distances[k];
      const kind = k === now.position ? "now" : k > now.position ? "later" : d === 1 ? "direct" : d > 0 && d <= now.layers ? "reached" : "out";
      span.className = `pt-${kind}`;
    });
  }

  const line = (name, measured, more) => {
    const cells = [...more, percent(measured.kept), percent(measured.best)];
    return make("tr", {}, make("th", { scope: "row", text: name }), ...cells.map((text) => make("td", { text })));
  };

  function show() {
    for (const one of refresh) one();
    const mask = buildMask(now, T, now.orders);
    const say = (node, text) => {
      if (node.textContent !== text) node.textContent = text;
    };
    say(cost, describeCost(now));
    say(reach, describeReach(now));
    say(query, describeQuery(now));
    drawPictures(mask);
    drawPassage(mask);
    heads.replaceChildren(...now.heads.map((x, i) => line(x.title, measurePattern(now, now, i), [])));
    others.replaceChildren(
      ...now.presets.map((preset) => {
        const measured = measurePattern(now, preset);
        return line(preset.name, measured, [groupDigits(measured.scores), measured.reached]);
      }),
    );
    listing.firstChild.textContent = formatCode(now);
  }

  function set(parts) {
    Object.assign(now, parts);
    show();
    for (const [name, value] of Object.entries(parts)) changed(name, value);
  }
  for (const node of [masked, weighed]) {
    node.addEventListener("click", (event) => {
      const box = node.getBoundingClientRect();
      set({ position: integer(((event.clientY - box.top) / box.height) * (T + 1) - 1, 0, T - 1, 0) });
    });
  }
  again.addEventListener("click", () => set(Object.fromEntries([...PARTS, "layers", "position", "head"].map((name) => [name, first[name]]))));
  root.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // the theme and the notebook listen to arrows too
  });

  const label = (text) => make("p", { className: "pt-label", text });
  const figure = (text, node) => make("div", {}, label(text), node);
  const table = (name, columns, body) => {
    const top = columns.map((text) => make("th", { scope: "col", text }));
    return make("div", { className: "pt-wide" }, make("table", { className: "pt-table", "aria-label": name }, make("thead", {}, make("tr", {}, ...top)), body));
  };
  const key = (name, text) => make("span", { className: name, text });
  root.append(
    make("div", { className: "pt-bar" }, named("Pattern", pattern), again),
    make("div", { className: "pt-sliders" }, ...sliders.slice(0, 4), named("Blocks", block), sliders[4]),
    cost,
    make("div", { className: "pt-bar" }, named("Head", head)),
    make(
      "div", { className: "pt-pictures" },
      figure("Pattern: queries down, keys across. Dark: can attend; pale: computed, then masked out.", masked),
      figure("Recorded weights: blue is kept, orange is lost. Darker: more weight.", weighed),
    ),
    make("div", { className: "pt-sliders" }, slider("Position", "position", 0, T - 1), slider("Layers", "layers", ...LAYERS)),
    reach, query,
    make(
      "p", { className: "pt-label" }, "The passage: ", key("pt-now", "the position"), ", ", key("pt-direct", "keys it attends to"), ", ",
      key("pt-reached", "inputs that reach it through several layers"), ", ", key("pt-out", "out of reach"), ", ", key("pt-later", "later"),
    ),
    passage,
    label("Every recorded head under this pattern"),
    table("Weight kept of every recorded head", ["head", "weight kept", "as many keys, chosen by weight"], heads),
    label("Other patterns on the chosen head"),
    table("Other patterns", ["pattern", "scores", "inputs that reach the position", "weight kept", "as many keys, chosen by weight"], others),
    make("details", {}, make("summary", { text: "Code" }), listing),
  );
  show();
  return () => root.remove();
}

export default {
  render(view) {
    return bind(view, ["title", "tokens", "heads", "orders", "presets", ...PARTS, "layers", "position", "head"], build);
  },
};
