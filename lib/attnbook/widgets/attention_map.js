// The attention map. Pure functions first: a test holds them to the library.

/** An example that can be drawn, whatever came in: text, and numbers or 0. */
export function cleanExample(example) {
  const list = (value) => (Array.isArray(value) ? value : []);
  const query = list(example?.query).map(String);
  const key = example?.key === undefined ? query : list(example.key).map(String);
  const weights = list(example?.weights).map((heads) =>
    list(heads).map((rows) => query.map((_, t) => key.map((_, s) => clampShare(list(list(rows)[t])[s])))),
  );
  return { title: String(example?.title ?? ""), query, key, weights: weights.filter((heads) => heads.length) };
}

/** The nearest whole number from 0 to count - 1. */
export function clampIndex(value, count) {
  return Math.min(count - 1, Math.max(0, Math.round(Number(value)) || 0));
}

/** What a row says, in words. */
export function describeRow(example, layer, head, word) {
  const row = example.weights[layer]?.[head]?.[word] ?? [];
  const best = findLargest(row);
  const where = `Layer ${layer + 1}, head ${head + 1}: ${quote(example.query[word])}`;
  if (!(row[best] > 0)) return `${where} attends to nothing`;
  const spread = Math.exp(entropy(row)).toFixed(1);
  const how = spread === "1.0" ? "all weight on one word" : `spread as over ${spread} words`;
  return `${where} attends most to ${quote(example.key[best])} (${row[best].toFixed(2)}), ${how}`;
}

/** The query to open on: the one that gives another word most, special tokens like [CLS] apart. */
export function chooseWord(example, rows) {
  const special = (text) => /^\[.*\]$/.test(text);
  const most = example.query.map((word, t) =>
    special(word) ? -1 : Math.max(...rows[t].map((weight, s) => (special(example.key[s]) || example.key[s] === word ? 0 : weight))),
  );
  return findLargest(most);
}

/** How many layers, heads, queries and keys. */
export function readShape(example) {
  return [example.weights.length, example.weights[0]?.length ?? 0, example.query.length, example.key.length];
}

/** Whether so many words can stand beside a map and be read. */
export function fitsLabels(count) {
  return count <= 20;
}

/** All weights as one plain array: [layer][head][query][key]. */
export function exportWeights(example) {
  return JSON.stringify(example.weights);
}

/** Build the map in `el`; gives back what takes it away. */
function build(el, given, tell) {
  const id = `attention-map-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const examples = (Array.isArray(given.examples) ? given.examples : []).map(cleanExample);
  const good = examples.filter((e) => e.query.length && e.key.length && e.weights.length);
  const root = make("div", { className: "book-widget am", role: "group", "aria-label": "Attention map" });
  el.append(root);
  if (!good.length) {
    root.append(make("p", { text: "There is no example to show." }));
    return () => root.remove();
  }
  const all = given.heads === "all";
  const now = { example: 0, layer: given.layer, head: given.head, ink: "" };
  const current = () => good[now.example];
  const rows = () => current().weights[now.layer][now.head];
  const restart = () => {
    now.layer = clampIndex(now.layer, current().weights.length);
    now.head = clampIndex(now.head, current().weights[now.layer].length);
    now.word = chooseWord(current(), rows());
  };

  /** Tell a notebook's kernel which head is shown. */
  const said = () => {
    tell("layer", now.layer);
    tell("head", now.head);
  };

  const chooser = (name) => {
    const select = make("select", { id: `${id}-${name}` });
    const label = make("label", { for: select.id, text: name[0].toUpperCase() + name.slice(1) });
    select.addEventListener("change", () => {
      now[name] = Number(select.value);
      if (name === "example") restart();
      draw();
      said();
    });
    return [select, label];
  };
  const [example, exampleLabel] = chooser("example");
  const [layer, layerLabel] = chooser("layer");
  const [head, headLabel] = chooser("head");
  good.forEach((e, i) => example.append(make("option", { value: i, text: e.title || `Example ${i + 1}` })));
  const query = make("ol", { className: "am-words am-query", "aria-label": "Queries; choose one" });
  const key = make("ol", { className: "am-words am-key", "aria-label": "Keys, with the weight of each" });
  const status = make("p", { className: "am-status", role: "status" });
  const canvas = make("canvas");
  const mark = make("div", { className: "am-mark" });
  const map = make("div", { className: "am-map", role: "img" }, canvas, mark);
  const side = make("div", { className: "am-side" });
  const above = make("div", { className: "am-above" });
  const plot = make("div", { className: "am-plot" }, make("span"), above, side, map);
  for (const axis of [side, above]) axis.setAttribute("aria-hidden", "true"); // the lists say the same
  const caption = make("p", { className: "am-label" });
  const grid = make("div", { className: "am-grid", role: "group", "aria-label": "All heads of the layer; choose one" });
  const numbers = make("textarea", { readonly: "", rows: 4, "aria-label": "All weights of this example as JSON" });
  const details = make(
    "details",
    {},
    make("summary", { text: "Numbers as JSON" }),
    make("p", { className: "am-label", text: "[layer][head][query][key], 3 digits; layers and heads from 0" }),
    numbers,
  );

  const copy = make("button", { type: "button", text: "Copy as JSON" });
  const copied = make("span", { className: "am-label am-copied", "aria-live": "polite" });
  copy.addEventListener("click", async () => {
    const text = exportWeights(current());
    const size = `${readShape(current()).join(" × ")} numbers`;
    try {
      await navigator.clipboard.writeText(text);
      copied.textContent = `Copied: ${size}`;
    } catch {
      details.open = true; // where a page may not write to the clipboard
      numbers.value = text;
      numbers.focus();
      numbers.select();
      copied.textContent = document.execCommand("copy") ? `Copied: ${size}` : `Selected, to be copied: ${size}`;
    }
  });

  const options = (select, count, chosen) => {
    if (select.options.length !== count) {
      const texts = [...Array(count).keys()].map((i) => make("option", { value: i, text: `${i + 1} of ${count}` }));
      select.replaceChildren(...texts);
    }
    select.value = chosen;
  };

  /** What example, layer and head decide. */
  function draw() {
    const e = current();
    now.layer = clampIndex(now.layer, e.weights.length);
    now.head = clampIndex(now.head, e.weights[now.layer].length);
    example.value = now.example;
    options(layer, e.weights.length, now.layer);
    options(head, e.weights[now.layer].length, now.head);
    query.replaceChildren(
      ...e.query.map((text, t) => {
        const button = make("button", { type: "button" }, make("bdi", { text }));
        button.addEventListener("click", () => go(t));
        return make("li", {}, button);
      }),
    );
    key.replaceChildren(
      ...e.key.map((text) =>
        make(
          "li",
          {},
          make("bdi", { className: "am-word", text }),
          make("span", { className: "am-gauge", "aria-hidden": "true" }, make("span", { className: "am-fill" })),
          make("span", { className: "am-number" }),
        ),
      ),
    );
    const names = (list) => (fitsLabels(list.length) ? list.map((text) => make("bdi", { text })) : []);
    side.replaceChildren(...names(e.query));
    above.replaceChildren(...names(e.key));
    plot.style.setProperty("--columns", e.key.length);
    copied.textContent = "";
    if (all) {
      grid.replaceChildren(
        ...e.weights[now.layer].map((_, h) => {
          const button = make(
            "button",
            { type: "button", "aria-pressed": h === now.head, "aria-label": `Head ${h + 1}` },
            make("canvas", { "aria-hidden": "true" }),
            make("span", { text: `head ${h + 1}` }),
          );
          button.addEventListener("click", () => choose(h));
          return button;
        }),
      );
    }
    numbers.value = details.open ? exportWeights(e) : "";
    now.ink = "";
    colour();
    show();
  }

  /** Paint in the theme's colour, which may have changed. */
  function colour() {
    const ink = getComputedStyle(root).accentColor;
    if (ink === now.ink) return;
    now.ink = ink;
    shade(canvas, rows(), ink);
    [...grid.children].forEach((b, h) => shade(b.firstChild, current().weights[now.layer][h], ink, true));
  }

  /** What the chosen word decides. */
  function show() {
    const e = current();
    const row = rows()[now.word];
    const best = findLargest(row);
    [...query.children].forEach((li, t) => {
      li.firstChild.setAttribute("aria-pressed", t === now.word);
    });
    [...key.children].forEach((li, s) => {
      li.style.setProperty("--weight", row[s]);
      li.classList.toggle("am-best", s === best && row[s] > 0);
      li.lastChild.textContent = row[s].toFixed(2);
    });
    [...grid.children].forEach((b, h) => b.setAttribute("aria-pressed", h === now.head));
    [...side.children].forEach((name, t) => name.classList.toggle("am-now", t === now.word));
    mark.style.top = `${(100 * now.word) / e.query.length}%`;
    mark.style.height = `${100 / e.query.length}%`;
    caption.textContent = `Layer ${now.layer + 1}, head ${now.head + 1}: queries down, keys across; framed: the chosen query`;
    map.setAttribute("aria-label", `Weights of ${e.query.length} queries and ${e.key.length} keys`);
    status.textContent = describeRow(e, now.layer, now.head, now.word);
  }

  const go = (word) => {
    now.word = clampIndex(word, current().query.length);
    show();
  };
  const choose = (h) => {
    now.head = clampIndex(h, current().weights[now.layer].length);
    head.value = now.head;
    now.ink = "";
    colour();
    show();
    said();
  };

  details.addEventListener("toggle", () => {
    numbers.value = details.open ? exportWeights(current()) : "";
    if (details.open) numbers.select();
  });
  map.addEventListener("click", (event) => {
    const box = map.getBoundingClientRect();
    go(Math.floor(((event.clientY - box.top) / box.height) * current().query.length));
  });
  const keys = {
    ArrowLeft: () => go(now.word - 1),
    ArrowRight: () => go(now.word + 1),
    first: () => choose(0),
    last: () => choose(Infinity),
    Home: () => go(0),
    End: () => go(current().query.length - 1),
    ArrowUp: () => choose(now.head - 1),
    ArrowDown: () => choose(now.head + 1),
  };
  const among = { ArrowLeft: "ArrowUp", ArrowRight: "ArrowDown", Home: "first", End: "last" };
  root.addEventListener("keydown", (event) => {
    const other = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    const busy = ["SELECT", "TEXTAREA", "SUMMARY"].includes(event.target.tagName);
    if (busy || other || !keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation(); // the theme and the notebook listen to arrows too
    const inGrid = grid.contains(event.target); // among heads, every arrow goes to a head
    keys[(inGrid && among[event.key]) || event.key]();
    if (inGrid) grid.children[now.head].focus();
    if (query.contains(event.target)) query.children[now.word].firstChild.focus();
  });

  const label = (text) => make("p", { className: "am-label", text });
  const pair = (l, s) => make("span", { className: "am-pair" }, l, s);
  root.append(
    make("div", { className: "am-bar" }, pair(exampleLabel, example), pair(layerLabel, layer), pair(headLabel, head)),
    ...(all ? [grid] : []),
    label("Queries: choose a word, or use the keys ← → for words, ↑ ↓ for heads"),
    query,
    label("Keys: the weight that the chosen query gives each"),
    key,
    status,
    caption,
    plot,
    make("div", { className: "am-bar am-foot" }, copy, copied),
    details,
  );
  restart();
  draw();
  return watchAppearance(root, colour);
}

export default {
  render(view) {
    return bind(view, ["examples", "layer", "head", "heads"], build);
  },
};
