// How a plot is drawn: styles come from the server, so that a figure of the library and one of the page look
// alike. Every plot is one SVG with its title and legend inside, and can be saved as it is.

let look = {};

export function setLook(roles) { look = roles; }
export const style = (role) => look[role];

export function line(role) {
  const style = look[role];
  return { stroke: style.color, strokeWidth: style.linewidth, strokeDasharray: style.dashes ? style.dashes.join(" ") : null };
}

export function rows(columns) {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])))
    .filter((row) => names.every((name) => row[name] !== null));
}

// the same with holes where a number does not exist, such as the root of a variance below zero
export function withHoles(columns) {
  if (!columns) return [];
  const names = Object.keys(columns);
  return columns.x.map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i] ?? NaN])));
}

// data that vary by less than a hundredth are constant to the eye: no axis may enlarge what means nothing
const CONSTANT = 0.01;
const isConstant = ([low, high]) => high - low < CONSTANT * Math.max(Math.abs(low), Math.abs(high)) || high === low;

export function padded(values, logarithmic) {
  const [low, high] = d3.extent(values.filter(Number.isFinite));
  if (low === undefined) return undefined;
  if (isConstant([low, high])) {
    if (logarithmic) return [low / 2, high * 2];
    return low === 0 && high === 0 ? [-0.5, 0.5] : d3.extent([0, 1.5 * low, 1.5 * high]);
  }
  return logarithmic ? [low, high] : [low - 0.06 * (high - low), high + 0.06 * (high - low)];
}

// "constant: 3.56", for the title of a plot whose curves are level
export function constancy(values) {
  const [low, high] = d3.extent(values.filter(Number.isFinite));
  return low !== undefined && isConstant([low, high]) ? ` (constant: ${Number(((low + high) / 2).toPrecision(3))})` : "";
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const ENTRY = 215;  // pixels of a legend entry

// a plot without data is not drawn: one sentence says why
export function blank(place, why) {
  place.dataset.empty = why;
  place.replaceChildren();
  place.classList.remove("stale");
}

// `table` has the rows of every curve by its name, for the file of numbers
export function drawn(place, { title, legend, note, marks, table, x, y, height = 300, marginRight = 16 }) {
  const width = Math.max(280, place.clientWidth);
  // legend entries flow in rows above the data
  const perRow = Math.max(1, Math.floor((width - 20) / ENTRY));
  const rowCount = Math.ceil(legend.length / perRow);
  const marginTop = 44 + 18 * rowCount;
  const svg = Plot.plot({
    width, height: height + 18 * rowCount, marginTop, marginLeft: 58, marginRight, marginBottom: 42,
    style: { fontFamily: '"DejaVu Sans", sans-serif', fontSize: "12px", background: colour("--card"), color: colour("--ink") },
    x: { labelArrow: "none", labelAnchor: "center", grid: true, ...x },
    y: { labelArrow: "none", grid: true, ticks: 8, ...y, label: null },
    marks,
  });
  const top = d3.select(svg);
  // names of marks are no names for a reader of the screen: the plot is one picture with one name
  top.selectAll("g[aria-label]").each(function rename() { this.dataset.mark = this.getAttribute("aria-label"); this.removeAttribute("aria-label"); });
  top.attr("xmlns", "http://www.w3.org/2000/svg").attr("role", "img").attr("aria-label", title);
  top.append("text").attr("x", 4).attr("y", 15).attr("text-anchor", "start").attr("font-weight", "bold").attr("font-size", 13).attr("fill", "currentColor").text(title);
  legend.forEach((entry, i) => {
    const g = top.append("g").attr("transform", `translate(${8 + (i % perRow) * ENTRY}, ${37 + 18 * Math.floor(i / perRow)})`);
    swatch(g, entry);
    g.append("text").attr("x", 34).attr("y", 4).attr("text-anchor", "start").attr("font-size", 12).attr("fill", "currentColor").text(entry.label);
  });
  place.replaceChildren(svg, saveButtons(svg, place.id, title, table));
  place.classList.remove("stale");
  if (note) top.append("text").attr("x", width / 2).attr("y", marginTop + 60).attr("text-anchor", "middle").attr("fill", "currentColor").text(note);
}

function swatch(g, { role, band, symbol }) {
  const style = look[role];
  if (band) g.append("rect").attr("x", 0).attr("y", -6).attr("width", 28).attr("height", 12).attr("fill", look[band].color).attr("fill-opacity", look[band].alpha);
  if (!symbol || symbol.withLine) {
    g.append("line").attr("x1", 0).attr("x2", 28).attr("stroke", style.color).attr("stroke-width", style.linewidth)
      .attr("stroke-dasharray", style.dashes ? style.dashes.join(" ") : null);
  }
  if (symbol) g.append("path").attr("transform", "translate(14, 0)").attr("d", d3.symbol(symbol.type, 42)()).attr("fill", style.color);
}

function saveButtons(svg, name, title, table) {
  const box = document.createElement("span"), text = () => '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(svg);
  box.className = "save";
  const add = (kind, about, make) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.setAttribute("aria-label", `${about}: ${title}`);
    button.addEventListener("click", async () => download(await make(), `finitewidth-${name}.${kind.toLowerCase()}`));
    box.append(button);
  };
  add("SVG", "SVG of the plot", () => new Blob([text()], { type: "image/svg+xml" }));
  add("PNG", "PNG of the plot", () => pixels(svg, text()));
  if (table) add("CSV", "CSV of the plot", () => new Blob([csv(table)], { type: "text/csv" }));
  return box;
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// twice as many pixels as on the screen
async function pixels(svg, text) {
  const image = new Image(), canvas = document.createElement("canvas"), { width, height } = svg.viewBox.baseVal;
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  URL.revokeObjectURL(image.src);
  Object.assign(canvas, { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function csv(table) {
  const series = Object.entries(table).filter(([, data]) => data.length);
  const columns = [...new Set(series.flatMap(([, data]) => Object.keys(data[0])))];
  const lines = series.flatMap(([name, data]) => data.map((row) => [`"${name}"`, ...columns.map((column) => row[column] ?? "")].join(",")));
  return `${["series", ...columns].join(",")}\n${lines.join("\n")}\n`;
}

export const DOT = { type: d3.symbolCircle };

// a mean and one standard deviation on both sides
export function bandAndLine(data, role, curve) {
  const style = look[`${role}, band`];
  return [
    Plot.areaY(data, { x: "x", y1: (d) => d.mean - d.std, y2: (d) => d.mean + d.std, fill: style.color, fillOpacity: style.alpha, curve, clip: true }),
    Plot.lineY(data, { x: "x", y: "mean", ...line(role), curve, clip: true }),
  ];
}

// dots of networks, with two standard errors on both sides
export function withErrors(data, value, error, role = "sampled networks", symbol = "circle") {
  const { color, linewidth } = look[role];
  return [
    Plot.ruleX(data, { x: "x", y1: (d) => value(d) - 2 * error(d), y2: (d) => value(d) + 2 * error(d), stroke: color, strokeWidth: linewidth, clip: true }),
    Plot.dot(data, { x: "x", y: value, fill: color, symbol, clip: true, r: symbol === "circle" ? 3 : 4.5 }),
  ];
}
