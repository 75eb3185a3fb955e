// Two libraries are chosen; the lines show how a mask of one becomes the other's.
(() => {
  const form = document.querySelector(".mask-choice");
  const { libraries, conventions, read, written } = JSON.parse(form.dataset.masks);
  const [from, to] = form.querySelectorAll("select");
  const lines = form.querySelector("pre");
  const isBoolean = (convention) => ["keep", "drop"].includes(convention);
  const taken = (name) => libraries[name] ?? [name];

  const write = (given, wanted) => {
    if (given === wanted) return "mask.clone()";
    return written[wanted].replace("{}", read[given]).replace("(mask)", "mask");
  };
  const show = () => {
    const [given, wanted] = [from.value, to.value];
    const text = [`converted = convert_mask(mask, given="${given}", wanted="${wanted}")`];
    for (const one of taken(given)) {
      text.push(`# the same in plain PyTorch, if the mask is ${isBoolean(one) ? "boolean" : "numbers"}`);
      text.push(`converted = ${write(one, taken(wanted)[0])}`);
    }
    lines.textContent = text.join("\n");
  };
  for (const select of [from, to]) {
    const groups = { "This book": ["keep"], Libraries: Object.keys(libraries) };
    groups.Conventions = Object.keys(conventions).filter((name) => name !== "keep");
    for (const [label, names] of Object.entries(groups)) {
      const group = select.appendChild(document.createElement("optgroup"));
      group.label = label;
      for (const name of names) group.append(new Option(label === "This book" ? "this book" : name, name));
    }
    select.addEventListener("change", show);
  }
  from.value = "torch nn.MultiheadAttention";
  show();
  form.hidden = false;
})();
