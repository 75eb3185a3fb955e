// The alignment player. Pure functions first: a test holds them to the library.

/** The fewest insertions, deletions and substitutions between two lists. */
export function editDistance(ours, theirs) {
  return computeEditTable(ours, theirs)[ours.length][theirs.length];
}

function computeEditTable(ours, theirs) {
  const rows = [[...Array(theirs.length + 1).keys()]];
  ours.forEach((word, i) => {
    const row = [i + 1];
    theirs.forEach((other, j) => {
      row.push(Math.min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (word !== other)));
    });
    rows.push(row);
  });
  return rows;
}

/** For each of our words: does a cheapest edit keep it as it is? */
export function markUnchanged(ours, theirs) {
  const rows = computeEditTable(ours, theirs);
  const marks = Array(ours.length).fill(false);
  let [i, j] = [ours.length, theirs.length];
  while (i > 0 && j > 0) {
    const same = ours[i - 1] === theirs[j - 1];
    if (same && rows[i][j] === rows[i - 1][j - 1]) {
      marks[i - 1] = true;
      [i, j] = [i - 1, j - 1];
    } else if (rows[i][j] === rows[i - 1][j - 1] + 1) [i, j] = [i - 1, j - 1];
    else if (rows[i][j] === rows[i - 1][j] + 1) i -= 1;
    else j -= 1;
  }
  return marks;
}

/** An example that can be drawn, whatever came in: text, and numbers or 0. */
export function cleanExample(example) {
  const texts = (list) => (Array.isArray(list) ? list.map(String) : []);
  const source = texts(example?.source);
  const rows = Array.isArray(example?.with?.weights) ? example.with.weights : [];
  return {
    title: String(example?.title ?? ""),
    source,
    reference: texts(example?.reference),
    output: texts(example?.with?.output),
    weights: rows.map((row) => source.map((_, s) => clampShare(Array.isArray(row) ? row[s] : 0))),
    without: texts(example?.without?.output),
  };
}

/** What the player says of one step, for eyes that cannot see it. */
export function describeStep(example, step, attention) {
  const output = attention ? example.output : example.without;
  const ends = step >= output.length;
  const word = ends ? "the end" : quote(output[step]);
  const place = ends ? word : `output ${step + 1} of ${output.length}, ${word}`;
  if (!attention) return `${place}; without attention there are no weights`;
  const row = example.weights[step] ?? [];
  const best = findLargest(row);
  if (!(row[best] > 0)) return `${place}; no weights here`;
  return `${place}, attends most to ${quote(example.source[best])} (${row[best].toFixed(2)})`;
}

/** How many steps there are: the outputs, and the end if it has weights. */
export function countSteps(example, attention) {
  if (!attention) return Math.max(1, example.without.length);
  return Math.max(1, example.weights.length, example.output.length);
}

/** The size in pixels of the cells of a map, so that 1 to 512 words fit. */
export function chooseCellSize(rows, columns) {
  const fit = (count, most) => Math.max(2, Math.min(most, Math.floor(832 / Math.max(1, count))));
  const width = fit(columns, 36);
  return { width, height: fit(rows, Math.max(width, 16)), gap: width < 8 ? 0 : 2 };
}

const SIGNS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M10.5 2.5L12 4 8 8l4 4-1.5 1.5L5 8z",
  play: "M4 2v12l9-6z",
  pause: "M3 2h4v12H3zM9 2h4v12H9z",
  next: "M5.5 2.5L4 4l4 4-4 4 1.5 1.5L11 8z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
};

function createIcon(name) {
  const drawing = makeSvg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "ap-sign" });
  drawing.append(makeSvg("path", { d: SIGNS[name] }));
  return drawing;
}

/** Paint all weights on one canvas, in one colour. */
function paint(canvas, weights, columns, ink) {
  const { width, height, gap } = chooseCellSize(weights.length, columns);
  Object.assign(canvas, { width: columns * width, height: weights.length * height });
  canvas.style.width = `${canvas.width / 2}px`;
  fillCells(canvas, weights, ink, width, height, gap);
}

/** Build the player in `el`; gives back what takes it away. */
function build(el, given) {
  const id = `alignment-player-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const examples = (Array.isArray(given) ? given : []).map(cleanExample).filter((e) => e.source.length);
  const root = make("div", { className: "book-widget ap", role: "group", "aria-label": "Alignment player" });
  el.append(root);
  if (!examples.length) {
    root.append(make("p", { text: "There is no example to show." }));
    return () => root.remove();
  }
  const now = { example: 0, step: 0, attention: true, timer: null, ink: "" };
  const calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;

  const select = make("select", { id: `${id}-example` });
  examples.forEach((e, i) => select.append(make("option", { value: i, text: e.title || `Example ${i + 1}` })));
  const onOff = make("span", { "aria-hidden": "true" });
  const toggle = make("button", { type: "button", role: "switch", className: "ap-switch" });
  toggle.append(make("span", { className: "ap-track", "aria-hidden": "true" }), "Attention ", onOff);
  const source = make("ol", { className: "ap-words ap-source", "aria-label": "Input, with the weight of each" });
  const lines = makeSvg("svg", { class: "ap-lines", "aria-hidden": "true" });
  const output = make("ol", { className: "ap-words ap-output", "aria-label": "Output; choose a word to see its weights" });
  const reference = make("p", { className: "ap-reference", dir: "auto" });
  const verdict = make("p", { className: "ap-verdict" });
  const status = make("p", { className: "ap-status", role: "status" });
  const canvas = make("canvas");
  const mark = make("div", { className: "ap-mark" });
  const map = make("div", { className: "ap-map", role: "img" }, canvas, mark);
  const caption = make("p", { className: "ap-label ap-caption" });
  const buttons = {};
  for (const [name, label] of [["first", "First"], ["back", "Back"], ["play", "Play"], ["next", "Next"], ["last", "Last"]]) {
    buttons[name] = make("button", { type: "button", "aria-label": label, title: label }, createIcon(name));
  }
  const hint = make("span", { className: "ap-label ap-hint", text: "or the keys ← → Home End" });

  const current = () => examples[now.example];
  const last = () => countSteps(current(), now.attention) - 1;
  const weights = () => (now.attention && current().weights[now.step]) || [];
  const stop = () => {
    clearInterval(now.timer);
    now.timer = null;
  };
  const go = (step) => {
    now.step = Math.max(0, Math.min(last(), step));
    show();
  };
  const play = () => {
    if (now.timer) {
      stop();
      return show();
    }
    if (now.step >= last()) now.step = 0;
    now.timer = setInterval(() => {
      if (now.step + 1 >= last()) stop();
      go(now.step + 1);
    }, calm ? 2000 : 1000);
    show();
  };

  /** What an example and the switch decide: words, marks, the map. */
  function draw() {
    const { source: words, reference: right, output: ours, without, weights: all } = current();
    const said = now.attention ? ours : without;
    const good = markUnchanged(said, right);
    source.replaceChildren(
      ...words.map((text) =>
        make(
          "li",
          {},
          make("bdi", { className: "ap-word", text }),
          make("span", { className: "ap-gauge", "aria-hidden": "true" }, make("span", { className: "ap-fill" })),
          make("span", { className: "ap-number" }),
        ),
      ),
    );
    const choice = (t, className, ...inside) => {
      const button = make("button", { type: "button", className }, ...inside);
      button.addEventListener("click", () => go(t));
      return make("li", {}, button);
    };
    const items = said.map((text, t) => {
      const word = make("bdi", { text });
      if (good[t]) return choice(t, "", word);
      const note = make("span", { className: "ap-note", "aria-hidden": "true", text: "✗" });
      return choice(t, "ap-wrong", word, note, make("span", { className: "ap-hidden", text: " differs" }));
    });
    if (countSteps(current(), now.attention) > said.length) items.push(choice(said.length, "ap-end", "end"));
    output.replaceChildren(...items);
    reference.textContent = right.join(" ");
    const edits = (list) => make("b", { text: String(editDistance(list, right)) });
    verdict.replaceChildren(
      "Changes to reach the reference: with attention ", edits(ours), ", without ", edits(without), ". ",
      good.includes(false) ? "✗ marks what differs." : "",
    );
    map.hidden = caption.hidden = !now.attention || !all.length;
    map.setAttribute("aria-label", `All weights: ${all.length} outputs down, ${words.length} inputs across`);
    now.ink = "";
    colour();
    toggle.setAttribute("aria-checked", String(now.attention));
    onOff.textContent = now.attention ? "on" : "off";
    go(now.step);
  }

  /** Paint the map, if it or the page's theme is another one now. */
  function colour() {
    const ink = getComputedStyle(root).accentColor;
    if (map.hidden || !ink || ink === now.ink) return;
    now.ink = ink;
    paint(canvas, current().weights, current().source.length, ink);
  }

  /** What a step decides: nothing is built anew, so the focus stays. */
  function show() {
    const row = weights();
    const best = findLargest(row);
    source.classList.toggle("ap-none", !row.length);
    [...source.children].forEach((item, s) => {
      const weight = row[s] ?? 0;
      item.style.setProperty("--weight", weight);
      item.classList.toggle("ap-best", s === best && weight > 0);
      item.lastChild.textContent = !row.length ? "" : weight < 0.005 ? "0" : weight.toFixed(2);
    });
    const choices = [...output.querySelectorAll("button")];
    const inside = choices.includes(document.activeElement);
    choices.forEach((button, t) => {
      button.tabIndex = t === now.step ? 0 : -1; // one stop for Tab; arrows do the rest
      if (t === now.step) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    if (inside) choices[now.step]?.focus();
    const ends = { first: now.step <= 0, back: now.step <= 0, next: now.step >= last(), last: now.step >= last() };
    for (const [name, end] of Object.entries(ends)) buttons[name].setAttribute("aria-disabled", String(end));
    const doing = now.timer ? "Pause" : "Play";
    if (buttons.play.title !== doing || !buttons.play.dataset.doing) {
      Object.assign(buttons.play, { title: doing, ariaLabel: doing }).dataset.doing = doing;
      buttons.play.replaceChildren(createIcon(doing.toLowerCase()));
    }
    const rows = Math.max(1, current().weights.length);
    mark.style.top = `${(100 * now.step) / rows}%`;
    mark.style.height = `${100 / rows}%`;
    const word = current().output[now.step];
    caption.replaceChildren("All weights, outputs down and inputs across; framed: ", make("bdi", { text: word ?? "end" }));
    status.textContent = describeStep(current(), now.step, now.attention);
    join();
  }

  /** Lines from the output to the words it looks at, where these stand in one row. */
  function join() {
    const [words, said] = [[...source.children], output.children[now.step]];
    lines.classList.toggle("ap-gone", words.some((x) => x.offsetTop !== words[0].offsetTop));
    const here = lines.getBoundingClientRect();
    const middle = (node) => {
      const box = node.getBoundingClientRect();
      return box.left + box.width / 2 - here.left;
    };
    const row = said ? weights() : [];
    const foot = said && said.getBoundingClientRect().top - here.top;
    const paths = row.map((weight, s) => {
      if (weight < 0.02) return null;
      const [a, b, half] = [middle(words[s]), middle(said), here.height / 2];
      const d = `M${a} 0C${a} ${half} ${b} ${half} ${b} ${here.height}V${foot}`;
      return makeSvg("path", { d, "stroke-width": 1 + 4 * weight, opacity: 0.25 + 0.75 * weight });
    });
    lines.replaceChildren(...paths.filter(Boolean));
  }

  select.addEventListener("change", () => {
    stop();
    [now.example, now.step] = [Number(select.value), 0];
    draw();
  });
  toggle.addEventListener("click", () => {
    now.attention = !now.attention;
    draw();
  });
  map.addEventListener("click", (event) => {
    const box = map.getBoundingClientRect();
    go(Math.floor(((event.clientY - box.top) / box.height) * current().weights.length));
  });
  const keys = {
    ArrowLeft: () => go(now.step - 1),
    ArrowRight: () => go(now.step + 1),
    Home: () => go(0),
    End: () => go(last()),
  };
  buttons.first.addEventListener("click", keys.Home);
  buttons.back.addEventListener("click", keys.ArrowLeft);
  buttons.play.addEventListener("click", play);
  buttons.next.addEventListener("click", keys.ArrowRight);
  buttons.last.addEventListener("click", keys.End);
  root.addEventListener("keydown", (event) => {
    const other = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (event.target === select || other || !keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation(); // the theme and the notebook listen to arrows too
    keys[event.key]();
  });

  const label = (text) => make("p", { className: "ap-label", text });
  root.append(
    make("div", { className: "ap-bar" }, make("label", { for: select.id, text: "Example" }), select, toggle),
    make(
      "div",
      { className: "ap-rows" },
      label("Input"), source, lines, label("Output"), output, label("Reference"), reference,
    ),
    make("div", { className: "ap-foot" }, make("div", { className: "ap-bar ap-steps" }, ...Object.values(buttons), hint), status),
    verdict,
    caption,
    map,
  );
  draw();
  const remove = watchAppearance(root, () => {
    colour();
    join();
  });
  return () => {
    stop();
    remove();
  };
}

export default {
  render(view) {
    return bind(view, ["examples"], (el, { examples }) => build(el, examples));
  },
};
