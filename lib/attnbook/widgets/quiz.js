// The quiz: choose an answer, read what is right or wrong with it. The parts of
// a sentence come as data: text, code, and formulas rendered at build time.

/** Say whether the choice is right, before its own feedback. */
export function formatVerdict(choice) {
  return choice.right ? "✓ Right. " : "✗ Not this one. ";
}

/** How many questions were answered right at the first try. */
export function countFirstTries(answers) {
  return answers.filter((tries) => tries.length > 0 && tries[0]).length;
}

function renderFormula(segment) {
  if (!segment.mathml) return make("code", { className: "math", text: segment.math });
  const parsed = new DOMParser().parseFromString(segment.mathml, "application/xml");
  const root = parsed.documentElement;
  if (root.localName !== "math" || parsed.querySelector("parsererror, script")) return make("code", { className: "math", text: segment.math });
  return document.importNode(root, true);
}

function renderSegments(segments) {
  return (segments ?? []).map((segment) => {
    if ("math" in segment) return renderFormula(segment);
    if ("code" in segment) return make("code", { text: segment.code });
    return document.createTextNode(segment.text ?? "");
  });
}

export default {
  render({ model, el }) {
    const id = `quiz-${Math.random().toString(36).slice(2)}`; // a page may hold several
    const given = model.get("questions");
    const questions = (Array.isArray(given) ? given : []).filter((q) => Array.isArray(q?.choices));
    const answers = questions.map(() => []);
    const root = make("section", { className: "book-widget quiz-live", "aria-label": model.get("title") ?? "Quiz" });
    const score = make("p", { className: "quiz-score", role: "status" });
    root.append(make("p", { className: "quiz-title", text: model.get("title") ?? "Quiz" }));
    questions.forEach((question, q) => {
      const box = make("fieldset", {}, make("legend", {}, `${q + 1}. `, ...renderSegments(question.prompt)));
      const feedback = make("p", { className: "quiz-feedback", role: "status" });
      const check = make("button", { type: "button", className: "quiz-check", text: "Check" });
      let chosen = null;
      // Arrow keys choose among radio buttons, so choosing alone is no answer.
      const answer = () => {
        if (!chosen) return feedback.replaceChildren("Choose an answer first.");
        answers[q].push(Boolean(chosen.right));
        feedback.className = `quiz-feedback ${chosen.right ? "quiz-right" : "quiz-not"}`;
        feedback.replaceChildren(formatVerdict(chosen), ...renderSegments(chosen.feedback));
        if (!answers.every((tries) => tries.includes(true))) return;
        score.textContent = `All answered; ${countFirstTries(answers)} of ${questions.length} right at the first try.`;
      };
      check.addEventListener("click", answer);
      question.choices.forEach((choice, c) => {
        const input = make("input", { type: "radio", name: `${id}-${q}`, id: `${id}-${q}-${c}` });
        input.addEventListener("change", () => {
          chosen = choice;
          feedback.className = "quiz-feedback";
          feedback.replaceChildren();
        });
        input.addEventListener("keydown", (event) => {
          if (event.key === "Enter") answer();
        });
        const label = make("label", { for: input.id }, ...renderSegments(choice.content));
        box.append(make("div", { className: "quiz-choice" }, input, label));
      });
      box.append(make("div", { className: "quiz-answer" }, check, feedback));
      root.append(box);
    });
    root.append(score);
    el.append(root);
    return () => root.remove();
  },
};
