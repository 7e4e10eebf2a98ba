// Tooltips: a button beside a symbol, which shows a sentence and a link on hover, on focus and when it is tapped.

let symbols = {}, count = 0;

export function setSymbols(table) { symbols = table; }

export function help(name, label) {
  const { sign, sentence, more } = symbols[name];
  const about = document.createElement("span"), button = document.createElement("button"), tip = document.createElement("span"), link = document.createElement("a");
  about.className = "about";
  button.type = "button";
  button.className = "help";
  button.textContent = "?";
  button.title = sentence;
  button.setAttribute("aria-label", `About ${label || sign}`);
  tip.className = "tip";
  tip.id = `tip-${count += 1}`;
  tip.setAttribute("role", "tooltip");
  button.setAttribute("aria-describedby", tip.id);
  tip.append(`${sign}: ${sentence} `, link);
  link.href = more;
  link.target = "_blank";
  link.textContent = "More";
  link.setAttribute("aria-label", `More about ${sign}`);
  about.append(button, tip);
  const show = () => place(button, tip), hide = () => tip.classList.remove("shown");
  about.addEventListener("mouseenter", () => { button.removeAttribute("title"); show(); });  // not two of them
  about.addEventListener("mouseleave", () => { button.title = sentence; hide(); });
  about.addEventListener("focusin", show);
  // Tab leads from the button to the link inside the tip, which must stay there
  about.addEventListener("focusout", (event) => { if (!about.contains(event.relatedTarget)) hide(); });
  about.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (document.activeElement === link) button.focus();
    hide();
  });
  button.addEventListener("click", show);
  return about;
}

// inside the window, below the button or above it
function place(button, tip) {
  tip.classList.add("shown");
  const at = button.getBoundingClientRect(), size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left - 8, window.innerWidth - size.width - 8))}px`;
  tip.style.top = `${at.bottom + size.height > window.innerHeight ? at.top - size.height : at.bottom}px`;
}

// the symbols of a plot, each with its tooltip, in a line below it
export function explain(line) {
  line.replaceChildren(...line.dataset.symbols.split(" ").map((name) => {
    const entry = document.createElement("span");
    entry.append(symbols[name].sign, help(name));
    return entry;
  }));
}
