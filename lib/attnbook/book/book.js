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

  // Copying: a button on every cell of code.
  const said = document.body.appendChild(make("p", { class: "hidden", role: "status" }));
  const copied = async (copy, pre) => {
    await navigator.clipboard.writeText(pre.textContent.trimEnd());
    copy.textContent = said.textContent = "Copied";
    setTimeout(() => {
      copy.textContent = "Copy";
      said.textContent = "";
    }, 2000);
  };
  for (const pre of navigator.clipboard ? all(".cell_input pre, .highlight-bash pre") : []) {
    const copy = make("button", { type: "button", class: "copy", "aria-label": "Copy this code" }, "Copy");
    copy.addEventListener("click", () => copied(copy, pre));
    pre.parentElement.append(copy);
  }

  // What scrolls sideways can be reached and scrolled by keyboard.
  const reach = () => {
    const wide = (node) => node.scrollWidth > node.clientWidth + 1;
    const places = all("article pre, .math-block, .pst-scrollable-table-container");
    const found = places.map(wide); // all measured before anything is changed
    places.forEach((node, i) => (found[i] ? node.setAttribute("tabindex", 0) : node.removeAttribute("tabindex")));
  };

  // Where the reader is: the section in the list, the bar under the head.
  const links = all(".sections a");
  const targets = links.map((a) => document.getElementById(decodeURIComponent(a.hash.slice(1))));
  const bar = document.querySelector(".progress");
  let asked = false;
  const follow = () => {
    asked = false;
    const tops = targets.map((t) => t?.getBoundingClientRect().top ?? Infinity);
    const room = root.scrollHeight - innerHeight;
    const part = room > 0 ? Math.min(1, scrollY / room) : 1;
    const now = part === 1 ? links.length - 1 : tops.findLastIndex((top) => top < innerHeight / 3);
    bar?.style.setProperty("--part", part);
    links.forEach((a, i) => (i === now ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current")));
  };
  const later = () => {
    if (!asked) requestAnimationFrame(follow);
    asked = true;
  };
  addEventListener("scroll", later, { passive: true });
  addEventListener("resize", () => (later(), reach()), { passive: true });
  addEventListener("load", () => (later(), reach()));
  for (const a of links) a.addEventListener("click", () => document.getElementById("sections").hidePopover?.());

  // Searching: Control and K lead to the field.
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const menu = document.getElementById("menu");
    if (getComputedStyle(menu).display === "none") menu.showPopover();
    menu.querySelector("input").focus();
  });
})();
