// What several widgets use; each widget's module begins with this text.

/** The place of the largest number; numbers that are none do not count. */
export function findLargest(row) {
  let best = -1;
  row.forEach((x, i) => {
    if (Number.isFinite(x) && (best < 0 || x > row[best])) best = i;
  });
  return best;
}

/** The entropy of a row of weights, in nats; exp of it is "how many words". */
export function entropy(row) {
  const total = row.reduce((sum, x) => sum + x, 0);
  if (!(total > 0)) return 0;
  return row.reduce((sum, x) => (x > 0 ? sum - (x / total) * Math.log(x / total) : sum), 0);
}

/** A share between 0 and 1, whatever came in. */
function clampShare(x) {
  return Number.isFinite(Number(x)) ? Math.min(1, Math.max(0, Number(x))) : 0;
}

/** A number moved into a range; what is no number becomes `otherwise`. */
export function clamp(x, low, high, otherwise) {
  const number = x === null || x === "" ? NaN : Number(x);
  return Number.isFinite(number) ? Math.min(high, Math.max(low, number)) : otherwise;
}

/** A word in quotation marks; one written from right to left stays inside. */
function quote(word) {
  return /[\u0590-\u08ff\ufb1d-\ufefc]/.test(word) ? `“\u2068${word}\u2069”` : `“${word}”`;
}

/** A token as it is shown: a line break becomes a sign. */
export function showToken(token) {
  return token.replace(/\r?\n/g, "↵");
}

/** An HTML element; its text is text, never HTML. */
function make(tag, props = {}, ...children) {
  const { className, text, ...attributes } = props;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
function makeSvg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Fill the cells of a canvas with weights, in one colour. */
function fillCells(canvas, rows, ink, width, height, gap) {
  const pen = canvas.getContext("2d");
  rows.forEach((row, t) =>
    row.forEach((weight, s) => {
      pen.globalAlpha = 0.08 + 0.92 * weight;
      pen.fillStyle = ink;
      pen.fillRect(s * width, t * height, width - gap, height - gap);
    }),
  );
}

/** Paint one head's weights, in one colour; a causal map may have shorter first rows. */
function shade(canvas, rows, ink, small = false) {
  const columns = Math.max(1, ...rows.map((row) => row.length));
  const size = Math.max(2, Math.min(36, Math.floor(720 / Math.max(rows.length, columns))));
  const gap = small || size < 8 ? 0 : 2;
  Object.assign(canvas, { width: columns * size, height: rows.length * size });
  fillCells(canvas, rows, ink, size, size, gap);
}

/** Repaint an element when its size or the page's colours change; returns how to remove it. */
function watchAppearance(element, repaint) {
  const size = new ResizeObserver(repaint);
  size.observe(element);
  const theme = new MutationObserver(repaint);
  theme.observe(document.documentElement, { attributeFilter: ["data-theme", "theme"] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", repaint);
  return () => {
    size.disconnect();
    theme.disconnect();
    scheme.removeEventListener("change", repaint);
    element.remove();
  };
}

/**
 * Build a widget from its model, and again when Python changes that.
 *
 * `build(el, state, tell)` returns how to remove what it built; what it tells
 * comes from the page itself, so it needs no building anew.
 */
function bind({ model, el }, names, build) {
  let mine = false;
  let remove = () => {};
  const tell = (name, value) => {
    if (model.get(name) === value) return;
    mine = true;
    model.set(name, value);
    model.save_changes();
    mine = false;
  };
  const rebuild = () => {
    if (mine) return;
    remove();
    const state = Object.fromEntries(names.map((name) => [name, model.get(name)]));
    remove = build(el, state, tell);
  };
  rebuild();
  for (const name of names) model.on(`change:${name}`, rebuild);
  return () => {
    for (const name of names) model.off(`change:${name}`, rebuild);
    remove();
  };
}

/** A formula as rendered at build time; without that, its letters. */
function renderFormula(segment) {
  if (!segment.mathml) return make("code", { className: "math", text: segment.math });
  const parsed = new DOMParser().parseFromString(segment.mathml, "application/xml");
  const root = parsed.documentElement;
  if (root.localName !== "math" || parsed.querySelector("parsererror, script")) return make("code", { className: "math", text: segment.math });
  return document.importNode(root, true);
}

/** The pieces of a sentence: text, code and formulas. */
function renderSegments(segments) {
  return (segments ?? []).map((segment) => {
    if ("math" in segment) return renderFormula(segment);
    if ("code" in segment) return make("code", { text: segment.code });
    return document.createTextNode(segment.text ?? "");
  });
}

/**
 * Build a question: choices, a button, a line of feedback.
 *
 * `answered(chosen, feedback)` is called with the choice and that line.
 */
function buildQuestion(question, id, start, answered) {
  const box = make("fieldset", {}, make("legend", {}, start, ...renderSegments(question.prompt)));
  const feedback = make("p", { className: "quiz-feedback", role: "status" });
  const check = make("button", { type: "button", className: "quiz-check", text: "Check" });
  let chosen = null;
  // Arrow keys choose among radio buttons, so choosing alone is no answer.
  const answer = () => (chosen ? answered(chosen, feedback) : feedback.replaceChildren("Choose an answer first."));
  check.addEventListener("click", answer);
  question.choices.forEach((choice, c) => {
    const input = make("input", { type: "radio", name: id, id: `${id}-${c}` });
    input.addEventListener("change", () => {
      chosen = choice;
      feedback.className = "quiz-feedback";
      feedback.replaceChildren();
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") answer();
    });
    const label = make("label", { for: input.id }, ...renderSegments(choice.content));
    // A formula alone gives its input no name; its letters do.
    if (!choice.content?.some((part) => part.text?.trim() || part.code)) {
      input.setAttribute("aria-label", (choice.content ?? []).map((part) => part.math).join(" "));
    }
    box.append(make("div", { className: "quiz-choice" }, input, label));
  });
  box.append(make("div", { className: "quiz-answer" }, check, feedback));
  return box;
}
