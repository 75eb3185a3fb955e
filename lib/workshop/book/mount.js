// Mounts each widget of the page when the reader comes near it: its module from
// its script, which is loaded then, its state from the JSON beside it, its
// fallback until it stands.
(() => {
  const home = document.currentScript.src.replace(/[^/]*$/, "");
  const loads = {};
  const fetchScript = (name) => new Promise((then, fail) => {
    const script = document.createElement("script");
    script.onload = then;
    script.onerror = () => fail(new Error(`${name}.js is not there`));
    script.src = `${home}${name}.js`;
    document.head.append(script);
  });
  const load = async (name) => {
    if (!globalThis.bookModules?.[name]) await (loads[name] ??= fetchScript(name));
  };
  const modelOf = (state) => {
    const listeners = {};
    return {
      get: (key) => state[key],
      set: (key, value) => {
        state[key] = value;
        for (const f of listeners[`change:${key}`] ?? []) f();
      },
      on: (event, f) => (listeners[event] ??= []).push(f),
      off: (event, f) => {
        listeners[event] = (listeners[event] ?? []).filter((g) => g !== f);
      },
      save_changes() {},
    };
  };
  const rest = () => new Promise((then) => setTimeout(then));
  const mount = async (place) => {
    const name = place.dataset.bookWidget;
    try {
      await load(name);
      const { render } = globalThis.bookModules[name]();
      const script = place.querySelector('script[type="application/json"]');
      const state = JSON.parse(script.textContent);
      await rest(); // a slow computer answers in between
      const el = document.createElement("div");
      await render({ model: modelOf(state), el });
      await rest();
      // The fallback leaves only once the widget stands, and returns on paper.
      const fallback = document.createElement("div");
      fallback.className = "fallback";
      fallback.append(...place.childNodes);
      el.className = "live";
      place.replaceChildren(el, fallback);
      place.dataset.state = "ready";
    } catch (error) {
      console.error("widget", name, error);
      place.dataset.state = "failed";
    }
  };
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      mount(target);
    }
  }, { rootMargin: "100%" });
  document.querySelectorAll("[data-book-widget]").forEach((place) => near.observe(place));
})();
