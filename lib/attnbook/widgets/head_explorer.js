// The head explorer. Pure functions first: a test holds them to the library.

const MOST = 24; // tokens
const LARGEST = 99999; // a loss, or a change of one
const SCORES = { induction: "induction score", previous: "previous-token score", first: "first-token score", effect: "ablation effect" };
const MEASURES = { weight: "weight", norm: "weight × value norm" };

const rows = (x) => (Array.isArray(x) ? x : []);
const whole = (x, low, high, otherwise) => Math.round(clamp(x, low, high, otherwise));
const numbers = (given, count, low, high) => Array.from({ length: count }, (_, i) => whole(rows(given)[i], low, high, 0));
const nats = (hundredths) => (hundredths / 100).toFixed(2);

/** A change in nats with its sign. */
export function formatChange(x, digits) {
  return `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;
}

function cleanSentence(given, heads) {
  const tokens = rows(given?.tokens).slice(0, MOST).map(String);
  const made = {
    title: String(given?.title ?? ""),
    tokens,
    losses: numbers(given?.losses, Math.max(tokens.length - 1, 0), 0, LARGEST),
    induction_queries: whole(given?.induction_queries, 0, tokens.length, 0),
    chance: {},
  };
  for (const name of Object.keys(SCORES)) {
    const scores = name === "effect" ? [-LARGEST, LARGEST] : [0, 100];
    made[name] = numbers(given?.[name], heads, ...scores);
    if (name !== "effect") made.chance[name] = whole(given?.chance?.[name], 0, 100, 0);
  }
  return made;
}

function cleanMap(given, T) {
  return {
    hundredths: Array.from({ length: T }, (_, t) => numbers(rows(given?.hundredths)[t], t + 1, 0, 100)),
    norms: Array.from({ length: T }, (_, t) => clamp(rows(given?.norms)[t], 0, 1e6, 0)),
    effects: numbers(given?.effects, T - 1, -LARGEST, LARGEST),
  };
}

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const [layers, per_layer] = [whole(given?.layers, 0, 48, 0), whole(given?.per_layer, 0, 16, 0)];
  const all = rows(given?.sentences).map((one) => cleanSentence(one, layers * per_layer));
  const kept = all.flatMap((one, i) => (one.tokens.length > 1 ? [i] : []));
  const sentences = kept.map((i) => all[i]);
  const heads = rows(given?.heads).map((head) => ({
    title: String(head?.title ?? ""),
    layer: whole(head?.layer, 0, Math.max(layers - 1, 0), 0),
    head: whole(head?.head, 0, Math.max(per_layer - 1, 0), 0),
    maps: kept.map((i) => cleanMap(rows(head?.maps)[i], all[i].tokens.length)),
  }));
  const sentence = whole(given?.sentence, 0, Math.max(sentences.length - 1, 0), 0);
  const T = sentences[sentence]?.tokens.length ?? 1;
  return {
    layers, per_layer, sentences, heads, sentence,
    layer: whole(given?.layer, 0, Math.max(layers - 1, 0), 0),
    head: whole(given?.head, 0, Math.max(per_layer - 1, 0), 0),
    score: Object.hasOwn(SCORES, given?.score) ? given.score : "induction",
    measure: Object.hasOwn(MEASURES, given?.measure) ? given.measure : "weight",
    query: whole(given?.query, 0, T - 1, T - 1),
  };
}

/** The index, among the recorded heads, of the one that is shown; -1 if there is none. */
export function findRecorded(state) {
  return state.heads.findIndex((x) => x.layer === state.layer && x.head === state.head);
}

/** Rows of weights, each divided by its sum; a row of zeros stays as it is. */
export function normalizeRows(table) {
  return table.map((row) => {
    const sum = row.reduce((a, b) => a + b, 0);
    return sum > 0 ? row.map((x) => x / sum) : row;
  });
}

/** The weights of a recorded map: row t has the keys 0 to t. */
export function computeWeights(map) {
  return normalizeRows(map.hundredths);
}

/** Weight × norm of the transformed value, each row divided by its sum. */
export function computeWeightedNorms(map) {
  return normalizeRows(computeWeights(map).map((row) => row.map((x, s) => x * map.norms[s])));
}

/** 1 plus the number of heads with a larger score. */
export function rankHead(scores, index) {
  return 1 + scores.filter((x) => x > scores[index]).length;
}

const at = (state) => state.layer * state.per_layer + state.head;

/** How dark each head is in the grid, 0 to 1, and whether its effect is negative. */
export function colorHeads(state) {
  const scores = state.sentences[state.sentence][state.score];
  if (state.score !== "effect") return scores.map((x) => ({ share: x / 100, falls: false }));
  const most = Math.max(1, ...scores.map(Math.abs));
  return scores.map((x) => ({ share: Math.sqrt(Math.abs(x) / most), falls: x < 0 }));
}

/** A score of a head, in words: a share, or a change in nats. */
export function formatScore(score, value) {
  return score === "effect" ? formatChange(value / 1000, 3) : (value / 100).toFixed(2);
}

/** The layers named below the grid: each with its columns among multiples of 5 and of 10 (0: not one). */
export function placeTicks(layers) {
  const place = (x) => [x, Math.min(5, layers - x), x % 10 ? 0 : Math.min(10, layers - x)];
  return Array.from({ length: Math.ceil(layers / 5) }, (_, i) => place(5 * i)).filter(([x, five]) => x === 0 || five > 2);
}

/** The layer and head to which a key moves; null if it moves to none. */
export function moveHead(state, key) {
  const { layer, head, layers, per_layer } = state;
  const steps = {
    ArrowLeft: [layer - 1, head], ArrowRight: [layer + 1, head], ArrowUp: [layer, head - 1], ArrowDown: [layer, head + 1],
    Home: [0, head], End: [layers - 1, head],
  };
  if (!Object.hasOwn(steps, key)) return null;
  return [clamp(steps[key][0], 0, layers - 1, 0), clamp(steps[key][1], 0, per_layer - 1, 0)];
}

/** The scores of the shown head: name, value, value of equal weights, rank. */
export function listScores(state) {
  const one = state.sentences[state.sentence];
  return Object.entries(SCORES).map(([name, text]) => [
    name === "effect" ? `${text} (nats)` : text,
    formatScore(name, one[name][at(state)]),
    name === "effect" ? "–" : formatScore(name, one.chance[name]),
    `${rankHead(one[name], at(state))} of ${one[name].length}`,
  ]);
}

/** What the shown head is, in words. */
export function describeHead(state) {
  const one = state.sentences[state.sentence];
  const losses = one.losses.reduce((a, b) => a + b, 0) / one.losses.length;
  const effect = one.effect[at(state)];
  const change = `${effect < 0 ? "falls" : "rises"} by ${Math.abs(effect / 1000).toFixed(3)}`;
  const score = state.score === "effect" ? "induction" : state.score;
  return (
    `Layer ${state.layer}, head ${state.head}: ${SCORES[score]} ${formatScore(score, one[score][at(state)])}, rank ${rankHead(one[score], at(state))} of ${one[score].length}. ` +
    `Without it, the mean loss of the tokens, ${nats(losses)} nats, ${change}.`
  );
}

/** Where the weight of the shown query is, in words. */
export function describeQuery(state, map) {
  const { tokens } = state.sentences[state.sentence];
  const say = (s) => `${quote(showToken(tokens[s]).trim())} at position ${s}`;
  const [weights, norms] = [computeWeights(map)[state.query], computeWeightedNorms(map)[state.query]];
  const [most, largest] = [findLargest(weights), findLargest(norms)];
  const begin = `The query ${say(state.query)} gives the largest weight, ${weights[most].toFixed(2)}, to ${say(most)}.`;
  const share = `(${norms[largest].toFixed(2)} of the sum over keys)`;
  return `${begin} Weight × value norm is largest ${largest === most ? "there too" : `for ${say(largest)}`} ${share}.`;
}

/** Which tokens' losses change most without the shown head, in words. */
export function describeEffects(state, map) {
  const { tokens, losses } = state.sentences[state.sentence];
  const best = findLargest(map.effects);
  const worst = findLargest(map.effects.map((x) => -x));
  const say = (t) =>
    `${quote(showToken(tokens[t + 1]).trim())} at position ${t + 1}: from ${nats(losses[t])} to ${nats(Math.max(0, losses[t] + map.effects[t]))} nats`;
  const up = map.effects[best] > 0 ? `rises most for ${say(best)}` : "rises for no token";
  const down = map.effects[worst] < 0 ? `falls most for ${say(worst)}` : "falls for no token";
  return `Without this head, the loss ${up}; it ${down}.`;
}

/** Lines of Python that repeat the ablation with the real model. */
export function formatCode(state) {
  const text = JSON.stringify(state.sentences[state.sentence].tokens.join(""));
  return [
    "import torch", "from torch.nn.functional import cross_entropy", "",
    "from attnbook.models.hooks import ablate_heads",
    "from attnbook.models.pretrained import load_smollm2, load_smollm2_tokenizer", "",
    "model, tokenizer = load_smollm2(), load_smollm2_tokenizer()",
    `ids = torch.tensor(tokenizer.encode(${text}).ids)`,
    `with torch.no_grad(), ablate_heads(model, [(${state.layer}, ${state.head})]):`,
    "    logits = model(ids[None])[0]",
    'losses = cross_entropy(logits[:-1], ids[1:], reduction="none")',
  ].join("\n");
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, from, changed) {
  const id = `head-explorer-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const now = cleanState(from);
  const root = make("div", { className: "book-widget hx", role: "group", "aria-label": "Head explorer" });
  el.append(root);
  if (!now.sentences.length || !now.layers || !now.per_layer) {
    root.append(make("p", { text: "There is no head to show." }));
    return () => root.remove();
  }
  let controls = 0;
  const named = (text, control) => {
    controls += 1;
    control.id = `${id}-${controls}`;
    return make("span", { className: "hx-pair" }, make("label", { for: control.id, text }), control);
  };
  const choice = (options, choose) => {
    const select = make("select", {}, ...options.map(([value, text]) => make("option", { value, text })));
    select.addEventListener("change", () => choose(select.value));
    return select;
  };
  const current = () => now.sentences[now.sentence];
  const sentence = choice(now.sentences.map((x, i) => [i, x.title || `Sentence ${i + 1}`]), (i) => {
    set({ sentence: Number(i), query: now.sentences[i].tokens.length - 1 });
  });
  const titles = now.heads.map((x, i) => [i, x.title || `Head ${i + 1}`]);
  const head = choice([...titles, [-1, "another head, without a map"]], (i) => {
    if (now.heads[i]) set({ layer: now.heads[i].layer, head: now.heads[i].head });
    else show();
  });
  const score = choice(Object.entries(SCORES), (x) => set({ score: x }));
  const measure = choice(Object.entries(MEASURES), (x) => set({ measure: x }));
  const query = make("input", { type: "range", min: 0, step: 1 });
  query.addEventListener("input", () => set({ query: Number(query.value) }));
  const place = make("output", {});

  const recorded = new Set(now.heads.map((x) => x.layer * now.per_layer + x.head));
  const cells = Array.from({ length: now.layers * now.per_layer }, (_, i) => {
    const cell = make("div", { className: recorded.has(i) ? "hx-cell hx-recorded" : "hx-cell", role: "gridcell" });
    cell.addEventListener("click", () => go(Math.floor(i / now.per_layer), i % now.per_layer));
    return cell;
  });
  const grid = make(
    "div", { className: "hx-grid", role: "grid", "aria-label": "All heads: layers across, heads of a layer down" },
    ...Array.from({ length: now.per_layer }, (_, h) =>
      make("div", { role: "row" }, make("div", { role: "rowheader", text: h }), ...cells.filter((_, i) => i % now.per_layer === h)),
    ),
  );
  const ticks = placeTicks(now.layers).map(([x, five, ten]) => make("span", { text: x, className: ten ? "" : "hx-odd", style: `--from: ${x + 2}; --five: ${five}; --ten: ${ten}` }));
  const axis = make("div", { className: "hx-axis", "aria-hidden": "true" }, ...ticks);
  for (const node of [grid, axis]) node.style.setProperty("--layers", now.layers);

  const [about, asked, changes] = Array.from({ length: 3 }, () => make("p", { className: "hx-finding", role: "status" }));
  const scores = make("tbody", {});
  const none = make("p", { text: "The map of this head was not recorded. Choose a framed head, or one from the list." });
  const canvas = make("canvas");
  const mark = make("div", { className: "hx-mark" });
  const map = make("div", { className: "hx-map", role: "img" }, canvas, mark);
  const side = make("div", { className: "hx-side", "aria-hidden": "true" }); // the lists say the same
  const words = (name) => make("ol", { className: "hx-words", "aria-label": name });
  const keys = words("Keys of the query, with the share of each");
  const tokens = words("Tokens, with the change of each one's loss");
  let ink = "";

  const shown = () => now.heads[findRecorded(now)]?.maps[now.sentence];
  const table = (one) => (now.measure === "norm" ? computeWeightedNorms(one) : computeWeights(one));

  /** Paint in the theme's colour, which may have changed. */
  function paint() {
    const one = shown();
    const color = getComputedStyle(root).accentColor;
    if (!one || color === ink) return;
    ink = color;
    shade(canvas, table(one), ink);
  }

  function drawGrid() {
    const [colors, values] = [colorHeads(now), current()[now.score]];
    cells.forEach((cell, i) => {
      const chosen = i === at(now);
      cell.style.setProperty("--share", colors[i].share);
      cell.classList.toggle("hx-falls", colors[i].falls);
      cell.setAttribute("aria-selected", chosen);
      cell.setAttribute("tabindex", chosen ? 0 : -1);
      const known = recorded.has(i) ? ", with a map" : "";
      cell.setAttribute("aria-label", `Layer ${Math.floor(i / now.per_layer)}, head ${i % now.per_layer}: ${formatScore(now.score, values[i])}${known}`);
    });
  }

  const item = (token, number, share, name = "") => {
    const node = make("li", { className: name }, make("bdi", { text: showToken(token).trim() || token }), make("span", { text: number }));
    node.style.setProperty("--share", share);
    return node;
  };

  function drawMap(one) {
    const row = table(one)[now.query];
    keys.replaceChildren(
      ...current().tokens.map((token, s) =>
        s > now.query ? item(token, "later", 0, "hx-later") : item(token, row[s].toFixed(2), row[s], s === now.query ? "hx-now" : ""),
      ),
    );
    const most = Math.max(1, ...one.effects.map(Math.abs));
    tokens.replaceChildren(
      ...current().tokens.map((token, t) => {
        const x = one.effects[t - 1];
        return t ? item(token, formatChange(x / 100, 2), Math.sqrt(Math.abs(x) / most), x < 0 ? "hx-falls" : "") : item(token, "first", 0, "hx-later");
      }),
    );
    side.replaceChildren(...current().tokens.map((token, t) => make("bdi", { text: showToken(token).trim(), className: t === now.query ? "hx-now" : "" })));
    const T = current().tokens.length;
    map.style.setProperty("--rows", T);
    mark.style.top = `${(100 * now.query) / T}%`;
    mark.style.height = `${100 / T}%`;
    map.setAttribute("aria-label", `${MEASURES[now.measure]} of ${T} queries, down, and keys, across. ${describeQuery(now, one)}`);
    ink = "";
    paint();
  }

  const picture = make("div", {});
  function show() {
    const say = (node, text) => {
      if (node.textContent !== text) node.textContent = text;
    };
    const one = shown();
    sentence.value = now.sentence;
    head.value = findRecorded(now);
    score.value = now.score;
    measure.value = now.measure;
    query.max = current().tokens.length - 1;
    query.value = now.query;
    place.textContent = now.query;
    drawGrid();
    say(about, describeHead(now));
    const row = ([name, ...rest]) => make("tr", {}, make("th", { scope: "row", text: name }), ...rest.map((text) => make("td", { text })));
    scores.replaceChildren(...listScores(now).map(row));
    none.hidden = Boolean(one);
    picture.hidden = !one;
    if (one) {
      drawMap(one);
      say(asked, describeQuery(now, one));
      say(changes, describeEffects(now, one));
    }
    listing.firstChild.textContent = formatCode(now);
  }

  function set(parts) {
    Object.assign(now, parts);
    show();
    for (const [name, value] of Object.entries(parts)) changed(name, value);
  }
  const go = (layer, h) => {
    set({ layer, head: h });
    cells[at(now)].focus();
  };
  map.addEventListener("click", (event) => {
    const box = map.getBoundingClientRect();
    const T = current().tokens.length;
    set({ query: whole(((event.clientY - box.top) / box.height) * T - 0.5, 0, T - 1, 0) });
  });
  grid.addEventListener("keydown", (event) => {
    const other = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    const next = moveHead(now, event.key);
    if (other || !next) return;
    event.preventDefault();
    go(...next);
  });
  root.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // the theme and the notebook listen to arrows too
  });

  const label = (text) => make("p", { className: "hx-label", text });
  const listing = make("pre", { tabindex: 0, role: "region", "aria-label": "Code" }, make("code"));
  const columns = ["score on this sentence", "this head", "equal weights", "rank"].map((text) => make("th", { scope: "col", text }));
  const slider = named("Query", query);
  slider.append(place);
  picture.append(
    make("div", { className: "hx-bar" }, named("Map", measure), slider),
    label("Queries down, keys across; stronger color: a larger share of the row. Value norm: the length of a value after the output projection. Framed: the query; click a row to choose it."),
    make("div", { className: "hx-plot" }, side, map),
    asked, keys,
    label("Change of each token's loss without this head, in nats. Blue: the loss rises; orange: it falls. The strongest color is the largest change of this head."),
    tokens, changes,
  );
  root.append(
    make("div", { className: "hx-bar" }, named("Sentence", sentence), named("Head", head), named("Color", score)),
    label("All heads: layers across, heads of a layer down, both from 0. Stronger color: larger (ablation effects relative to the largest one); orange: negative. Framed: with a map. Choose one by a click or with the arrow keys."),
    grid, axis, about,
    make("div", { className: "hx-wide" }, make("table", { className: "hx-table", "aria-label": "Scores of this head" }, make("thead", {}, make("tr", {}, ...columns)), scores)),
    none, picture,
    make("details", {}, make("summary", { text: "Code" }), listing),
  );
  show();
  return watchAppearance(root, paint);
}

export default {
  render(view) {
    return bind(view, ["layers", "per_layer", "sentences", "heads", "sentence", "layer", "head", "score", "measure", "query"], build);
  },
};
