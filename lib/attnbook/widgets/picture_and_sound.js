// Attention on a picture and on a sound. Pure functions first: a test holds them to the library.

const KINDS = ["picture", "sound"];
const [MOST_PIXELS, MOST_CELLS, MOST_STEPS] = [400, 64, 80]; // a side, a side, an item

const rows = (x) => (Array.isArray(x) ? x : []);
const whole = (x, low, high, otherwise) => Math.round(clamp(x, low, high, otherwise));

function cleanStep(given, cells, [height, width]) {
  const box = rows(given?.box);
  const top = clamp(box[0], 0, height, 0);
  const left = clamp(box[1], 0, width, 0);
  return {
    label: String(given?.label ?? ""),
    part: String(given?.part ?? ""),
    thousandths: Array.from({ length: cells }, (_, i) => whole(rows(given?.thousandths)[i], 0, 1000, 0)),
    box: [top, left, clamp(box[2], top, height, height), clamp(box[3], left, width, width)],
  };
}

function cleanItem(given) {
  const lines = rows(given?.gray).slice(0, MOST_PIXELS).map(String);
  const width = Math.min(MOST_PIXELS, Math.max(0, ...lines.map((x) => x.length)));
  if (!width) return null;
  const gray = lines.map((x) => x.slice(0, width).toLowerCase().replace(/[^0-9a-f]/g, "0").padEnd(width, "0"));
  const grid = [0, 1].map((i) => whole(rows(given?.grid)[i], 1, MOST_CELLS, 1));
  const steps = rows(given?.steps).slice(0, MOST_STEPS);
  if (!steps.length) return null;
  return {
    kind: KINDS.includes(given.kind) ? given.kind : "picture",
    title: String(given.title ?? ""),
    gray, grid,
    milliseconds: whole(given.milliseconds, 0, 60000, 0),
    steps: steps.map((step) => cleanStep(step, grid[0] * grid[1], [gray.length, width])),
  };
}

/** A state that can be drawn, whatever came in. */
export function cleanState(given) {
  const items = rows(given?.items).map(cleanItem).filter(Boolean);
  const item = whole(given?.item, 0, Math.max(items.length - 1, 0), 0);
  return { items, item, step: whole(given?.step, 0, Math.max((items[item]?.steps.length ?? 1) - 1, 0), 0) };
}

/** The weights of a step, cell by cell; they sum to 1, or are all 0. */
export function computeWeights(step) {
  const sum = step.thousandths.reduce((a, b) => a + b, 0);
  return step.thousandths.map((x) => (sum > 0 ? x / sum : 0));
}

/** The share of each cell of a line that lies in an interval of its pixels. */
export function coverCells(low, high, cells, size) {
  const side = size / cells;
  return Array.from({ length: cells }, (_, i) => Math.max(0, Math.min(high, (i + 1) * side) - Math.max(low, i * side)) / side);
}

/** The share of each cell of the grid that lies in a step's true box, row by row. */
export function coverBox(item, step) {
  const [top, left, bottom, right] = step.box;
  const across = coverCells(left, right, item.grid[1], item.gray[0].length);
  return coverCells(top, bottom, item.grid[0], item.gray.length).flatMap((down) => across.map((x) => down * x));
}

/** The weight inside the true box, and that of equal weights. */
export function measureStep(item, step) {
  const cover = coverBox(item, step);
  const weights = computeWeights(step);
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  return { mass: sum(cover.map((x, i) => x * weights[i])), chance: sum(cover) / cover.length };
}

/** The means over the steps of an item. */
export function averageSteps(item) {
  const all = item.steps.map((step) => measureStep(item, step));
  const mean = (name) => all.reduce((sum, x) => sum + x[name], 0) / all.length;
  return { mass: mean("mass"), chance: mean("chance") };
}

/** What is seen at a step, in words. */
export function describeStep(state) {
  const item = state.items[state.item];
  const step = item.steps[state.step];
  const { mass, chance } = measureStep(item, step);
  const weight = `Attention gives ${mass.toFixed(2)} of its weight to`;
  const equal = `equal weights would give ${chance.toFixed(2)}.`;
  if (item.kind === "picture") return `The digit is ${quote(step.part)}, the model's answer ${quote(step.label)}. ${weight} the box of the digit; ${equal}`;
  const [from, to] = [step.box[1], step.box[3]].map((x) => ((x / item.gray[0].length) * item.milliseconds / 1000).toFixed(2));
  return `Letter ${state.step + 1} of ${item.steps.length}: ${quote(step.label)} of ${quote(step.part)}. ${weight} the time of this word, ${from} to ${to} s; ${equal}`;
}

/** The means over the steps, in words; nothing for one step. */
export function describeMean(item) {
  if (item.steps.length < 2) return "";
  const { mass, chance } = averageSteps(item);
  return `Mean over ${item.steps.length} letters: ${mass.toFixed(2)}; equal weights: ${chance.toFixed(2)}.`;
}

/** Where the true box is, in percent of the image: left, top, width, height. */
export function placeBox(item, step) {
  const [top, left, bottom, right] = step.box;
  const [height, width] = [item.gray.length, item.gray[0].length];
  return [left / width, top / height, (right - left) / width, (bottom - top) / height].map((x) => 100 * x);
}

/** Paint an image of hexadecimal digits, and the weights over it. */
function paintItem(canvas, item, step, colors, attention) {
  const [height, width] = [item.gray.length, item.gray[0].length];
  const size = item.kind === "picture" ? 8 : 6;
  Object.assign(canvas, { width: width * size, height: height * size });
  const pen = canvas.getContext("2d");
  pen.fillStyle = colors[0];
  item.gray.forEach((line, y) =>
    [...line].forEach((digit, x) => {
      pen.globalAlpha = parseInt(digit, 16) / 15;
      pen.fillRect(x * size, y * size, size, size);
    }),
  );
  if (!attention) return;
  const weights = computeWeights(step);
  const most = Math.max(...weights, 1e-9);
  const [down, across] = [canvas.height / item.grid[0], canvas.width / item.grid[1]];
  pen.fillStyle = colors[1];
  weights.forEach((x, i) => {
    pen.globalAlpha = 0.75 * (x / most);
    pen.fillRect((i % item.grid[1]) * across, Math.floor(i / item.grid[1]) * down, across, down);
  });
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, from, changed) {
  const id = `picture-and-sound-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const now = cleanState(from);
  const root = make("div", { className: "book-widget ps", role: "group", "aria-label": "Attention on a picture and on a sound" });
  el.append(root);
  if (!now.items.length) {
    root.append(make("p", { text: "There is no picture and no sound to show." }));
    return () => root.remove();
  }
  let controls = 0;
  const named = (text, control) => {
    controls += 1;
    control.id = `${id}-${controls}`;
    return make("span", { className: "ps-pair" }, make("label", { for: control.id, text }), control);
  };
  const current = () => now.items[now.item];
  const select = make("select", {}, ...now.items.map((x, i) => make("option", { value: i, text: x.title || `Item ${i + 1}` })));
  select.addEventListener("change", () => set({ item: Number(select.value), step: 0 }));
  const slider = make("input", { type: "range", min: 0, step: 1 });
  slider.addEventListener("input", () => set({ step: Number(slider.value) }));
  const place = make("output", {});
  const boxes = [true, true].map((checked) => {
    const input = make("input", { type: "checkbox" });
    input.checked = checked;
    input.addEventListener("change", () => show());
    return input;
  });
  const [attention, truth] = boxes;

  const canvas = make("canvas");
  const mark = make("div", { className: "ps-mark" });
  const picture = make("div", { className: "ps-picture", role: "img" }, canvas, mark);
  const end = make("span", {});
  const axis = make("div", { className: "ps-axis", "aria-hidden": "true" }, make("span", { text: "0 s" }), end);
  const [said, mean] = [make("p", { className: "ps-finding", role: "status" }), make("p", { className: "ps-mean" })];
  const list = make("ol", { className: "ps-words", "aria-label": "Letters, with the weight on the time of their word" });
  let inks = "";

  /** Paint in the theme's colours, which may have changed. */
  function paint() {
    const style = getComputedStyle(root);
    const colors = [style.color, style.accentColor];
    if (colors.join() === inks) return;
    inks = colors.join();
    paintItem(canvas, current(), current().steps[now.step], colors, attention.checked);
  }

  function show() {
    const item = current();
    const step = item.steps[now.step];
    const several = item.steps.length > 1;
    select.value = now.item;
    slider.max = item.steps.length - 1;
    slider.value = now.step;
    place.textContent = `${now.step + 1} of ${item.steps.length}`;
    bar.hidden = !several;
    list.hidden = !several;
    axis.hidden = item.kind !== "sound";
    end.textContent = `${(item.milliseconds / 1000).toFixed(2)} s`;
    picture.className = `ps-picture ps-${item.kind}`;
    picture.style.aspectRatio = item.kind === "picture" ? `${item.gray[0].length} / ${item.gray.length}` : "";
    mark.hidden = !truth.checked;
    const [left, top, width, height] = placeBox(item, step);
    Object.assign(mark.style, { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` });
    const hidden = [[attention, "attention"], [truth, "true place"]].filter(([box]) => !box.checked);
    const text = [describeStep(now), ...hidden.map(([, name]) => `The ${name} is hidden.`)].join(" ");
    if (said.textContent !== text) said.textContent = text;
    mean.textContent = describeMean(item);
    picture.setAttribute("aria-label", `${item.kind === "picture" ? "Picture" : "Spectrogram: time across, low frequencies at the bottom"}. ${text}`);
    list.replaceChildren(
      ...(several ? item.steps : []).map((x, s) => {
        const { mass } = measureStep(item, x);
        const node = make("li", { className: s === now.step ? "ps-now" : "" }, make("bdi", { text: x.label }), make("span", { text: mass.toFixed(2) }));
        node.style.setProperty("--share", mass);
        node.addEventListener("click", () => set({ step: s }));
        return node;
      }),
    );
    inks = "";
    paint();
  }

  function set(parts) {
    Object.assign(now, parts);
    show();
    for (const [name, value] of Object.entries(parts)) changed(name, value);
  }
  root.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // the theme and the notebook listen to arrows too
  });

  const move = named("Letter", slider);
  move.append(place);
  const bar = make("div", { className: "ps-bar" }, move);
  root.append(
    make("div", { className: "ps-bar" }, named("Show", select)),
    make("div", { className: "ps-bar" }, named("Attention", attention), named("True place", truth)),
    bar,
    make("p", { className: "ps-label", text: "Blue: attention; stronger color: a larger weight, relative to the largest one. Dashed frame: the true place, which the model was not told." }),
    picture, axis, said, list, mean,
  );
  show();
  return watchAppearance(root, paint);
}

export default {
  render(view) {
    return bind(view, ["items", "item", "step"], build);
  },
};
