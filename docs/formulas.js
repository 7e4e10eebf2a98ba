// Typesets what pymdownx.arithmatex has marked, and nothing else on the page.
document.addEventListener("DOMContentLoaded", () => {
  const delimiters = [
    { left: "\\(", right: "\\)", display: false },
    { left: "\\[", right: "\\]", display: true },
  ];
  for (const formula of document.querySelectorAll(".arithmatex")) {
    renderMathInElement(formula, { delimiters });
  }
});
