// A prediction: what the reader expects, asked before the result is shown. The
// output of the next cell is covered until it is answered or skipped.

/** Say how a number that was predicted compares with the result. */
export function compareNumbers(predicted, measured, unit) {
  const shown = (x) => `${x}${unit ? ` ${unit}` : ""}`;
  return `You predicted ${shown(predicted)}; the result is ${shown(measured)}.`;
}

/** The output of the next cell of the section that has one; none if that is a widget. */
export function findCovered(cell) {
  const after = [...(cell?.parentElement.children ?? [])].filter((one) => cell.compareDocumentPosition(one) & 4);
  const output = after.map((one) => one.querySelector(":scope > .cell_output")).find(Boolean);
  return output?.querySelector("[data-book-widget]") ? null : output;
}

function buildSlider(question, id, answered) {
  const input = make("input", { type: "range", id, min: question.low, max: question.high, step: question.step });
  input.value = (question.low + question.high) / 2;
  const shown = make("output", { for: id });
  const show = () => (shown.textContent = `${input.value}${question.unit ? ` ${question.unit}` : ""}`);
  input.addEventListener("input", show);
  show();
  const feedback = make("p", { className: "quiz-feedback", role: "status" });
  const check = make("button", { type: "button", className: "quiz-check", text: "Check" });
  check.addEventListener("click", () => answered(Number(input.value), feedback));
  const label = make("label", { for: id }, ...renderSegments(question.prompt));
  return make(
    "div",
    { className: "prediction-slider" },
    make("p", { className: "prediction-prompt" }, label),
    make("div", { className: "quiz-choice" }, input, shown),
    make("div", { className: "quiz-answer" }, check, feedback),
  );
}

export default {
  render({ model, el }) {
    const id = `prediction-${Math.random().toString(36).slice(2)}`;
    const question = model.get("question") ?? {};
    const root = make("section", { className: "book-widget quiz-live prediction", "aria-label": "Predict first" });
    const note = make("p", { className: "prediction-note" });
    const skip = make("button", { type: "button", className: "quiz-check", text: "Skip" });
    let covered = null;
    const uncover = () => {
      covered?.classList.remove("covered");
      covered = null;
      note.hidden = true;
    };
    const answered = (words, right, feedback) => {
      feedback.className = `quiz-feedback ${right === undefined ? "" : right ? "quiz-right" : "quiz-not"}`;
      feedback.replaceChildren(...words);
      uncover();
    };
    root.append(make("p", { className: "quiz-title", text: "Predict first" }));
    if (Array.isArray(question.choices)) {
      const verdict = (chosen, feedback) => {
        const start = chosen.right ? "✓ That is what we measured. " : "✗ We measured something else. ";
        answered([start, ...renderSegments(chosen.feedback)], Boolean(chosen.right), feedback);
      };
      root.append(buildQuestion(question, id, "", verdict));
    } else {
      const verdict = (value, feedback) => answered([compareNumbers(value, question.measured, question.unit)], undefined, feedback);
      root.append(buildSlider(question, id, verdict));
    }
    note.append("The result below is covered until you answer. ", skip);
    root.append(note);
    el.append(root);
    skip.addEventListener("click", () => {
      uncover();
      root.querySelector("input")?.focus({ preventScroll: true });
    });
    // The page takes the widget in only after it has been built.
    const cover = (tries) => {
      if (!root.isConnected && tries > 0) return setTimeout(cover, 10, tries - 1);
      covered = findCovered(root.closest(".cell"));
      if (covered) covered.classList.add("covered");
      else uncover();
    };
    setTimeout(cover, 0, 100);
    return () => {
      uncover();
      root.remove();
    };
  },
};
