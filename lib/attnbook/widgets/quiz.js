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
      const answered = (chosen, feedback) => {
        answers[q].push(Boolean(chosen.right));
        feedback.className = `quiz-feedback ${chosen.right ? "quiz-right" : "quiz-not"}`;
        feedback.replaceChildren(formatVerdict(chosen), ...renderSegments(chosen.feedback));
        if (!answers.every((tries) => tries.includes(true))) return;
        score.textContent = `All answered; ${countFirstTries(answers)} of ${questions.length} right at the first try.`;
      };
      root.append(buildQuestion(question, `${id}-${q}`, `${q + 1}. `, answered));
    });
    root.append(score);
    el.append(root);
    return () => root.remove();
  },
};
