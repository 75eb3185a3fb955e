// The copy buttons are drawn by a script that gives them no name.
addEventListener("load", () => {
  for (const button of document.querySelectorAll("button.copybtn"))
    button.setAttribute("aria-label", "Copy this code");
});
