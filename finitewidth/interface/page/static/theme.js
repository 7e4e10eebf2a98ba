// Light or dark: what was chosen here before, otherwise what the system prefers. Runs before anything is drawn.
{
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("finitewidth-theme");
  const show = () => { document.documentElement.dataset.theme = chosen() || (system.matches ? "dark" : "light"); };
  system.addEventListener("change", () => { show(); document.dispatchEvent(new Event("themechange")); });
  document.addEventListener("switchtheme", () => {
    localStorage.setItem("finitewidth-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    show();
    document.dispatchEvent(new Event("themechange"));
  });
  show();
}
