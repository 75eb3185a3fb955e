// The mask builder. Pure functions first: a test holds them to the library.

const MOST = 10;
const PARTS = 4;
const KINDS = {
  causal: [], padding: [], window: ["size"], dilated: ["size", "step"],
  prefix: ["size"], sinks: ["size"], document: ["size"],
};
const MEANS = {
  causal: "no later key", padding: "no key beyond the length of the sequence", window: "the query's own key and those just before",
  dilated: "keys going back by steps", prefix: "causal, and a prefix that every query can attend to",
  sinks: "the first keys, none later than the query", document: "keys of the query's own document",
};
const SAYS = { window: "keys seen", dilated: "keys seen", prefix: "prefix", sinks: "sinks", document: "first document" };

/** A whole number moved into a range; what is no number becomes `otherwise`. */
export function clampInteger(x, low, high, otherwise) {
  const number = x === null || x === "" ? NaN : Math.round(Number(x));
  return Number.isFinite(number) ? Math.min(high, Math.max(low, number)) : otherwise;
}

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const list = (x) => (Array.isArray(x) ? x : []);
  const [T, S] = [clampInteger(given?.T, 1, MOST, 5), clampInteger(given?.S, 1, MOST, 7)];
  const parts = list(given?.parts).slice(0, PARTS).map((part) => ({
    kind: Object.hasOwn(KINDS, part?.kind) ? part.kind : "causal",
    join: part?.join === "or" ? "or" : "and",
    negated: part?.negated === true,
    size: clampInteger(part?.size, 1, MOST, 3),
    step: clampInteger(part?.step, 1, MOST, 2),
  }));
  const number = (x) => (Number.isFinite(Number(x)) ? Number(x) : 0);
  return {
    T, S,
    parts: parts.length ? parts : [{ kind: "causal", join: "and", negated: false, size: 3, step: 2 }],
    lengths: [0, 1].map((i) => clampInteger(list(given?.lengths)[i], 0, MOST, MOST)),
    text: clampInteger(given?.text, 0, 1, 0),
    scores: Array.from({ length: MOST }, (_, t) => Array.from({ length: MOST }, (_, s) => number(list(list(given?.scores)[t])[s]))),
  };
}

/** Whether query q of sequence b can attend to key k, by one part alone. */
function canAttend(part, state, b, q, k) {
  const at = q + state.S - state.T; // the last query is at the position of the last key
  const back = at - k;
  const { size, step } = part;
  const rules = {
    causal: () => back >= 0,
    padding: () => k < state.lengths[b],
    window: () => back >= 0 && back < size,
    dilated: () => back >= 0 && back < size * step && back % step === 0,
    prefix: () => back >= 0 || k < size,
    sinks: () => back >= 0 && k < size,
    document: () => at >= 0 && at < size === k < size,
  };
  return rules[part.kind]() !== part.negated;
}

/** The mask of one sequence: rows of queries, true where a query can attend. */
export function buildMask(state, b) {
  const may = (q, k) =>
    state.parts.reduce((so, part, i) => {
      const one = canAttend(part, state, b, q, k);
      if (i === 0) return one;
      return part.join === "and" ? so && one : so || one;
    }, true);
  return Array.from({ length: state.T }, (_, q) => Array.from({ length: state.S }, (_, k) => may(q, k)));
}

/** What the scores become under a mask; a row without a key gives zeros. */
export function computeWeights(state, b) {
  return buildMask(state, b).map((row, q) => {
    const most = Math.max(...row.map((seen, k) => (seen ? state.scores[q][k] : -Infinity)));
    const shares = row.map((seen, k) => (seen ? Math.exp(state.scores[q][k] - most) : 0));
    const total = shares.reduce((a, x) => a + x, 0);
    return shares.map((x) => (total ? x / total : 0));
  });
}

/** The queries that see no key. */
export function findEmptyRows(rows) {
  return rows.flatMap((row, q) => (row.some(Boolean) ? [] : [q]));
}

/** The parts joined from left to right, as Python reads them. */
export function joinParts(parts, texts) {
  return parts.reduce((said, part, i) => {
    const one = `${part.negated ? "~" : ""}${texts[i]}`;
    if (i === 0) return one;
    const mixed = part.join === "and" && parts.slice(1, i).some((p) => p.join === "or");
    return `${mixed ? `(${said})` : said} ${part.join === "and" ? "&" : "|"} ${one}`;
  }, "");
}

const usesKind = (state, kind) => state.parts.some((part) => part.kind === kind);

/** How a part's function is called, in `attnbook.masks` or its rules. */
function formatCall(part, state) {
  const { T, S } = state;
  const more = KINDS[part.kind].map((name) => `, ${name}=${part[name]}`).join("");
  if (part.kind === "padding") return "padding(lengths";
  const name = { prefix: "prefix", sinks: "count" }[part.kind];
  return `${part.kind}(${T}, ${S}${name ? more.replace("size", name) : more}`;
}

/** The lines that make what the masks are made of. */
function formatInputs(state, heads) {
  const lengths = state.lengths.map((n) => Math.min(n, state.S)).join(", ");
  const ids = (part) => Array.from({ length: state.S }, (_, k) => (k < part.size ? 0 : 1)).join(", ");
  const lines = usesKind(state, "padding") ? [`lengths = torch.tensor([${lengths}])`] : [];
  state.parts.forEach((part, i) => {
    if (part.kind === "document") lines.push(`ids_${i} = torch.tensor([[${ids(part)}]]${heads ? " * 2" : ""})`);
  });
  return lines;
}

/** Lines of Python that make the mask with the library. */
function formatMask(state) {
  const { T, S, parts } = state;
  const names = [...new Set(parts.map((part) => part.kind))].sort();
  const pad = usesKind(state, "document") && T > S;
  const text = (part, i) => {
    if (part.kind === "padding") return `padding(lengths, ${S})`;
    if (part.kind !== "document") return `${formatCall(part, state)})`;
    if (T > S) return `F.pad(document(ids_${i}), (0, 0, ${T - S}, 0))`;
    return `document(ids_${i})${T < S ? `[..., ${S - T}:, :]` : ""}`;
  };
  return [
    "import torch",
    ...(pad ? ["import torch.nn.functional as F"] : []),
    `from attnbook.masks import ${names.join(", ")}`,
    "",
    ...formatInputs(state, false),
    `mask = ${joinParts(parts, parts.map(text))}`,
  ];
}

/** Lines of Python that make the mask as a rule, for FlexAttention. */
function formatRule(state) {
  const { T, S, parts } = state;
  const made = parts.map((part, i) => {
    const arguments_ = part.kind === "document" ? `document(ids_${i}` : formatCall(part, state);
    return `rule_${i} = rules.${arguments_})`;
  });
  const shift = S - T;
  const text = (part, i) => {
    if (part.kind !== "document" || !shift) return `rule_${i}(b, h, q, k)`;
    if (shift > 0) return `rule_${i}(b, h, q + ${shift}, k)`;
    return `((q >= ${-shift}) & rule_${i}(b, h, (q - ${-shift}).clamp(min=0), k))`;
  };
  return [...formatInputs(state, true), ...made, "", "def rule(b, h, q, k):", `    return ${joinParts(parts, parts.map(text))}`];
}

/** The code for each way to attend, as text. */
export function formatCode(state) {
  const { T, S } = state;
  const made = formatMask(state);
  const text = (...lines) => lines.join("\n");
  return {
    attnbook: text(...made, "", "from attnbook.attention.scaled_dot_product import attend", "output = attend(query, key, value, mask)"),
    sdpa: text(
      ...made, "", "from torch.nn.functional import scaled_dot_product_attention",
      "output = scaled_dot_product_attention(query, key, value, attn_mask=mask)",
    ),
    mha: text(
      ...made, "", "# heads: module.num_heads; here True means: masked out",
      `masked_out = ~mask.expand(2, heads, ${T}, ${S}).flatten(0, 1)`,
      "output, _ = module(query, key, value, attn_mask=masked_out)",
    ),
    flex: text(
      "import torch", "from torch.nn.attention.flex_attention import create_block_mask, flex_attention",
      "from attnbook.masks import rules", "", ...formatRule(state), "",
      `blocks = create_block_mask(rule, 2, None, ${T}, ${S}, device=query.device)`,
      "output = flex_attention(query, key, value, block_mask=blocks)",
    ),
  };
}

/** What to know of each way, with this mask. */
export function describeWays(state) {
  const none = [0, 1].some((b) => findEmptyRows(buildMask(state, b)).length);
  const only = state.parts.length === 1 && state.parts[0].kind === "causal" && !state.parts[0].negated;
  const flag = !only
    ? ""
    : state.T === state.S
      ? " is_causal=True says the same as this mask."
      : " is_causal=True would be another mask: it begins at the top left.";
  const rows = (gives) => (none ? ` An empty row gives ${gives}.` : "");
  return {
    attnbook: `True = can attend.${rows("zeros")}`,
    sdpa: `True = can attend.${rows("zeros")}${flag}`,
    mha: `True = masked out: the mask is inverted.${rows("NaN, or zeros with need_weights=False")}`,
    flex: `True = can attend; the mask is a function, not a matrix.${rows("zeros")}`,
  };
}

const joinWords = (all) => (all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`);

/** What the mask of the shown text does, in words. */
export function describeMask(state) {
  const rows = buildMask(state, state.text);
  const seen = rows.flat().filter(Boolean).length;
  const none = findEmptyRows(rows);
  const counted = `${seen} of ${state.T * state.S} pairs of query and key are not masked out.`;
  if (!none.length) return `${counted} Every query sees a key.`;
  if (none.length === state.T) return `${counted} No query sees any key: all rows are empty, all weights are 0.`;
  if (none.length === 1) return `${counted} Query ${none[0]} sees no key: its row is empty, its weights are 0.`;
  return `${counted} Queries ${joinWords(none)} see no key: their rows are empty, their weights are 0.`;
}

/** What one row of the shown text does, in words. */
export function describeRow(state, q) {
  const [row, shares] = [buildMask(state, state.text)[q], computeWeights(state, state.text)[q]];
  const seen = row.flatMap((may, k) => (may ? [k] : []));
  const at = q + state.S - state.T;
  const where = `Query ${q}${at >= 0 ? `, at key ${at},` : ", before the first key,"}`;
  if (!seen.length) return `${where} sees no key: its row is empty, its weights are 0.`;
  if (seen.length === 1) return `${where} sees key ${seen[0]} and nothing else: all its weight is there.`;
  const best = seen.reduce((a, b) => (shares[b] > shares[a] ? b : a));
  return `${where} sees keys ${joinWords(seen)}; most of its weight is on key ${best} (${shares[best].toFixed(2)}).`;
}

const NAMES = { attnbook: "this book", sdpa: "scaled_dot_product_attention", mha: "nn.MultiheadAttention", flex: "FlexAttention" };

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, from, changed) {
  const id = `mask-builder-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const first = cleanState(from);
  const now = cleanState(from);
  let [row, way] = [0, "attnbook"];
  const root = make("div", { className: "book-widget mb", role: "group", "aria-label": "Mask builder" });
  el.append(root);
  let count = 0;
  const named = (text, control) => {
    control.id = `${id}-${count++}`;
    return make("span", { className: "mb-pair" }, make("label", { for: control.id, text }), control);
  };
  const choice = (options, value, set) => {
    const select = make("select", {}, ...Object.entries(options).map(([v, text]) => make("option", { value: v, text })));
    select.value = value;
    select.addEventListener("change", () => set(select.value));
    return select;
  };
  const slider = (text, low, high, get, set) => {
    const input = make("input", { type: "range", min: low, max: high, step: 1 });
    const shown = make("output", {});
    input.value = get();
    shown.textContent = input.value;
    input.addEventListener("input", () => {
      shown.textContent = input.value;
      set(Number(input.value));
    });
    const pair = named(text, input);
    pair.classList.add("mb-slider");
    pair.append(shown);
    return pair;
  };

  const sizes = make("div", { className: "mb-bar" });
  const parts = make("ol", { className: "mb-parts", "aria-label": "The parts of the mask, joined from first to last" });
  const more = make("button", { type: "button", text: "Add a part" });
  const again = make("button", { type: "button", text: "Start again" });
  const formula = make("code", { className: "mb-formula" });
  const table = (name) => make("table", { className: "mb-table", "aria-label": name });
  const [may, share] = [table("Mask: which keys each query can attend to"), table("Weights of fixed random scores")];
  const finding = make("p", { className: "mb-finding", role: "status" });
  const about = make("p", { className: "mb-row", role: "status" });
  const listing = make("pre", { tabindex: 0, role: "region", "aria-label": "Code" }, make("code"));
  const note = make("p", { className: "mb-label" });
  const ways = choice(NAMES, way, (value) => {
    way = value;
    show();
  });

  /** What the parts look like; built anew when a part comes, goes or changes its kind. */
  function list(focus) {
    sizes.replaceChildren(
      slider("Queries T", 1, MOST, () => now.T, (x) => set("T", x)),
      slider("Keys S", 1, MOST, () => now.S, (x) => set("S", x)),
    );
    if (usesKind(now, "padding")) {
      [0, 1].forEach((b) => {
        const put = (x) => set("lengths", now.lengths.map((n, c) => (c === b ? x : n)));
        sizes.append(slider(`Length of sequence ${b + 1}`, 0, MOST, () => now.lengths[b], put));
      });
      sizes.append(named("Shown", choice({ 0: "sequence 1", 1: "sequence 2" }, now.text, (value) => set("text", Number(value)))));
    }
    parts.replaceChildren(
      ...now.parts.map((part, i) => {
        const change = (name, value, rebuilt = false) => {
          set("parts", now.parts.map((p, j) => (j === i ? { ...p, [name]: value } : p)));
          if (rebuilt) list(`${i}-kind`);
        };
        const kinds = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, kind]));
        const kind = choice(kinds, part.kind, (value) => change("kind", value, true));
        kind.dataset.key = `${i}-kind`;
        const not = make("input", { type: "checkbox" });
        not.checked = part.negated;
        not.addEventListener("change", () => change("negated", not.checked));
        const item = make("li", {}, make("span", { className: "mb-hidden", text: `Part ${i + 1}` }));
        if (i) item.append(named("joined by", choice({ and: "and", or: "or" }, part.join, (v) => change("join", v))));
        item.append(named("not", not), named("kind", kind));
        for (const name of KINDS[part.kind]) {
          const text = name === "size" ? SAYS[part.kind] : "step";
          item.append(slider(text, 1, MOST, () => part[name], (x) => change(name, x)));
        }
        if (now.parts.length > 1) {
          const off = make("button", { type: "button", text: "Remove", "aria-label": `Remove part ${i + 1}, ${part.kind}` });
          off.addEventListener("click", () => {
            set("parts", now.parts.filter((_, j) => j !== i));
            list(`${Math.max(i - 1, 0)}-kind`);
          });
          item.append(off);
        }
        item.append(make("span", { className: "mb-label mb-means", text: MEANS[part.kind] }));
        return item;
      }),
    );
    more.disabled = now.parts.length >= PARTS;
    if (focus) parts.querySelector(`[data-key="${focus}"]`)?.focus();
  }

  /** One of the two tables; the mask's rows are buttons, to be asked. */
  function fill(node, cells, asked) {
    const none = findEmptyRows(buildMask(now, now.text));
    const top = Array.from({ length: now.S }, (_, k) => make("th", { scope: "col", text: k }));
    const lines = cells.map((line, q) => {
      const head = make("th", { scope: "row" });
      if (asked) {
        const button = make("button", { type: "button", text: q, "aria-pressed": q === row, "aria-label": `Query ${q}`, tabindex: q === row ? 0 : -1 });
        button.addEventListener("click", () => go(q));
        head.append(button);
      } else head.textContent = q;
      const tds = line.map(({ text, weight, seen }) => {
        const td = make("td", { text, className: seen ? "mb-seen" : "" });
        td.style.setProperty("--weight", weight);
        return td;
      });
      const className = `${none.includes(q) ? "mb-empty" : ""} ${q === row ? "mb-now" : ""}`;
      return make("tr", { className }, head, ...tds);
    });
    const corner = make("td", { className: "mb-corner" });
    node.replaceChildren(make("thead", {}, make("tr", {}, corner, ...top)), make("tbody", {}, ...lines));
  }

  function show() {
    row = Math.min(row, now.T - 1);
    const rows = buildMask(now, now.text);
    const shares = computeWeights(now, now.text);
    fill(may, rows.map((line) => line.map((seen) => ({ text: seen ? "●" : "·", seen, weight: seen ? 1 : 0 }))), true);
    const percent = (x, seen) => (seen ? String(Math.round(100 * x)) : "·");
    fill(share, rows.map((line, q) => line.map((seen, k) => ({ text: percent(shares[q][k], seen), seen, weight: shares[q][k] }))), false);
    formula.textContent = joinParts(now.parts, now.parts.map((part) => part.kind));
    const say = (node, text) => {
      if (node.textContent !== text) node.textContent = text;
    };
    say(finding, describeMask(now));
    say(about, describeRow(now, row));
    listing.firstChild.textContent = formatCode(now)[way];
    note.textContent = describeWays(now)[way];
  }

  const set = (name, value) => {
    now[name] = value;
    show();
    changed(name, value);
  };
  const go = (q) => {
    row = clampInteger(q, 0, now.T - 1, 0);
    show();
    may.querySelectorAll("button")[row].focus();
  };
  may.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: row - 1, ArrowDown: row + 1, Home: 0, End: now.T - 1 };
    if (event.altKey || event.ctrlKey || event.metaKey || !Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    go(steps[event.key]);
  });
  root.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // the theme and the notebook listen to arrows too
  });
  more.addEventListener("click", () => {
    const left = Object.keys(KINDS).find((kind) => !usesKind(now, kind)) ?? "causal";
    set("parts", [...now.parts, { kind: left, join: "and", negated: false, size: 3, step: 2 }]);
    list(`${now.parts.length - 1}-kind`);
  });
  again.addEventListener("click", () => {
    for (const [name, value] of Object.entries(structuredClone(first))) if (name !== "scores") set(name, value);
    list();
  });
  const label = (text) => make("p", { className: "mb-label", text });
  const figure = (text, node) => make("div", {}, label(text), node);
  root.append(
    sizes, parts, make("div", { className: "mb-bar" }, more, again), make("p", {}, "mask = ", formula), finding,
    make(
      "div", { className: "mb-pictures" },
      figure("Mask: queries down, keys across; ● can attend", may),
      figure("Weights in percent, of fixed random scores", share),
    ),
    about,
    label("Choose a query by its number, or with ↑ ↓. The last query is at the position of the last key; a dashed row is empty."),
    make("div", { className: "mb-bar" }, named("Code for", ways)), listing, note,
  );
  list();
  show();
  return () => root.remove();
}

export default {
  render(view) {
    return bind(view, ["parts", "T", "S", "lengths", "text", "scores"], build);
  },
};
