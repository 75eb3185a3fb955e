// The cache stepper. Pure functions first: a test holds them to the library.

const POOL = 32; // positions
const PAGES = [2, 4, 8];
const WINDOWED = "GQA + window";

/** A whole number moved into a range; what is no number becomes `otherwise`. */
const clampInteger = (x, low, high, otherwise) => Math.round(clamp(x, low, high, otherwise));

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const tokens = (Array.isArray(given?.tokens) ? given.tokens : []).map(String).slice(0, (3 * POOL) / 4);
  const prompt = clampInteger(given?.prompt, 1, Math.max(1, tokens.length), 1);
  const known = given?.sizes && typeof given.sizes === "object" && !Array.isArray(given.sizes) ? Object.entries(given.sizes) : [];
  const sizes = Object.fromEntries(known.map(([name, x]) => [name, clampInteger(x, 1, 1e12, 1)]));
  if (!known.length) sizes.GQA = 1;
  const page = clampInteger(given?.page, 2, 8, 4);
  return {
    tokens, prompt, sizes,
    kind: Object.keys(sizes).includes(given?.kind) ? given.kind : Object.keys(sizes)[0],
    page: PAGES.includes(page) ? page : 4,
    window: clampInteger(given?.window, 2, 12, 6),
    step: clampInteger(given?.step, 0, countPasses({ tokens, prompt }), 0),
  };
}

/** The passes that read all tokens: the prompt, then one token each. */
export function countPasses({ tokens, prompt }) {
  return tokens.length ? tokens.length - prompt + 1 : 0;
}

/** How many tokens have been read. */
export function countTokens({ step, prompt }) {
  return step ? prompt + step - 1 : 0;
}

/** The pages of the pool in the order in which they are taken; the last quarter is others'. */
export function listOrder({ page }) {
  const count = POOL / page;
  return Array.from({ length: count }, (_, i) => (3 * i + 1) % count);
}

/** How many tokens the newest query can no longer attend to. */
export function countOutside(state, kind = state.kind) {
  return kind === WINDOWED ? Math.max(0, countTokens(state) - state.window) : 0;
}

/** The block table; -1: a page that has left the window is free. */
export function listTable(state, kind = state.kind) {
  const pages = Math.ceil(countTokens(state) / state.page);
  const freed = Math.floor(countOutside(state, kind) / state.page);
  return listOrder(state).slice(0, pages).map((number, i) => (i < freed ? -1 : number));
}

/** The bytes of the pages, and those that the newest query reads. */
export function countBytes(state, kind = state.kind) {
  const each = state.sizes[kind];
  const pages = listTable(state, kind).filter((number) => number >= 0).length;
  return [pages * state.page * each, (countTokens(state) - countOutside(state, kind)) * each];
}

/** Bytes in three digits, with a unit that fits. */
export function formatBytes(x) {
  const units = ["B", "kB", "MB", "GB"];
  let power = 0;
  while (x >= 999.5 && power < units.length - 1) [x, power] = [x / 1000, power + 1];
  return `${x.toFixed(power === 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2)} ${units[power]}`;
}

/** What the last pass did, in words. */
export function describeStep(state) {
  const { step, page, tokens, prompt } = state;
  const n = countTokens(state);
  if (!n) return `Nothing is cached yet. The first pass reads the prompt of ${prompt} tokens.`;
  const before = step > 1 ? n - 1 : 0;
  const outside = countOutside(state);
  const table = listTable(state);
  const [one, all] = state.kind === "MLA" ? ["latent and rotary key", "latents and rotary keys"] : ["key and value", "keys and values"];
  const said =
    step === 1
      ? `Prefill: one pass computes ${all} of all ${n} tokens of the prompt, in ${table.length} ${table.length === 1 ? "page" : "pages"}.`
      : `Decode: one pass computes ${one} of “${tokens[n - 1]}” alone.`;
  const taken =
    step > 1 && Math.ceil(n / page) > Math.ceil(before / page) ? ` The last page is full, so page ${table.at(-1)} of the pool is taken.` : "";
  const freed = Math.floor(outside / page) > Math.floor(Math.max(0, before - state.window) / page) ? " A page has left the window and is free again." : "";
  const read = n - outside;
  const rest = table.length * page - n;
  const unused = rest ? ` ${rest} ${rest === 1 ? "position" : "positions"} of the last page ${rest === 1 ? "is" : "are"} unused.` : "";
  const query = outside ? ` Its query attends to the newest ${read} of ${n} tokens.` : step > 1 ? ` Its query attends to all ${n} tokens.` : "";
  return `${said}${taken}${freed}${query}${unused}`;
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, from, changed) {
  const id = `cache-stepper-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const now = cleanState(from);
  const root = make("div", { className: "book-widget cs", role: "group", "aria-label": "Cache stepper" });
  el.append(root);
  let count = 0;
  const named = (text, control, ...more) => {
    control.id = `${id}-${count++}`;
    return make("span", { className: "cs-pair" }, make("label", { for: control.id, text }), control, ...more);
  };
  const slider = (text, name, low, high) => {
    const input = make("input", { type: "range", min: low, max: high, step: 1 });
    const shown = make("output", {});
    const pair = named(text, input, shown);
    pair.classList.add("cs-slider");
    input.addEventListener("input", () => set(name, Number(input.value)));
    return { pair, input, show: () => {
      input.value = now[name];
      shown.textContent = now[name];
    } };
  };
  const choice = (text, name, values, read) => {
    const select = make("select", {}, ...values.map((x) => make("option", { value: x, text: x })));
    select.addEventListener("change", () => set(name, read(select.value)));
    return { pair: named(text, select), show: () => (select.value = now[name]) };
  };
  const button = (text, go) => {
    const node = make("button", { type: "button", text });
    node.addEventListener("click", () => set("step", go()));
    return node;
  };
  const last = countPasses(now);
  const kind = choice("Cache", "kind", Object.keys(now.sizes), String);
  const page = choice("Positions in a page", "page", PAGES, Number);
  const wide = slider("Window", "window", 2, 12);
  const place = slider("Passes", "step", 0, last);
  const next = button("Next pass", () => now.step + 1);
  const back = button("Back", () => now.step - 1);
  const start = button("To the start", () => 0);
  const pool = make("table", { className: "cs-pool", "aria-label": "Pages of the pool" });
  const finding = make("p", { className: "cs-finding", role: "status" });
  const gauges = Object.keys(now.sizes).map((name) => {
    const fill = make("span", { className: "cs-fill" });
    const bar = make("span", { className: "cs-gauge", "aria-hidden": "true" }, fill);
    return { name, fill, bar, title: make("span", { text: name }), said: make("output", {}) };
  });

  function fillPool() {
    const [table, order, n] = [listTable(now), listOrder(now), countTokens(now)];
    const others = order.slice((3 * order.length) / 4);
    const before = now.step > 1 ? n - 1 : 0;
    const outside = countOutside(now);
    const rows = order.map((_, number) => {
      const entry = table.indexOf(number);
      const cells = Array.from({ length: now.page }, (_, row) => {
        const s = entry * now.page + row;
        if (others.includes(number)) return make("td", { className: "cs-other" });
        if (entry < 0 || s >= n) return make("td");
        return make("td", { text: now.tokens[s], className: s < outside ? "cs-outside" : s >= before ? "cs-new" : "cs-read" });
      });
      const of = others.includes(number) ? "others" : entry < 0 ? "free" : `entry ${entry}`;
      return make("tr", { className: entry < 0 ? "" : "cs-ours" }, make("th", { scope: "row", text: `page ${number}: ${of}` }), ...cells);
    });
    const heads = Array.from({ length: now.page }, (_, row) => make("th", { scope: "col", text: row }));
    pool.replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...rows));
  }

  const entries = make("p", {});
  function show() {
    for (const one of [kind, page, wide, place]) one.show();
    wide.input.disabled = now.kind !== WINDOWED;
    next.disabled = now.step >= last;
    back.disabled = start.disabled = now.step <= 0;
    fillPool();
    const table = listTable(now).map((number) => (number < 0 ? "free" : number));
    entries.textContent = `Block table, entry by entry: ${table.join(", ") || "empty"}`;
    const all = gauges.map((one) => countBytes(now, one.name));
    const most = Math.max(1, ...all.map(([stored]) => stored));
    gauges.forEach((one, i) => {
      const [stored, read] = all[i];
      one.fill.style.setProperty("--share", stored / most);
      one.title.className = one.said.className = one.name === now.kind ? "cs-chosen" : "";
      one.said.textContent = `${formatBytes(stored)} in pages, ${formatBytes(read)} read`;
    });
    const text = describeStep(now);
    if (finding.textContent !== text) finding.textContent = text;
  }

  function set(name, value) {
    const focused = document.activeElement;
    now[name] = value;
    show();
    if (focused === next && next.disabled) back.focus(); // a button that is disabled loses the keyboard
    if ((focused === back || focused === start) && back.disabled) next.focus();
    changed(name, now[name]);
  }

  root.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // the theme and the notebook listen to arrows too
  });
  const label = (text) => make("p", { className: "cs-label", text });
  root.append(
    make("div", { className: "cs-bar" }, kind.pair, page.pair, wide.pair),
    make("div", { className: "cs-bar" }, next, back, start, place.pair),
    finding,
    make(
      "div", { className: "cs-pictures" },
      make("div", {}, label("The pool, one row for each page. Framed: new. Tinted: read. Struck out: outside the window."), pool, entries),
      make(
        "div", {}, label("Bytes of this sequence in all 32 layers: its pages, and what the newest query reads"),
        make("div", { className: "cs-bytes" }, ...gauges.flatMap((one) => [one.title, one.bar, one.said])),
      ),
    ),
    label(
      "Shape of Llama 3 8B with 16-bit numbers: 32 heads (MHA) or 8 (GQA) of keys and values of width 128; " +
        "MLA: a latent of 512 and a rotary key of 64 numbers, as in DeepSeek-V3.",
    ),
  );
  show();
  return () => root.remove();
}

export default {
  render(view) {
    return bind(view, ["kind", "step", "page", "window", "tokens", "prompt", "sizes"], build);
  },
};
