// The map of a whole translation. Pure functions first: a test holds them to the library.

const NAMES = { cross: "Cross-attention: the decoder attends to the source", decoder: "Decoder self-attention", encoder: "Encoder self-attention" };
const START_LABEL = "(beginning)";

/** What the decoder has read at each step; the last word is never read. */
export function listDecoderInputs(output) {
  return output.length ? [START_LABEL, ...output.slice(0, -1)] : [];
}

/** The queries and the keys of each of the three attentions. */
export function listQueriesAndKeys({ source, output }) {
  const said = listDecoderInputs(output);
  return { cross: [said, source], decoder: [said, said], encoder: [source, source] };
}

/** An example that can be drawn, whatever came in: text, and numbers or 0. */
export function cleanExample(example) {
  const list = (value) => (Array.isArray(value) ? value : []);
  const texts = (value) => list(value).map(String);
  const made = { title: String(example?.title ?? ""), source: texts(example?.source), output: texts(example?.output) };
  for (const [name, [query, key]] of Object.entries(listQueriesAndKeys(made))) {
    const layers = list(example?.[name]).map((heads) =>
      list(heads).map((rows) => query.map((_, t) => key.map((_, s) => clampShare(list(list(rows)[t])[s])))),
    );
    made[name] = layers.filter((heads) => heads.length);
  }
  return made;
}

/** How many layers, and how many heads in each, all three attentions have. */
export function countLayersAndHeads(example) {
  const all = Object.keys(NAMES).map((name) => example[name]);
  const layers = Math.min(...all.map((x) => x.length));
  const heads = layers ? Math.min(...all.flatMap((x) => x.map((y) => y.length))) : 0;
  return [layers, heads];
}

/** The weights of one head, or of head -1: the mean of the layer's heads. */
export function selectWeights(example, name, layer, head) {
  const heads = example[name][layer];
  if (head >= 0) return heads[head];
  return heads[0].map((row, t) => row.map((_, s) => heads.reduce((sum, h) => sum + h[t][s], 0) / heads.length));
}

/** What one row attends to, in words. */
export function describeLargest(row, asked) {
  const best = findLargest(row);
  if (!(row[best] > 0)) return "attends to nothing";
  const spread = Math.exp(entropy(row)).toFixed(1);
  return `attends most to ${quote(asked[best])} (${row[best].toFixed(2)}, spread as over ${spread} ${spread === "1.0" ? "word" : "words"})`;
}

const nameHead = (head) => (head < 0 ? "mean of heads" : `head ${head + 1}`);

/** What a step does: its input, its output, what it attends to. */
export function describeStep(example, layer, head, step) {
  const said = listDecoderInputs(example.output);
  const place = `Step ${step + 1} of ${said.length}, layer ${layer + 1}, ${nameHead(head)}: reads ${quote(said[step])}, generates ${quote(example.output[step])}`;
  const cross = describeLargest(selectWeights(example, "cross", layer, head)[step], example.source);
  const own = describeLargest(selectWeights(example, "decoder", layer, head)[step], said);
  return `${place}. In the source it ${cross}; in what it has read it ${own}.`;
}

/** What a source word does in the encoder. */
export function describeSourceWord(example, layer, head, word) {
  const row = selectWeights(example, "encoder", layer, head)[word];
  return `Encoder, layer ${layer + 1}, ${nameHead(head)}: ${quote(example.source[word])} ${describeLargest(row, example.source)}.`;
}

/** Build the maps in `el`; gives back what takes them away. */
function build(el, given, tell) {
  const id = `translation-map-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const examples = (Array.isArray(given.examples) ? given.examples : []).map(cleanExample);
  const good = examples.filter((e) => e.source.length && e.output.length && countLayersAndHeads(e)[1]);
  const root = make("div", { className: "book-widget tm", role: "group", "aria-label": "Map of a translation" });
  el.append(root);
  if (!good.length) {
    root.append(make("p", { text: "There is no example to show." }));
    return () => root.remove();
  }
  const now = { example: 0, layer: Number(given.layer) || 0, head: Number(given.head) || 0, step: 0, word: 0, ink: "" };
  const current = () => good[now.example];
  const at = (name) => (name === "encoder" ? "word" : "step");

  const chooser = (name) => {
    const select = make("select", { id: `${id}-${name}` });
    select.addEventListener("change", () => {
      now[name] = Number(select.value);
      if (name === "example") Object.assign(now, { step: 0, word: 0 });
      draw();
      said();
    });
    const label = make("label", { for: select.id, text: name[0].toUpperCase() + name.slice(1) });
    return [select, make("span", { className: "tm-pair" }, label, select)];
  };
  const [[example, examplePair], [layer, layerPair], [head, headPair]] = ["example", "layer", "head"].map(chooser);
  good.forEach((e, i) => example.append(make("option", { value: i, text: e.title || `Example ${i + 1}` })));
  const status = make("p", { className: "tm-status", role: "status" });
  const lists = {
    step: make("ol", { className: "tm-words", "aria-label": "Output; choose a word to see the weights of its step" }),
    word: make("ol", { className: "tm-words", "aria-label": "Source; choose a word to see its weights in the encoder" }),
  };
  const back = make("button", { type: "button", text: "Back" });
  const next = make("button", { type: "button", text: "Next" });
  const panels = {};
  for (const [name, title] of Object.entries(NAMES)) {
    const canvas = make("canvas");
    const mark = make("div", { className: "tm-mark" });
    const map = make("div", { className: "tm-map", role: "img" }, canvas, mark);
    const key = make("ol", { className: "tm-words tm-key", "aria-label": `${title}: the weight of each word` });
    panels[name] = { canvas, mark, map, key, whole: make("div", { className: `tm-panel tm-${name}` }, make("p", { className: "tm-title", text: title }), map, key) };
    map.addEventListener("click", (event) => {
      const box = map.getBoundingClientRect();
      go(at(name), Math.floor(((event.clientY - box.top) / box.height) * current()[name][0][0].length));
    });
  }

  /** Tell a notebook's kernel which head is shown. */
  const said = () => {
    tell("layer", now.layer);
    tell("head", now.head);
  };
  const options = (select, texts, chosen) => {
    if (select.options.length !== texts.length) {
      select.replaceChildren(...texts.map(([value, text]) => make("option", { value, text })));
    }
    select.value = chosen;
  };

  /** What example, layer and head decide. */
  function draw() {
    const e = current();
    const [layers, heads] = countLayersAndHeads(e);
    now.layer = clamp(Math.round(now.layer), 0, layers - 1, 0);
    now.head = clamp(Math.round(now.head), -1, heads - 1, 0);
    example.value = now.example;
    options(layer, [...Array(layers).keys()].map((i) => [i, `${i + 1} of ${layers}`]), now.layer);
    options(head, [...Array(heads).keys()].map((i) => [i, `${i + 1} of ${heads}`]).concat([[-1, `mean of ${heads}`]]), now.head);
    for (const [name, texts] of [["step", e.output], ["word", e.source]]) {
      lists[name].replaceChildren(
        ...texts.map((text, i) => {
          const button = make("button", { type: "button" }, make("bdi", { text }));
          button.addEventListener("click", () => go(name, i));
          return make("li", {}, button);
        }),
      );
    }
    for (const [name, [query, asked]] of Object.entries(listQueriesAndKeys(e))) {
      panels[name].key.replaceChildren(
        ...asked.map((text) =>
          make("li", {}, make("bdi", { text }), make("span", { className: "tm-gauge", "aria-hidden": "true" }), make("span", { className: "tm-number" })),
        ),
      );
      panels[name].map.setAttribute("aria-label", `${NAMES[name]}: ${query.length} queries down, ${asked.length} keys across`);
    }
    now.ink = "";
    colour();
    show("step");
    show("word");
    announce("step");
  }

  /** Paint in the theme's colour, which may have changed. */
  function colour() {
    const ink = getComputedStyle(root).accentColor;
    if (ink === now.ink) return;
    now.ink = ink;
    for (const name of Object.keys(NAMES)) shade(panels[name].canvas, selectWeights(current(), name, now.layer, now.head), ink);
  }

  /** What the chosen step decides, or the chosen source word. */
  function show(what) {
    const e = current();
    [...lists[what].children].forEach((li, i) => li.firstChild.setAttribute("aria-pressed", i === now[what]));
    for (const name of Object.keys(NAMES).filter((x) => at(x) === what)) {
      const row = selectWeights(e, name, now.layer, now.head)[now[what]];
      const best = findLargest(row);
      const count = e[name][0][0].length;
      [...panels[name].key.children].forEach((li, s) => {
        const unread = name === "decoder" && s > now.step;
        li.style.setProperty("--weight", row[s]);
        li.classList.toggle("tm-unread", unread);
        li.classList.toggle("tm-best", s === best && row[s] > 0);
        li.lastChild.textContent = unread ? "not yet" : row[s].toFixed(2);
      });
      panels[name].mark.style.top = `${(100 * now[what]) / count}%`;
      panels[name].mark.style.height = `${100 / count}%`;
    }
    back.disabled = now.step === 0;
    next.disabled = now.step >= e.output.length - 1;
  }

  const announce = (what) => {
    const tells = what === "step" ? describeStep : describeSourceWord;
    status.textContent = tells(current(), now.layer, now.head, now[what]);
  };
  const go = (what, i) => {
    now[what] = clamp(i, 0, (what === "step" ? current().output : current().source).length - 1, 0);
    show(what);
    announce(what);
  };
  const choose = (h) => {
    now.head = h;
    draw();
    said();
  };
  back.addEventListener("click", () => go("step", now.step - 1));
  next.addEventListener("click", () => go("step", now.step + 1));
  root.addEventListener("keydown", (event) => {
    const what = lists.word.contains(event.target) ? "word" : "step";
    const keys = {
      ArrowLeft: () => go(what, now[what] - 1),
      ArrowRight: () => go(what, now[what] + 1),
      Home: () => go(what, 0),
      End: () => go(what, Number.MAX_SAFE_INTEGER),
      ArrowUp: () => choose(now.head - 1),
      ArrowDown: () => choose(now.head + 1),
    };
    const other = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (event.target.tagName === "SELECT" || other || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // the theme and the notebook listen to arrows too
    const inList = lists[what].contains(event.target);
    keys[event.key]();
    if (inList) lists[what].children[now[what]].firstChild.focus();
  });

  const label = (text) => make("p", { className: "tm-label", text });
  root.append(
    make("div", { className: "tm-bar" }, examplePair, layerPair, headPair),
    label("Output: choose a word, or use the keys ← → Home End; ↑ ↓ for heads"),
    make("div", { className: "tm-bar" }, back, next),
    lists.step,
    status,
    panels.cross.whole,
    panels.decoder.whole,
    label("Source: choose a word to see its weights in the encoder"),
    lists.word,
    panels.encoder.whole,
    label("In each map, queries go down and keys across; framed: the chosen query"),
  );
  draw();
  return watchAppearance(root, colour);
}

export default {
  render(view) {
    return bind(view, ["examples", "layer", "head"], build);
  },
};
