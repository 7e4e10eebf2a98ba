// The plots of trained networks and of signals over depth.

import { DOT, bandAndLine, blank, constancy, drawn, line, padded, rows, style, withErrors, withHoles } from "./drawing.js";

// no band stands for a prediction that means nothing
export function finiteEntry(data, label) {
  const meaningless = data.verdict === "meaningless";
  return { role: "finite width", ...(meaningless ? {} : { band: "finite width, band" }), label: `width n, ${meaningless ? "meaningless" : label}` };
}

export function uncertain(finite, data, value, unsure, role = "finite width, band") {
  if (data.verdict === "meaningless") return [];
  const low = (d) => value(d) - 2 * unsure(d), high = (d) => value(d) + 2 * unsure(d);
  return [Plot.areaY(finite, { x: "x", y1: low, y2: high, fill: style(role).color, fillOpacity: style(role).alpha, curve: "catmull-rom", clip: true })];
}

const INFINITE = { role: "infinite width", band: "infinite width, band", label: "infinite width, ± std" };

export function regression(place, data) {
  const infinite = rows(data.infinite), finite = withHoles(data.finite), trained = data.sampled ? rows(columnsOf(data.sampled)) : [];
  const legend = [INFINITE], marks = [...bandAndLine(infinite, "infinite width", "linear")];
  const shown = data.verdict === "meaningless" ? finite.map((d) => ({ ...d, std: NaN })) : finite;
  if (finite.length) { legend.push(finiteEntry(data, "± std")); marks.push(...bandAndLine(shown, "finite width", "catmull-rom")); }
  if (trained.length) {
    const { color, linewidth } = style("sampled networks");
    legend.push({ role: "sampled networks", label: "trained networks, ± std", symbol: { ...DOT, withLine: true } });
    marks.push(Plot.ruleX(trained, { x: "x", y1: (d) => d.mean - d.std, y2: (d) => d.mean + d.std, stroke: color, strokeWidth: linewidth }));
    marks.push(Plot.dot(trained, { x: "x", y: "mean", fill: color, r: 3 }));
  }
  const train = rows(data.train);
  legend.push({ role: "infinite width", label: "training data", symbol: { type: d3.symbolCross } });
  marks.push(Plot.dot(train, { x: "x", y: "y", symbol: "cross", fill: style("infinite width").color, r: 5 }));
  const all = [...infinite, ...shown, ...trained].flatMap((d) => [d.mean, d.mean - d.std, d.mean + d.std]).concat(train.map((d) => d.y)).filter(Number.isFinite);
  drawn(place, { title: "trained networks, output z(x)", legend, marks, height: 330, table: { "infinite width": infinite, "order 1/n": finite, "trained networks": trained, "training data": train },
    x: { label: "input x (an angle)" }, y: { domain: padded(all) } });
}

export function columnsOf({ x, mean, mean_error, std, std_error }) { return { x, mean, mean_error, std, std_error }; }

// the change of the mean at finite width; the curve at infinite width has all inputs of the other curves
export function shift(place, data) {
  const means = new Map(data.infinite.x.map((x, i) => [x, data.infinite.mean[i]])), at = (x) => means.get(x);
  const finite = withHoles(data.finite).map((d) => ({ x: d.x, shift: d.mean - at(d.x), uncertainty: d.uncertainty }));
  const trained = data.sampled ? rows(columnsOf(data.sampled)).map((d) => ({ x: d.x, shift: d.mean - at(d.x), error: d.mean_error })) : [];
  if (!finite.length && !trained.length) return blank(place, data.note || "computing order 1/n …");
  const legend = [{ role: "infinite width", label: "infinite width" }];
  const marks = [Plot.ruleY([0], line("infinite width"))];
  if (finite.length) { legend.push(finiteEntry(data, "± 2 uncertainties")); marks.push(...uncertain(finite, data, (d) => d.shift, (d) => d.uncertainty), Plot.lineY(finite, { x: "x", y: "shift", ...line("finite width"), curve: "catmull-rom" })); }
  if (trained.length) { legend.push({ role: "sampled networks", label: "trained networks, ± 2 s.e.", symbol: { ...DOT, withLine: true } }); marks.push(...withErrors(trained, (d) => d.shift, (d) => d.error)); }
  const all = [0, ...finite.map((d) => d.shift), ...trained.flatMap((d) => [d.shift - 2 * d.error, d.shift + 2 * d.error])];
  drawn(place, { title: "mean, minus that at infinite width", legend, marks, height: 330, table: { "order 1/n": finite, "trained networks": trained }, x: { label: "input x", domain: [-data.span, data.span] }, y: { domain: padded(all) } });
}

export function spread(place, data) {
  const infinite = rows(data.infinite), finite = withHoles(data.finite), trained = data.sampled ? rows(columnsOf(data.sampled)) : [];
  const legend = [{ role: "infinite width", label: "infinite width" }];
  const marks = [Plot.lineY(infinite, { x: "x", y: "std", ...line("infinite width") })];
  if (finite.length) { legend.push(finiteEntry(data, "± 2 uncertainties")); marks.push(...uncertain(finite, data, (d) => d.std, (d) => d.std_uncertainty), Plot.lineY(finite, { x: "x", y: "std", ...line("finite width"), curve: "catmull-rom" })); }
  if (trained.length) { legend.push({ role: "sampled networks", label: "trained networks, ± 2 s.e.", symbol: { ...DOT, withLine: true } }); marks.push(...withErrors(trained, (d) => d.std, (d) => d.std_error)); }
  const highest = d3.max([...infinite, ...finite, ...trained], (d) => d.std) || 1;
  drawn(place, { title: "spread (std) of networks", legend, marks, table: { "infinite width": infinite, "order 1/n": finite, "trained networks": trained }, x: { label: "input x" }, y: { domain: [0, 1.08 * highest] } });
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
  drawn(place, { title: title + constancy(all), legend, marks, table: { "infinite width": infinite, "width n": finite }, x: layers(depth, depth.log_layer),
    y: { domain: padded(all, logarithmic), ...(logarithmic ? { type: "log", tickFormat: "~e", ticks: 5 } : {}) } });
}

const RATIOS = [
  ["V", "finite width", d3.symbolCircle, "V/nK²: outputs"],
  ["A", "further series", d3.symbolDiamond2, "A/nΘ²: NTKs of two outputs"],
  ["B", "one more series", d3.symbolTriangle, "B/nΘ²: NTK between two outputs"],
];

export function ratios(place, depth) {
  const marks = [], legend = [], all = [0], table = {};
  for (const [name, role, symbol, label] of RATIOS) {
    if (!depth.ratios[name]) continue;
    const data = rows({ x: depth.layer_over_width, value: depth.ratios[name] });
    all.push(...data.map((d) => d.value));
    table[label] = data;
    legend.push({ role, label, symbol: { type: symbol, withLine: true } });
    marks.push(Plot.lineY(data, { x: "x", y: "value", ...line(role) }));
    if (data.length <= 30) marks.push(Plot.dot(data, { x: "x", y: "value", fill: style(role).color, symbol: { draw: symbol.draw }, r: 3.5 }));
    else marks.push(Plot.dot(data.filter((_, i) => i % 5 === 4), { x: "x", y: "value", fill: style(role).color, symbol: { draw: symbol.draw }, r: 3.5 }));
  }
  if (!marks.length) return blank(place, depth.missing);
  drawn(place, { title: "relative fluctuations", legend, marks, table, height: 270,
    x: { label: "layer over width, ℓ/n" }, y: { domain: padded(all) } });
}
