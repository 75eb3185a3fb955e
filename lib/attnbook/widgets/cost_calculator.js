// The cost calculator. Pure functions first: a test holds them to the library.

const PHASES = ["prefill", "train", "decode"];
const NAMES = { prefill: "prefill", train: "training step", decode: "decoding step" };
const ITEMSIZES = { 4: "float32", 2: "16-bit floats" };
const LONGEST = 21; // as a power of two
const UNITS = ["", "k", "M", "G", "T", "P", "E"];

/** The bytes of queries, keys, values (as wide as keys), scores and output. */
export function countSizes(block, B, T, S, itemsize) {
  const query = B * block.H * T * block.D * itemsize;
  const key = B * block.G * S * block.D * itemsize;
  return { query, key, value: key, scores: B * block.H * T * S * itemsize, output: query };
}

/** Operations and bytes of each step of the forward pass. */
export function countForward(block, B, T, S, itemsize) {
  const [n, z] = [B * block.H * T, countSizes(block, B, T, S, itemsize)];
  const product = 2 * n * S * block.D;
  return [
    [n * block.D, 2 * z.query],
    [product, z.query + z.key + z.scores],
    [5 * n * S, 2 * z.scores],
    [product, z.scores + z.value + z.output],
  ];
}

/** Operations and bytes of each step of the backward pass. */
export function countBackward(block, B, T, S, itemsize) {
  const [n, z] = [B * block.H * T, countSizes(block, B, T, S, itemsize)];
  const product = 2 * n * S * block.D;
  return [
    [product, z.scores + z.output + z.value],
    [product, z.output + z.value + z.scores],
    [4 * n * S, 3 * z.scores],
    [product, z.scores + z.key + z.query],
    [product, z.scores + z.query + z.key],
    [n * block.D, 2 * z.query],
  ];
}

/** Operations and bytes of all in one step, forwards and (if training) back. */
export function countFused(block, B, T, S, itemsize, training) {
  const [n, z] = [B * block.H * T, countSizes(block, B, T, S, itemsize)];
  const inputs = z.query + z.key + z.value;
  const there = [4 * n * S * block.D + 5 * n * S + n * block.D, inputs + z.output];
  const back = [10 * n * S * block.D + 9 * n * S, 2 * inputs + 2 * z.output + 4 * n];
  return training ? [there, back] : [there];
}

/** The weights of a block's linear layers. */
export function countWeights(block) {
  return 2 * block.C * block.D * (block.H + block.G) + (block.gated ? 3 : 2) * block.C * block.hidden;
}

/** What one layer's attention costs: the library's `calculate`. */
export function calculate(block, machine, phase, B, n, itemsize) {
  const T = phase === "decode" ? 1 : n;
  const training = phase === "train";
  const z = countSizes(block, B, T, n, itemsize);
  const steps = countForward(block, B, T, n, itemsize);
  if (training) steps.push(...countBackward(block, B, T, n, itemsize));
  const whole = countFused(block, B, T, n, itemsize, training);
  const sum = (rows, i) => rows.reduce((all, row) => all + row[i], 0);
  const time = (rows) => rows.reduce((all, [f, b]) => all + Math.max(f / machine.flops, b / machine.bandwidth), 0);
  const passes = training ? 3 : 1;
  const products = 4 * B * block.H * T * n * block.D * passes;
  const others = 2 * countWeights(block) * B * T * passes;
  const softmax = 3 * z.scores + z.query + z.value + z.output;
  const last = z.scores + 2 * z.query + z.key + z.value + z.output;
  const gradients = 4 * B * block.H * T + z.query + z.key + z.value;
  return {
    flops: sum(steps, 0),
    flops_fused: sum(whole, 0),
    bytes: sum(steps, 1),
    bytes_fused: sum(whole, 1),
    memory: training ? Math.max(softmax, last) : z.scores + Math.max(z.query, z.scores, z.output),
    memory_fused: z.output + (training ? gradients : 0),
    cache: 2 * block.L * B * block.G * n * block.D * itemsize,
    seconds: time(steps),
    seconds_fused: time(whole),
    others,
    share: products / (products + others),
  };
}

/** A number in three digits, with a unit that fits. */
export function formatNumber(x, unit) {
  let power = 0;
  while (x >= 999.5 && power < UNITS.length - 1) [x, power] = [x / 1000, power + 1];
  const digits = x >= 99.95 || x === 0 ? 0 : x >= 9.995 ? 1 : 2;
  return `${x.toFixed(digits)} ${UNITS[power]}${unit}`.trim();
}

/** A time in three digits, with a unit that fits. */
export function formatDuration(seconds) {
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (seconds >= size) return `${formatNumber(seconds / size, "")} ${unit}`;
  }
  return `${formatNumber(seconds * 1e9, "")} ns`;
}

/** The numbers that divide a number of heads. */
export function listDivisors(heads) {
  return Array.from({ length: heads }, (_, i) => i + 1).filter((x) => heads % x === 0);
}

/** A whole number in a range; what is no number becomes `otherwise`. */
export function clampInteger(x, low, high, otherwise) {
  return Math.round(clamp(x, low, high, otherwise));
}

function readPositive(x, otherwise) {
  const number = Number(x);
  return Number.isFinite(number) && number > 0 && number < 1e30 ? number : otherwise;
}

/** A state that can be counted, whatever came in. */
export function cleanState(given) {
  const list = (x) => (Array.isArray(x) ? x : []).filter((y) => y && typeof y === "object" && y.name);
  const models = list(given?.models).map((x) => ({
    name: String(x.name), gated: x.gated === true, source: String(x.source ?? ""),
    C: clampInteger(x.C, 1, 1e6, 1), H: clampInteger(x.H, 1, 1024, 1), G: clampInteger(x.G, 1, 1024, 1), D: clampInteger(x.D, 1, 1e5, 1),
    hidden: clampInteger(x.hidden, 1, 1e7, 1), L: clampInteger(x.L, 1, 1e5, 1), length: clampInteger(x.length, 1, 2 ** LONGEST, 1),
  }));
  const devices = list(given?.devices).map((x) => ({
    name: String(x.name), source: String(x.source ?? ""), bandwidth: readPositive(x.bandwidth, 1),
    memory: readPositive(x.memory, 1), rates: { 2: readPositive(x.rates?.[2], 1), 4: readPositive(x.rates?.[4], 1) },
  }));
  for (const model of models) if (model.H % model.G) model.G = model.H;
  const known = (all, name) => (all.find((x) => x.name === name) ?? all[0])?.name ?? "";
  const heads = clampInteger(given?.heads, 1, 1024, 1);
  const groups = clampInteger(given?.groups, 1, 1024, heads);
  return {
    models, devices, heads,
    groups: heads % groups ? heads : groups,
    model: known(models, given?.model),
    device: known(devices, given?.device),
    phase: PHASES.includes(given?.phase) ? given.phase : "prefill",
    n: clampInteger(given?.n, 1, 2 ** LONGEST, 1024),
    batch: clampInteger(given?.batch, 1, 4096, 1),
    itemsize: Number(given?.itemsize) === 2 ? 2 : 4,
  };
}

/** The numbers of a cleaned state. */
export function computeCosts(state) {
  const model = state.models.find((x) => x.name === state.model);
  const device = state.devices.find((x) => x.name === state.device);
  const machine = { flops: device.rates[state.itemsize], bandwidth: device.bandwidth };
  const block = { ...model, H: state.heads, G: state.groups };
  return { ...calculate(block, machine, state.phase, state.batch, state.n, state.itemsize), ridge: machine.flops / machine.bandwidth, device };
}

/** The rows of the table: what, step by step, in one. */
export function formatRows(found) {
  const both = (name, say) => [say(found[name]), say(found[`${name}_fused`])];
  return [
    ["operations", ...both("flops", (x) => formatNumber(x, "FLOP"))],
    ["bytes moved", ...both("bytes", (x) => formatNumber(x, "B"))],
    ["operations per byte", formatNumber(found.flops / found.bytes, ""), formatNumber(found.flops_fused / found.bytes_fused, "")],
    ["peak memory", ...both("memory", (x) => formatNumber(x, "B"))],
    ["time, at least", ...both("seconds", formatDuration)],
  ];
}

/** What the numbers mean, in words. */
export function describeCosts(state, found) {
  const name = (x) => (x < found.ridge ? "memory-bound" : "compute-bound");
  const ways = ["", "_fused"].map((x) => name(found[`flops${x}`] / found[`bytes${x}`]));
  const limit =
    ways[0] === ways[1]
      ? `Both ways are ${ways[0]}`
      : `Step by step it is ${ways[0]}, fused it is ${ways[1]}`;
  const ratio = found.seconds / found.seconds_fused;
  const faster = ratio < 1.05 ? "as long, at best" : `${ratio < 9.95 ? ratio.toFixed(1) : ratio.toFixed(0)} times as long, at best`;
  const fits = found.memory > found.device.memory ? ` One layer's scores alone need more than the ${formatNumber(found.device.memory, "B")} there are.` : "";
  return `${limit} (the ridge point of this device is ${formatNumber(found.ridge, "")} operations per byte). Step by step takes ${faster}.${fits}`;
}

/** Build the widget in `el`; `changed` is told of every part the reader sets. */
function build(el, given, changed) {
  const id = `cost-calculator-${Math.random().toString(36).slice(2)}`; // a page may hold several
  const first = cleanState(given);
  const now = cleanState(given);
  const root = make("div", { className: "book-widget cc", role: "group", "aria-label": "Cost calculator" });
  el.append(root);
  if (!now.models.length || !now.devices.length) {
    root.append(make("p", { text: `There is no ${now.models.length ? "device" : "model"} to count for.` }));
    return () => root.remove();
  }
  const row = (name, text, input, ...more) => {
    input.id = `${id}-${name}`;
    const label = make("label", { for: input.id, text });
    input.addEventListener("keydown", (event) => event.stopPropagation()); // the theme listens to arrows too
    return make("div", { className: "cc-control" }, label, input, ...more);
  };
  const choice = (entries) => make("select", {}, ...entries.map(([value, text]) => make("option", { value, text })));
  const fill = (select, values) => select.replaceChildren(...values.map((x) => make("option", { value: x, text: x })));
  const model = choice(now.models.map((x) => [x.name, x.name]));
  const device = choice(now.devices.map((x) => [x.name, x.name]));
  const phase = choice(PHASES.map((x) => [x, NAMES[x]]));
  const dtype = choice([4, 2].map((x) => [x, ITEMSIZES[x]]));
  const heads = choice([]);
  const groups = choice([]);
  const slider = (high) => [make("input", { type: "range", min: 0, max: high, step: 1 }), make("output", {})];
  const [length, lengthShown] = slider(LONGEST);
  const [batch, batchShown] = slider(9);
  const again = make("button", { type: "button", className: "cc-again", text: "Start again" });
  const controls = make(
    "div", { className: "cc-controls" },
    row("model", "Model", model), row("device", "Device", device), row("phase", "Phase", phase),
    row("length", "Length n", length, lengthShown), row("batch", "Batch B", batch, batchShown),
    row("heads", "Heads H", heads), row("groups", "Key-value heads G", groups), row("dtype", "Numbers", dtype),
    make("div", { className: "cc-control" }, again),
  );
  const cells = formatRows(computeCosts(now)).map(([name]) => {
    const parts = [make("td"), make("td")];
    return { parts, line: make("tr", {}, make("th", { scope: "row", text: name }), ...parts) };
  });
  const heading = (text) => make("th", { scope: "col", text });
  const table = make(
    "table", { className: "cc-rows", "aria-label": "What one layer's attention costs" },
    make("thead", {}, make("tr", {}, heading("one layer"), heading("step by step"), heading("fused"))),
    make("tbody", {}, ...cells.map((x) => x.line)),
  );
  const beside = make("p", { className: "cc-label" });
  const finding = make("p", { className: "cc-finding", role: "status" });
  const sources = make("p", { className: "cc-label cc-sources" });

  const link = (text, source) =>
    source.startsWith("https://") ? make("a", { href: source, text, rel: "noopener" }) : make("bdi", { text });

  function show() {
    const found = computeCosts(now);
    const [chosen, on] = [now.models.find((x) => x.name === now.model), found.device];
    fill(heads, [...new Set([1, 2, 4, 8, 12, 16, 32, 64, 128, chosen.H, now.heads])].sort((a, b) => a - b));
    fill(groups, listDivisors(now.heads));
    for (const [select, value] of [[model, now.model], [device, now.device], [phase, now.phase], [dtype, now.itemsize], [heads, now.heads], [groups, now.groups]]) {
      select.value = value;
    }
    length.value = Math.log2(now.n);
    batch.value = Math.log2(now.batch);
    lengthShown.textContent = now.n;
    batchShown.textContent = now.batch;
    length.setAttribute("aria-valuetext", `${now.n} positions`);
    batch.setAttribute("aria-valuetext", `${now.batch} sequences`);
    formatRows(found).forEach(([, ...texts], i) => texts.forEach((text, j) => (cells[i].parts[j].textContent = text)));
    beside.textContent =
      `Heads are ${chosen.D} wide. Keys and values of all ${chosen.L} layers: ${formatNumber(found.cache, "B")}. ` +
      `Attention is ${(100 * found.share).toFixed(0)} % of the block's products.`;
    const text = describeCosts(now, found);
    if (finding.textContent !== text) finding.textContent = text;
    sources.replaceChildren("Sizes: ", link(chosen.name, chosen.source), "; ceilings as stated: ", link(on.name, on.source), ".");
  }

  const set = (parts) => {
    for (const [name, value] of Object.entries(parts)) now[name] = value;
    show();
    for (const [name, value] of Object.entries(parts)) changed(name, value);
  };
  model.addEventListener("change", () => {
    const chosen = now.models.find((x) => x.name === model.value);
    set({ model: chosen.name, heads: chosen.H, groups: chosen.G });
  });
  device.addEventListener("change", () => set({ device: device.value }));
  phase.addEventListener("change", () => set({ phase: phase.value }));
  dtype.addEventListener("change", () => set({ itemsize: Number(dtype.value) }));
  heads.addEventListener("change", () => {
    const count = Number(heads.value);
    set({ heads: count, groups: count % now.groups ? count : now.groups });
  });
  groups.addEventListener("change", () => set({ groups: Number(groups.value) }));
  length.addEventListener("input", () => set({ n: 2 ** Number(length.value) }));
  batch.addEventListener("input", () => set({ batch: 2 ** Number(batch.value) }));
  again.addEventListener("click", () => {
    const { model: name, device: on, phase: does, n, batch: texts, heads: count, groups: shared, itemsize } = first;
    set({ model: name, device: on, phase: does, n, batch: texts, heads: count, groups: shared, itemsize });
  });
  const note = make("p", {
    className: "cc-label",
    text:
      "Step by step: each step reads and writes memory. Fused: scores never leave the chip; training computes them " +
      "once more. Nothing is masked out. No program reaches the ceilings, so these are bounds.",
  });
  root.append(make("div", { className: "cc-grid" }, controls, make("div", { className: "cc-side" }, table, beside, finding, sources), note));
  show();
  return () => root.remove();
}

export default {
  render(view) {
    return bind(view, ["models", "devices", "model", "device", "phase", "n", "batch", "heads", "groups", "itemsize"], build);
  },
};
