// Mounts every widget of the page: its module from a string, its state from the
// JSON beside it, its fallback until it stands.
(() => {
  const modules = globalThis.bookModules ?? {};
  const importText = async (text) => {
    const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    try {
      return (await import(url)).default;
    } finally {
      URL.revokeObjectURL(url);
    }
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
  const mount = async (place) => {
    const name = place.dataset.bookWidget;
    try {
      const { render } = await importText(modules[name]);
      const script = place.querySelector('script[type="application/json"]');
      const el = document.createElement("div");
      await render({ model: modelOf(JSON.parse(script.textContent)), el });
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
  document.querySelectorAll("[data-book-widget]").forEach(mount);
})();
