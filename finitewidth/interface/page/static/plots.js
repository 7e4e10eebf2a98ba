// The plots: numbers and styles come from the server, so that a figure of the library and one of the page
// look alike. Every plot is one SVG with its title and legend inside, and can be saved as it is.

let look = {};

export function setLook(roles) { look = roles; }

function line(role) {
  const style = look[role];
  return { stroke: style.color, strokeWidth: style.linewidth, strokeDasharray: style.dashes ? style.dashes.join(" ") : null };
}

function rows(columns) {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])))
    .filter((row) => names.every((name) => row[name] !== null));
}

// the same with holes where a number does not exist, such as the root of a variance below zero
function withHoles(columns) {
  if (!columns) return [];
  const names = Object.keys(columns);
  return columns.x.map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i] ?? NaN])));
}

// data that vary by less than a hundredth are constant to the eye: no axis may enlarge what means nothing
const CONSTANT = 0.01;
const isConstant = ([low, high]) => high - low < CONSTANT * Math.max(Math.abs(low), Math.abs(high)) || high === low;

function padded(values, logarithmic) {
  const [low, high] = d3.extent(values.filter(Number.isFinite));
  if (low === undefined) return undefined;
  if (isConstant([low, high])) {
    if (logarithmic) return [low / 2, high * 2];
    return low === 0 && high === 0 ? [-0.5, 0.5] : d3.extent([0, 1.5 * low, 1.5 * high]);
  }
  return logarithmic ? [low, high] : [low - 0.06 * (high - low), high + 0.06 * (high - low)];
}

// "constant: 3.56", for the title of a plot whose curves are level
function constancy(values) {
  const [low, high] = d3.extent(values.filter(Number.isFinite));
  return low !== undefined && isConstant([low, high]) ? ` (constant: ${Number(((low + high) / 2).toPrecision(3))})` : "";
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const ENTRY = 215;  // pixels of a legend entry

function drawn(place, { title, legend, note, marks, x, y, height = 300 }) {
  const width = Math.max(280, place.clientWidth);
  // legend entries flow in rows above the data
  const perRow = Math.max(1, Math.floor((width - 20) / ENTRY));
  const rowCount = Math.ceil(legend.length / perRow);
  const marginTop = 44 + 18 * rowCount;
  const svg = Plot.plot({
    width, height: height + 18 * rowCount, marginTop, marginLeft: 58, marginRight: 16, marginBottom: 42,
    style: { fontFamily: '"DejaVu Sans", sans-serif', fontSize: "12px", background: colour("--card"), color: colour("--ink") },
    x: { labelArrow: "none", labelAnchor: "center", grid: true, ...x },
    y: { labelArrow: "none", grid: true, ticks: 8, ...y, label: null },
    marks,
  });
  const top = d3.select(svg);
  top.attr("xmlns", "http://www.w3.org/2000/svg").attr("role", "img").attr("aria-label", title);
  top.append("text").attr("x", 4).attr("y", 15).attr("text-anchor", "start").attr("font-weight", "bold").attr("font-size", 13).attr("fill", "currentColor").text(title);
  legend.forEach((entry, i) => {
    const g = top.append("g").attr("transform", `translate(${8 + (i % perRow) * ENTRY}, ${37 + 18 * Math.floor(i / perRow)})`);
    swatch(g, entry);
    g.append("text").attr("x", 34).attr("y", 4).attr("text-anchor", "start").attr("font-size", 12).attr("fill", "currentColor").text(entry.label);
  });
  place.replaceChildren(svg, saveButton(svg, place.id, title));
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

function saveButton(svg, name, title) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "save";
  button.textContent = "Save SVG";
  button.setAttribute("aria-label", `Save the plot: ${title}`);
  button.addEventListener("click", () => {
    const text = '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(svg);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = `finitewidth-${name}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  return button;
}

const DOT = { type: d3.symbolCircle };

function bandAndLine(data, role, curve) {
  const style = look[`${role}, band`];
  return [
    Plot.areaY(data, { x: "x", y1: (d) => d.mean - d.std, y2: (d) => d.mean + d.std, fill: style.color, fillOpacity: style.alpha, curve }),
    Plot.lineY(data, { x: "x", y: "mean", ...line(role), curve }),
  ];
}

function withErrors(data, value, error) {
  const { color, linewidth } = look["sampled networks"];
  return [
    Plot.ruleX(data, { x: "x", y1: (d) => value(d) - 2 * error(d), y2: (d) => value(d) + 2 * error(d), stroke: color, strokeWidth: linewidth }),
    Plot.dot(data, { x: "x", y: value, fill: color, r: 3 }),
  ];
}

// no band stands for a prediction that means nothing
function finiteEntry(data, label) {
  const meaningless = data.verdict === "meaningless";
  return { role: "finite width", ...(meaningless ? {} : { band: "finite width, band" }), label: `width n, ${meaningless ? "meaningless" : label}` };
}

function uncertain(finite, data, value, unsure, role = "finite width, band") {
  if (data.verdict === "meaningless") return [];
  const low = (d) => value(d) - 2 * unsure(d), high = (d) => value(d) + 2 * unsure(d);
  return [Plot.areaY(finite, { x: "x", y1: low, y2: high, fill: look[role].color, fillOpacity: look[role].alpha, curve: "monotone-x", clip: true })];
}

const INFINITE = { role: "infinite width", band: "infinite width, band", label: "infinite width, ± std" };

export function regression(place, data) {
  const infinite = rows(data.infinite), finite = withHoles(data.finite), trained = data.sampled ? rows(columnsOf(data.sampled)) : [];
  const legend = [INFINITE], marks = [...bandAndLine(infinite, "infinite width", "linear")];
  const shown = data.verdict === "meaningless" ? finite.map((d) => ({ ...d, std: NaN })) : finite;
  if (finite.length) { legend.push(finiteEntry(data, "± std")); marks.push(...bandAndLine(shown, "finite width", "monotone-x")); }
  if (trained.length) {
    const { color, linewidth } = look["sampled networks"];
    legend.push({ role: "sampled networks", label: "trained networks, ± std", symbol: { ...DOT, withLine: true } });
    marks.push(Plot.ruleX(trained, { x: "x", y1: (d) => d.mean - d.std, y2: (d) => d.mean + d.std, stroke: color, strokeWidth: linewidth }));
    marks.push(Plot.dot(trained, { x: "x", y: "mean", fill: color, r: 3 }));
  }
  const train = rows(data.train);
  legend.push({ role: "infinite width", label: "training data", symbol: { type: d3.symbolCross } });
  marks.push(Plot.dot(train, { x: "x", y: "y", symbol: "cross", fill: look["infinite width"].color, r: 5 }));
  const all = [...infinite, ...shown, ...trained].flatMap((d) => [d.mean, d.mean - d.std, d.mean + d.std]).concat(train.map((d) => d.y)).filter(Number.isFinite);
  drawn(place, { title: "trained networks, output z(x)", legend, marks, height: 330,
    x: { label: "input x (an angle)" }, y: { domain: padded(all) } });
}

function columnsOf({ x, mean, mean_error, std, std_error }) { return { x, mean, mean_error, std, std_error }; }

// the change of the mean at finite width; the curve at infinite width has all inputs of the other curves
export function shift(place, data) {
  const means = new Map(data.infinite.x.map((x, i) => [x, data.infinite.mean[i]])), at = (x) => means.get(x);
  const finite = withHoles(data.finite).map((d) => ({ x: d.x, shift: d.mean - at(d.x), uncertainty: d.uncertainty }));
  const trained = data.sampled ? rows(columnsOf(data.sampled)).map((d) => ({ x: d.x, shift: d.mean - at(d.x), error: d.mean_error })) : [];
  const legend = [{ role: "infinite width", label: "infinite width" }];
  const marks = [Plot.ruleY([0], line("infinite width"))];
  if (finite.length) { legend.push(finiteEntry(data, "± 2 uncertainties")); marks.push(...uncertain(finite, data, (d) => d.shift, (d) => d.uncertainty), Plot.lineY(finite, { x: "x", y: "shift", ...line("finite width"), curve: "monotone-x" })); }
  if (trained.length) { legend.push({ role: "sampled networks", label: "trained networks, ± 2 s.e.", symbol: { ...DOT, withLine: true } }); marks.push(...withErrors(trained, (d) => d.shift, (d) => d.error)); }
  const all = [0, ...finite.map((d) => d.shift), ...trained.flatMap((d) => [d.shift - 2 * d.error, d.shift + 2 * d.error])];
  drawn(place, { title: "mean, minus that at infinite width", legend, marks, x: { label: "input x", domain: [-data.span, data.span] }, y: { domain: padded(all) } });
}

export function spread(place, data) {
  const infinite = rows(data.infinite), finite = withHoles(data.finite), trained = data.sampled ? rows(columnsOf(data.sampled)) : [];
  const legend = [{ role: "infinite width", label: "infinite width" }];
  const marks = [Plot.lineY(infinite, { x: "x", y: "std", ...line("infinite width") })];
  if (finite.length) { legend.push(finiteEntry(data, "± 2 uncertainties")); marks.push(...uncertain(finite, data, (d) => d.std, (d) => d.std_uncertainty), Plot.lineY(finite, { x: "x", y: "std", ...line("finite width"), curve: "monotone-x" })); }
  if (trained.length) { legend.push({ role: "sampled networks", label: "trained networks, ± 2 s.e.", symbol: { ...DOT, withLine: true } }); marks.push(...withErrors(trained, (d) => d.std, (d) => d.std_error)); }
  const highest = d3.max([...infinite, ...finite, ...trained], (d) => d.std) || 1;
  drawn(place, { title: "spread (std) of networks", legend, marks, x: { label: "input x" }, y: { domain: [0, 1.08 * highest] } });
}

function layers(depth, logarithmic) {
  const ticks = depth.layer.length <= 12 ? depth.layer : d3.ticks(1, depth.layer.length, 8).filter(Number.isInteger);
  return { label: "layer", ...(logarithmic ? { type: "log" } : {}), ticks: logarithmic ? [1, 2, 5, 10, 20, 50].filter((l) => l <= depth.layer.length) : ticks, tickFormat: "d" };
}

export function overDepth(place, depth, name, title) {
  const infinite = rows({ layer: depth.layer, value: depth[name] });
  const finite = depth[`finite_${name}`] ? rows({ layer: depth.layer, value: depth[`finite_${name}`] }) : [];
  const logarithmic = depth[`log_${name}`] && finite.every((d) => d.value > 0);
  const legend = [{ role: "infinite width", label: "infinite width" }];
  const marks = [];
  if (finite.length) { legend.push({ role: "finite width", label: "width n" }); marks.push(Plot.lineY(finite, { x: "layer", y: "value", ...line("finite width"), marker: "dot" })); }
  marks.push(Plot.lineY(infinite, { x: "layer", y: "value", ...line("infinite width") }));
  const all = [...infinite, ...finite].map((d) => d.value);
  drawn(place, { title: title + constancy(all), legend, marks, x: layers(depth, depth.log_layer),
    y: { domain: padded(all, logarithmic), ...(logarithmic ? { type: "log", tickFormat: "~e", ticks: 5 } : {}) } });
}

const RATIOS = [
  ["V", "finite width", d3.symbolCircle, "V/nK²: outputs"],
  ["A", "further series", d3.symbolDiamond2, "A/nΘ²: NTK"],
  ["B", "one more series", d3.symbolTriangle, "B/nΘ²: NTK, two outputs"],
];

export function ratios(place, depth) {
  const marks = [], legend = [], all = [0];
  for (const [name, role, symbol, label] of RATIOS) {
    if (!depth.ratios[name]) continue;
    const data = rows({ x: depth.layer_over_width, value: depth.ratios[name] });
    all.push(...data.map((d) => d.value));
    legend.push({ role, label, symbol: { type: symbol, withLine: true } });
    marks.push(Plot.lineY(data, { x: "x", y: "value", ...line(role) }));
    if (data.length <= 30) marks.push(Plot.dot(data, { x: "x", y: "value", fill: look[role].color, symbol: { draw: symbol.draw }, r: 3.5 }));
    else marks.push(Plot.dot(data.filter((_, i) => i % 5 === 4), { x: "x", y: "value", fill: look[role].color, symbol: { draw: symbol.draw }, r: 3.5 }));
  }
  const title = "relative fluctuations";
  drawn(place, { title, legend, marks, note: marks.length ? "" : depth.missing, height: 270,
    x: { label: "layer over width, ℓ/n" }, y: { domain: padded(all) } });
}
