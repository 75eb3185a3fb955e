// A tick for each exercise: the reader sets it, the browser keeps it, the list
// of chapters counts it. Nothing leaves the machine.
(globalThis.requestIdleCallback ?? setTimeout)(() => {
  const KEY = "exercises";
  const all = (what) => [...document.querySelectorAll(what)];
  const read = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
      return kept && typeof kept === "object" && !Array.isArray(kept) ? kept : {};
    } catch {
      return {}; // spoiled, or no store
    }
  };
  const write = (kept) => {
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
      return true;
    } catch {
      return false;
    }
  };
  const names = (list) => (Array.isArray(list) ? list.filter((x) => typeof x === "string") : []);

  // Only the list of chapters, and the table on the first page, show counts.
  const count = () => {
    const kept = read();
    for (const row of all("[data-chapter]")) {
      const { done, of } = kept[row.dataset.chapter] ?? {};
      const ticked = names(done).length;
      row.querySelector(".ticked")?.remove();
      if (!ticked || !Number.isInteger(of)) continue;
      const mark = document.createElement("span");
      mark.className = "ticked";
      mark.textContent = `✓ ${Math.min(ticked, of)}/${of}`;
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", `${Math.min(ticked, of)} of ${of} exercises done`);
      (row.querySelector("a") ?? row).append(mark);
    }
  };

  const here = document.querySelector(".menu [data-chapter] > [aria-current=page]");
  const slug = here?.parentElement.dataset.chapter;
  const heads = all("article h3").filter((h) => /^Exercise \d/.test(h.textContent));
  const store = write(read());
  if (slug && store) {
    const ids = heads.map((h) => h.closest("section")?.id || h.textContent);
    heads.forEach((head, i) => {
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.autocomplete = "off"; // what is kept is right, not what Back remembers
      box.checked = names(read()[slug]?.done).includes(ids[i]);
      box.addEventListener("change", () => {
        const kept = read();
        const done = names(kept[slug]?.done).filter((x) => x !== ids[i] && ids.includes(x));
        if (box.checked) done.push(ids[i]);
        kept[slug] = { done, of: ids.length };
        write(kept);
        count();
      });
      label.className = "tick";
      label.append(box, " Done (kept in this browser)");
      head.after(label);
    });
  }
  count();
  addEventListener("storage", count);
});
