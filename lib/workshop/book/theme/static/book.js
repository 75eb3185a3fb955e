// What the pages do without a widget: colours, copying, where the reader is.
(() => {
  const root = document.documentElement;
  const all = (what, inside = document) => [...inside.querySelectorAll(what)];
  const make = (tag, attributes = {}, text = "") => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };
  const stored = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem(name);
      localStorage.setItem(name, value);
    } catch {
      return null; // from file:// or in private windows there may be no store
    }
  };

  // Colours: as the system, light, dark. The pages' styles follow `data-theme`.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.querySelector(".mode-button");
  const paint = () => {
    const mode = ["light", "dark"].includes(stored("mode")) ? stored("mode") : "auto";
    root.dataset.mode = root.dataset.mode ?? mode;
    const said = { auto: "as the system", light: "light", dark: "dark" }[root.dataset.mode];
    root.dataset.theme = root.dataset.mode === "auto" ? (dark.matches ? "dark" : "light") : root.dataset.mode;
    button?.setAttribute("aria-label", `Colours: ${said}`);
    button?.setAttribute("title", `Colours: ${said}`);
  };
  button?.addEventListener("click", () => {
    const order = dark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    root.dataset.mode = order[(order.indexOf(root.dataset.mode) + 1) % 3];
    stored("mode", root.dataset.mode);
    paint();
  });
  dark.addEventListener("change", paint);
  button?.removeAttribute("hidden");
  paint();

  // Copying: a button on a cell of code.
  const said = document.body.appendChild(make("p", { class: "hidden", role: "status" }));
  const copied = async (copy, pre) => {
    try {
      await navigator.clipboard.writeText(pre.textContent.trimEnd());
      copy.textContent = said.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre); // what may not be copied can be chosen
      copy.textContent = said.textContent = "Selected";
    }
    setTimeout(() => {
      copy.textContent = "Copy";
      said.textContent = "";
    }, 2000);
  };
  const copyable = (pre) => {
    const copy = make("button", { type: "button", class: "copy", "aria-label": "Copy this code" }, "Copy");
    copy.addEventListener("click", () => copied(copy, pre));
    pre.parentElement.append(copy);
  };

  // Switches: one opens all folded code, one shows all results that predictions
  // cover. The second is remembered: who reads again needs no questions.
  const activities = document.querySelector(".activities");
  const addSwitch = (name, act) => {
    const button = activities.appendChild(make("button", { type: "button", class: "switch" }, name()));
    button.addEventListener("click", () => (act(), (button.textContent = name())));
    return () => (button.textContent = name());
  };
  const folded = all("details.folded");
  if (folded.length && activities) {
    const open = () => folded.every((one) => one.open);
    const rename = addSwitch(() => (open() ? "Fold all code" : "Show all folded code"), () => {
      const shown = !open();
      for (const one of folded) one.open = shown;
    });
    for (const one of folded) one.addEventListener("toggle", rename);
  }
  if (document.querySelector('[data-book-widget="prediction"]') && activities) {
    const data = root.dataset;
    if (stored("results") === "shown") data.results = "shown";
    addSwitch(() => (data.results === "shown" ? "Ask me to predict" : "Show all results"), () => {
      data.results = data.results === "shown" ? "covered" : "shown";
      stored("results", data.results);
    });
  }

  // What scrolls sideways can be reached and scrolled by keyboard. Far parts
  // are not laid out yet: each gets its button and is measured as it comes near.
  const met = new Set();
  const reach = (nodes) => {
    const found = nodes.map((node) => node.scrollWidth > node.clientWidth + 1); // all measured, then changed
    nodes.forEach((node, i) => (found[i] ? node.setAttribute("tabindex", 0) : node.removeAttribute("tabindex")));
  };
  const near = new IntersectionObserver((entries) => {
    const nodes = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    reach(nodes);
    for (const node of nodes) {
      near.unobserve(node);
      met.add(node);
      if (navigator.clipboard && node.matches(".cell_input pre, .highlight-bash pre")) copyable(node);
    }
  }, { rootMargin: "100%" });
  const idle = globalThis.requestIdleCallback ?? setTimeout; // a slow computer answers in between
  idle(() => {
    for (const node of all("article pre, .math-block, .table-scroll, .drawn")) near.observe(node);
  }, { timeout: 1000 });

  // A link into a page. Far parts get their heights as they come near, so that
  // the place moves while one comes to it: stay with it until it rests, or until
  // the reader moves. Who comes back by the browser's button is left where it puts them.
  let [place, frames, moved] = [null, 0, false];
  const stay = () => {
    if (frames-- <= 0) return;
    place.scrollIntoView();
    requestAnimationFrame(stay);
  };
  const land = () => {
    try {
      place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch {
      place = null; // what follows the # is no text
    }
    const resting = frames <= 0;
    frames = place ? 60 : 0;
    if (resting) stay();
  };
  for (const what of ["wheel", "touchstart", "keydown", "pointerdown"])
    addEventListener(what, () => ([frames, moved] = [0, true]), { passive: true });
  if (performance.getEntriesByType("navigation")[0]?.type === "navigate") {
    land();
    addEventListener("load", () => moved || land(), { once: true });
  }
  addEventListener("click", (event) => {
    if (event.target.closest?.('a[href^="#"]')) setTimeout(land);
  });

  // Where the reader is: the section in the list, the bar under the head.
  const bar = document.querySelector(".progress");
  const targets = new Map();
  const passed = (list) =>
    all(":scope > li > a", list ?? document.createElement("ul"))
      .filter((a) => (targets.get(a)?.getBoundingClientRect().top ?? Infinity) < innerHeight / 3)
      .at(-1);
  let [asked, now] = [false, null];
  const follow = () => {
    asked = false;
    const room = root.scrollHeight - innerHeight;
    bar?.style.setProperty("--part", room > 0 ? Math.min(1, scrollY / room) : 1);
    let next = passed(document.querySelector(".sections ul"));
    next = passed(next?.parentElement.querySelector("ul")) ?? next;
    if (next === now) return;
    now?.removeAttribute("aria-current");
    next?.setAttribute("aria-current", "true");
    now = next;
  };
  const later = () => {
    if (!asked) requestAnimationFrame(follow);
    asked = true;
  };
  idle(() => {
    for (const a of all(".sections a")) {
      targets.set(a, document.getElementById(decodeURIComponent(a.hash.slice(1))));
      a.addEventListener("click", () => document.getElementById("sections").hidePopover?.());
    }
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", () => (later(), reach([...met])), { passive: true });
    later();
  });

  // Searching: Control and K lead to the field.
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const menu = document.getElementById("menu");
    if (getComputedStyle(menu).display === "none") menu.showPopover();
    menu.querySelector("input").focus();
  });
})();
