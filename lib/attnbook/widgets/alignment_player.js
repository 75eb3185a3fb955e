// The alignment player. Pure functions first: a test holds them to the library.

/** The fewest insertions, deletions and substitutions between two lists. */
export function editDistance(ours, theirs) {
  return table(ours, theirs)[ours.length][theirs.length];
}

function table(ours, theirs) {
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
export function kept(ours, theirs) {
  const rows = table(ours, theirs);
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

/** The place of the largest number; numbers that are none do not count. */
export function largest(row) {
  let best = -1;
  row.forEach((x, i) => {
    if (Number.isFinite(x) && (best < 0 || x > row[best])) best = i;
  });
  return best;
}

/** An example that can be drawn, whatever came in: text, and numbers or 0. */
export function cleaned(example) {
  const texts = (list) => (Array.isArray(list) ? list.map(String) : []);
  const source = texts(example?.source);
  const rows = Array.isArray(example?.with?.weights) ? example.with.weights : [];
  const number = (x) => (Number.isFinite(Number(x)) ? Math.min(1, Math.max(0, Number(x))) : 0);
  return {
    title: String(example?.title ?? ""),
    source,
    reference: texts(example?.reference),
    output: texts(example?.with?.output),
    weights: rows.map((row) => source.map((_, s) => number(Array.isArray(row) ? row[s] : 0))),
    without: texts(example?.without?.output),
  };
}

/** What the player says of one step, for eyes that cannot see it. */
export function told(example, step, attention) {
  const output = attention ? example.output : example.without;
  const ends = step >= output.length;
  const word = ends ? "the end" : `“${output[step]}”`;
  const place = ends ? word : `output ${step + 1} of ${output.length}, ${word}`;
  if (!attention) return `${place}; without attention it looks nowhere`;
  const row = example.weights[step] ?? [];
  const best = largest(row);
  if (best < 0) return `${place}; no weights here`;
  return `${place}, looks most at “${example.source[best]}” (${row[best].toFixed(2)})`;
}

/** How many steps there are: the outputs, and the end if it has weights. */
export function steps(example, attention) {
  if (!attention) return Math.max(1, example.without.length);
  return Math.max(1, example.weights.length, example.output.length);
}

function make(tag, props = {}, ...children) {
  const { className, text, ...attributes } = props;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text; // text, never HTML
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

let players = 0;

export default {
  render({ model, el }) {
    const id = `alignment-player-${(players += 1)}`;
    const examples = (model.get("examples") ?? []).map(cleaned).filter((e) => e.source.length);
    const root = make("div", { className: "ap", role: "group", "aria-label": "Alignment player" });
    el.append(root);
    if (!examples.length) {
      root.append(make("p", { text: "There is no example to show." }));
      return () => root.remove();
    }
    const now = { example: 0, step: 0, attention: true, timer: null };
    const calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;

    const select = make("select", { id: `${id}-example` });
    examples.forEach((e, i) => select.append(make("option", { value: i, text: e.title || `Example ${i + 1}` })));
    const toggle = make("button", { type: "button", className: "ap-toggle" });
    const source = make("ol", { className: "ap-words ap-source", "aria-label": "Input, with the weight of each" });
    const output = make("ol", { className: "ap-words ap-output", "aria-label": "Output; choose one to see where it looks" });
    const reference = make("p", { className: "ap-text" });
    const verdict = make("p", { className: "ap-text ap-verdict" });
    const status = make("p", { className: "ap-status", role: "status" });
    const map = make("div", { className: "ap-map", role: "img" });
    const caption = make("p", { className: "ap-label", text: "All weights: outputs down, inputs across" });
    const buttons = {};
    const bar = make("div", { className: "ap-bar" });
    for (const [name, sign, label] of [
      ["first", "❘◀", "First"],
      ["back", "◀", "Back"],
      ["play", "▶▶", "Play"],
      ["next", "▶", "Next"],
      ["last", "▶❘", "Last"],
    ]) {
      buttons[name] = make("button", { type: "button", "aria-label": label, title: label, text: `${sign}\uFE0E` });
      bar.append(buttons[name]);
    }

    const current = () => examples[now.example];
    const last = () => steps(current(), now.attention) - 1;
    const stop = () => {
      clearInterval(now.timer);
      now.timer = null;
    };
    const go = (step) => {
      now.step = Math.max(0, Math.min(last(), step));
      draw();
    };
    const play = () => {
      if (now.timer) {
        stop();
        return draw();
      }
      if (now.step >= last()) now.step = 0;
      now.timer = setInterval(() => {
        if (now.step >= last()) {
          stop();
          return draw();
        }
        go(now.step + 1);
      }, calm ? 2000 : 900);
      draw();
    };

    const word = (text, extra = {}) => make("span", { className: "ap-word", text, ...extra });

    function drawSource() {
      const row = (now.attention && current().weights[now.step]) || [];
      const best = largest(row);
      source.replaceChildren(
        ...current().source.map((text, s) => {
          const item = make("li", { className: s === best ? "ap-best" : "" }, word(text));
          if (row.length) {
            const fill = make("span", { className: "ap-fill" });
            fill.style.width = `${100 * row[s]}%`;
            item.append(
              make("span", { className: "ap-gauge", "aria-hidden": "true" }, fill),
              make("span", { className: "ap-number", text: row[s].toFixed(2) }),
            );
          }
          return item;
        }),
      );
    }

    function drawOutput() {
      const said = now.attention ? current().output : current().without;
      const good = kept(said, current().reference);
      const items = said.map((text, t) => {
        const button = make("button", { type: "button", className: good[t] ? "" : "ap-wrong", text });
        if (!good[t]) button.append(make("span", { className: "ap-note", text: " ✗", "aria-label": "differs" }));
        if (t === now.step) button.setAttribute("aria-current", "step");
        button.addEventListener("click", () => go(t));
        return make("li", {}, button);
      });
      if (steps(current(), now.attention) > said.length) {
        const end = make("button", { type: "button", className: "ap-end", text: "end" });
        if (now.step >= said.length) end.setAttribute("aria-current", "step");
        end.addEventListener("click", () => go(said.length));
        items.push(make("li", {}, end));
      }
      // Keep the focus where it was: drawing replaces the buttons.
      const focused = [...output.querySelectorAll("button")].indexOf(document.activeElement);
      output.replaceChildren(...items);
      if (focused >= 0) output.querySelectorAll("button")[now.step]?.focus();
    }

    function drawMap() {
      const { weights, source: words } = current();
      map.hidden = !now.attention || !weights.length;
      caption.hidden = map.hidden;
      map.style.gridTemplateColumns = `repeat(${words.length}, minmax(2px, 1fr))`;
      map.setAttribute("aria-label", `All weights: ${weights.length} outputs down, ${words.length} inputs across`);
      map.replaceChildren(
        ...weights.flatMap((row, t) =>
          row.map((x) => {
            const cell = make("span", { className: t === now.step ? "ap-now" : "" });
            cell.style.setProperty("--weight", x.toFixed(3));
            return cell;
          }),
        ),
      );
    }

    function draw() {
      const { reference: right, output: ours, without } = current();
      toggle.textContent = now.attention ? "Attention: on" : "Attention: off";
      toggle.setAttribute("aria-pressed", String(now.attention));
      buttons.play.setAttribute("aria-label", now.timer ? "Pause" : "Play");
      buttons.play.title = now.timer ? "Pause" : "Play";
      buttons.play.textContent = now.timer ? "❚❚" : "▶▶\uFE0E";
      for (const name of ["first", "back"]) buttons[name].disabled = now.step <= 0;
      for (const name of ["next", "last"]) buttons[name].disabled = now.step >= last();
      drawSource();
      drawOutput();
      drawMap();
      reference.replaceChildren(make("b", { text: "Reference: " }), right.join(" "));
      const edits = (list) => {
        const n = editDistance(list, right);
        return `${n} ${n === 1 ? "edit" : "edits"}`;
      };
      verdict.replaceChildren(
        make("b", { text: "From the reference: " }),
        `with attention ${edits(ours)}, without ${edits(without)}`,
      );
      status.textContent = told(current(), now.step, now.attention);
    }

    select.addEventListener("change", () => {
      stop();
      [now.example, now.step] = [Number(select.value), 0];
      draw();
    });
    toggle.addEventListener("click", () => {
      now.attention = !now.attention;
      go(now.step);
    });
    buttons.first.addEventListener("click", () => go(0));
    buttons.back.addEventListener("click", () => go(now.step - 1));
    buttons.play.addEventListener("click", play);
    buttons.next.addEventListener("click", () => go(now.step + 1));
    buttons.last.addEventListener("click", () => go(last()));
    const keys = {
      ArrowLeft: () => go(now.step - 1),
      ArrowRight: () => go(now.step + 1),
      Home: () => go(0),
      End: () => go(last()),
    };
    root.addEventListener("keydown", (event) => {
      if (event.target === select || !keys[event.key]) return;
      event.preventDefault();
      event.stopPropagation(); // the theme and the notebook listen to arrows too
      keys[event.key]();
    });

    root.append(
      make(
        "div",
        { className: "ap-bar" },
        make("label", { for: `${id}-example`, text: "Example " }),
        select,
        toggle,
      ),
      make("p", { className: "ap-label", text: "Input" }),
      source,
      make("p", { className: "ap-label", text: "Output" }),
      output,
      bar,
      status,
      caption,
      map,
      reference,
      verdict,
    );
    draw();
    return () => {
      stop();
      root.remove();
    };
  },
};
