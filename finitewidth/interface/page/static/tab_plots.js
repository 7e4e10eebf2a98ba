// The plots of the tabs: residual networks, Bayes beside descent, and orders behind 1/n.

import { DOT, bandAndLine, blank, drawn, line, padded, rows, style, withErrors, withHoles } from "./drawing.js";
import { columnsOf, finiteEntry, uncertain } from "./plots.js";

const NEXT = "further series";

// --- residual networks: one answer for each gamma, the chosen one first -----------------------------------

const COMPARED = [0, 0.5, 0.8, 0.95];  // more lines than these would run into each other

export function ratiosOverDepth(place, chosen, others, depth) {
  const series = [...others.filter((one) => COMPARED.includes(one.gamma) && one.gamma !== chosen.gamma), chosen];
  const highest = 1.2, { deepest, allowed } = chosen, marks = [Plot.ruleY([allowed], line("asymptote"))];
  for (const [i, one] of series.entries()) {
    const role = one === chosen ? "finite width" : one.gamma === 0 ? "infinite width" : NEXT;
    const data = one.ratio.map((ratio, below) => ({ layer: below + 1, ratio })).filter((d) => d.ratio !== null && d.ratio <= highest);
    marks.push(Plot.lineY(data, { x: "layer", y: "ratio", ...line(role), strokeWidth: one === chosen ? 2.6 : 1.2 }));
    const end = data[data.length - 1], above = end && end.layer < deepest;
    marks.push(Plot.text([end], { x: "layer", y: "ratio", text: () => `γ = ${one.gamma}`, fill: style(role).color, fontWeight: one === chosen ? "bold" : "normal",
      textAnchor: above ? "middle" : "start", dx: above ? 0 : 4, dy: above ? -8 - 13 * (i % 2) : 0 }));
  }
  if (chosen.here !== null && chosen.here <= highest) marks.push(Plot.dot([{ layer: depth, ratio: chosen.here }], { x: "layer", y: "ratio", fill: style("finite width").color, r: 5 }));
  const legend = [
    { role: "finite width", label: "chosen γ and depth", symbol: { ...DOT, withLine: true } },
    { role: NEXT, label: "other γ" },
    { role: "infinite width", label: "no skips" },
    { role: "asymptote", label: `trusted up to ${allowed}` },
  ];
  drawn(place, { title: "largest ratio of order 1/n over depth", legend, marks, table: Object.fromEntries(series.map((one) => [`gamma ${one.gamma}`, one.ratio.map((ratio, below) => ({ layer: below + 1, ratio }))])), height: 340, marginRight: 62, x: { label: "layer", type: "log", domain: [1, deepest], ticks: [1, 2, 5, 10, 20, 50, 100, 200], tickFormat: "d" }, y: { domain: [0, highest + 0.2] } });
}

export function reach(place, chosen, others, depth) {
  const most = chosen.deepest, known = [...others.filter((one) => one.gamma !== chosen.gamma), chosen].sort((a, b) => a.gamma - b.gamma);
  const data = known.map((one) => ({ gamma: one.gamma, layers: Math.max(1, one.reached ?? most), beyond: one.reached === null, chosen: one === chosen }));
  const { color } = style("finite width");
  const marks = [
    Plot.ruleY([depth], line("asymptote")),
    Plot.lineY(data.filter((d) => !d.beyond), { x: "gamma", y: "layers", ...line(NEXT) }),
    Plot.dot(data, { x: "gamma", y: "layers", symbol: (d) => (d.beyond ? "triangle" : "circle"), fill: (d) => (d.chosen ? color : style(NEXT).color), r: (d) => (d.chosen ? 6 : 4) }),
  ];
  const legend = [
    { role: "finite width", label: "chosen γ", symbol: DOT },
    { role: NEXT, label: `▲: ${most} layers and more`, symbol: { ...DOT, withLine: true } },
    { role: "asymptote", label: "this network's depth" },
  ];
  drawn(place, { title: "layers up to which order 1/n is trusted", legend, marks, table: { layers: data }, height: 340, x: { label: "skips γ", domain: [-0.02, 1] }, y: { type: "log", domain: [1, 1.25 * most], ticks: [1, 2, 5, 10, 20, 50, 100, 200], tickFormat: "d" } });
}

// --- Bayes beside descent: `data` has the posterior, trained networks at infinite and at finite width --------

const trainedMeans = (data) => withHoles(data.finite || data.infinite);
const posteriorEntry = (data, label) => (data.posterior.finite ? [{ role: "finite width", ...(data.posterior.verdict === "meaningless" ? {} : { band: "finite width, band" }), label }] : []);
const sampledEntry = (label) => ({ role: "sampled networks", label, symbol: { ...DOT, withLine: true } });

export function posterior(place, data) {
  const { infinite, finite, verdict } = data.posterior, shown = withHoles(finite).map((d) => (verdict === "meaningless" ? { ...d, std: NaN } : d));
  const trained = trainedMeans(data), sampled = data.sampled ? rows(columnsOf(data.sampled)) : [], train = rows(data.train);
  const legend = [{ role: "infinite width", label: "posterior, infinite width" }, ...posteriorEntry(data, "posterior, width n, ± std"), { role: NEXT, label: `trained, ${data.finite ? "width n" : "infinite width"}, ± std` }];
  const bare = rows(infinite), thin = { ...line(NEXT), strokeWidth: 1, strokeDasharray: "2 2", curve: "catmull-rom" };
  const marks = [...bandAndLine(shown, "finite width", "catmull-rom"), Plot.lineY(bare, { x: "x", y: "mean", ...line("infinite width") }),
    Plot.lineY(trained, { x: "x", y: "mean", ...line(NEXT), curve: "catmull-rom" }),
    ...[-1, 1].map((sign) => Plot.lineY(trained, { x: "x", y: (d) => d.mean + sign * d.std, ...thin }))];
  if (sampled.length) {
    const { color, linewidth } = style("sampled networks");
    legend.push(sampledEntry("trained networks, ± std"));
    marks.push(Plot.ruleX(sampled, { x: "x", y1: (d) => d.mean - d.std, y2: (d) => d.mean + d.std, stroke: color, strokeWidth: linewidth }), Plot.dot(sampled, { x: "x", y: "mean", fill: color, r: 3 }));
  }
  legend.push({ role: "infinite width", label: "data, ± std of the noise", symbol: { type: d3.symbolCross } });
  const s = Math.sqrt(data.noise), { color } = style("infinite width");
  marks.push(Plot.ruleX(train, { x: "x", y1: (d) => d.y - s, y2: (d) => d.y + s, stroke: color }), Plot.dot(train, { x: "x", y: "y", symbol: "cross", fill: color, r: 5 }));
  const all = [...shown, ...trained, ...sampled].flatMap((d) => [d.mean, d.mean - d.std, d.mean + d.std]).concat(train.flatMap((d) => [d.y - s, d.y + s]));
  drawn(place, { title: "posterior beside descent, z(x)", legend, marks, table: { posterior: shown, "posterior, infinite width": bare, "trained, theory": trained, "trained networks": sampled, "training data": train }, height: 330, x: { label: "input x (an angle)" }, y: { domain: padded(all) } });
}

function shiftOf(finite, infinite) {
  const means = new Map(infinite.x.map((x, i) => [x, infinite.mean[i]]));
  return withHoles(finite).map((d) => ({ ...d, shift: d.mean - means.get(d.x) }));
}

export function posteriorShift(place, data) {
  const own = shiftOf(data.posterior.finite, data.posterior.infinite), trained = data.finite ? shiftOf(data.finite, data.infinite) : [];
  if (!own.length) return blank(place, data.posterior.missing);
  const legend = [{ role: "infinite width", label: "infinite width" }, ...posteriorEntry(data, "posterior, ± 2 uncertainties")];
  const marks = [Plot.ruleY([0], line("infinite width")), ...uncertain(own, data.posterior, (d) => d.shift, (d) => d.uncertainty), Plot.lineY(own, { x: "x", y: "shift", ...line("finite width"), curve: "catmull-rom" })];
  if (trained.length) { legend.push({ role: NEXT, label: "trained networks" }); marks.push(Plot.lineY(trained, { x: "x", y: "shift", ...line(NEXT), curve: "catmull-rom" })); }
  const all = [0, ...own.flatMap((d) => [d.shift - 2 * d.uncertainty, d.shift + 2 * d.uncertainty]), ...trained.map((d) => d.shift)];
  drawn(place, { title: "mean, minus that at infinite width", legend, marks, table: { posterior: own, trained }, x: { label: "input x", domain: [-data.span, data.span] }, y: { domain: padded(all) } });
}

export function posteriorSpread(place, data) {
  const own = withHoles(data.posterior.finite), bare = rows(data.posterior.infinite), trained = trainedMeans(data), sampled = data.sampled ? rows(columnsOf(data.sampled)) : [];
  const legend = [{ role: "infinite width", label: "posterior, infinite width" }, ...posteriorEntry(data, "posterior, ± 2 uncertainties"), { role: NEXT, label: "trained networks" }];
  const marks = [...uncertain(own, data.posterior, (d) => d.std, (d) => d.std_uncertainty), Plot.lineY(bare, { x: "x", y: "std", ...line("infinite width") }),
    Plot.lineY(own, { x: "x", y: "std", ...line("finite width"), curve: "catmull-rom" }), Plot.lineY(trained, { x: "x", y: "std", ...line(NEXT), curve: "catmull-rom" })];
  if (sampled.length) { legend.push(sampledEntry("trained networks, ± 2 s.e.")); marks.push(...withErrors(sampled, (d) => d.std, (d) => d.std_error)); }
  const highest = d3.max([...own, ...bare, ...trained, ...sampled], (d) => d.std) || 1;
  drawn(place, { title: "spread (std) given the data", legend, marks, table: { posterior: own, "posterior, infinite width": bare, trained, "trained networks": sampled }, x: { label: "input x" }, y: { domain: [0, 1.08 * highest] } });
}

// --- orders behind 1/n: `data.beyond` is there once narrow networks are trained ------------------------------

const DIAMOND = { type: d3.symbolDiamond };
const togetherEntry = (label) => ({ role: NEXT, label, symbol: { ...DIAMOND, withLine: true } });

// before networks are trained: what order 1/n alone says over the width, at the input where it says most
export function theoryOverWidth(place, data, width) {
  const means = new Map(data.infinite.x.map((x, i) => [x, data.infinite.mean[i]]));
  const shifts = withHoles(data.finite).map((d) => ({ x: d.x, shift: d.mean - means.get(d.x), uncertainty: d.uncertainty }));
  if (!shifts.length) return blank(place, data.note || "computing order 1/n …");
  const most = shifts[d3.maxIndex(shifts, (d) => Math.abs(d.shift))], ends = [0, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1].map((part) => part / 16);
  const curve = ends.map((x) => ({ x, theory: most.shift * width * x, unsure: most.uncertainty * (width * x) ** 2 }));
  const { color } = style("finite width"), { alpha } = style("finite width, band");
  const marks = [Plot.ruleY([0], line("infinite width")),
    Plot.areaY(curve, { x: "x", y1: (d) => d.theory - 2 * d.unsure, y2: (d) => d.theory + 2 * d.unsure, fill: color, fillOpacity: alpha, clip: true }),
    Plot.lineY(curve, { x: "x", y: "theory", ...line("finite width") }), Plot.dot(curve.slice(0, 1).map(() => ({ x: 1 / width, y: most.shift })), { x: "x", y: "y", fill: color, r: 5, clip: true })];
  const legend = [{ role: "infinite width", label: "infinite width" }, { role: "finite width", band: "finite width, band", label: "order 1/n, ± 2 uncertainties" }, { role: "finite width", label: `n = ${width}`, symbol: DOT }];
  drawn(place, { title: `mean at x = ${Number(most.x.toPrecision(3))}, minus that at infinite width`, legend, marks, table: { theory: curve }, height: 330, x: { label: "1/n", domain: [0, 1 / 16] }, y: { domain: padded([0, ...curve.flatMap((d) => [d.theory - d.unsure, d.theory + d.unsure])]) } });
}

export function overWidth(place, data, width) {
  const { x, narrow, ...curve } = data.beyond.over_width;
  const inverse = ({ width: widths, ...columns }) => rows({ x: widths.map((n) => 1 / n), ...columns });
  const together = [{ x: 0, theory: 0, together: 0, together_error: 0 }, ...inverse(curve).sort((a, b) => a.x - b.x)], dots = inverse(narrow), asked = together.filter((d) => d.x === 1 / width);
  const { color } = style(NEXT), { alpha } = style("finite width, band");
  const marks = [Plot.ruleY([0], line("infinite width")),
    Plot.areaY(together, { x: "x", y1: (d) => d.together - 2 * d.together_error, y2: (d) => d.together + 2 * d.together_error, fill: color, fillOpacity: alpha, clip: true }),
    Plot.lineY(together, { x: "x", y: "theory", ...line("finite width") }), Plot.lineY(together, { x: "x", y: "together", ...line(NEXT) }),
    ...withErrors(dots, (d) => d.shift, (d) => d.error), ...withErrors(asked, (d) => d.together, (d) => d.together_error, NEXT, "diamond")];
  const legend = [{ role: "infinite width", label: "infinite width" }, { role: "finite width", label: "theory, order 1/n" }, { role: "sampled networks", label: `networks of width ${narrow.width.join(", ")}`, symbol: { ...DOT, withLine: true } }, togetherEntry(`both together; ◆ at n = ${width}`)];
  const all = [0, ...together.flatMap((d) => [d.theory, d.together]), ...dots.flatMap((d) => [d.shift - 2 * d.error, d.shift + 2 * d.error])];
  drawn(place, { title: `mean at x = ${Number(x.toPrecision(3))}, minus that at infinite width`, legend, marks, table: { theory: together, "narrow networks": dots }, height: 330, x: { label: "1/n", domain: [0, 1.03 * d3.max(together, (d) => d.x)] }, y: { domain: padded(all) } });
}

export function shiftBeyond(place, data) {
  const finite = data.finite ? shiftOf(data.finite, data.infinite) : [], dots = data.beyond ? rows({ x: data.beyond.x, shift: data.beyond.shift, error: data.beyond.shift_error }) : [];
  if (!finite.length && !dots.length) return blank(place, data.note || "computing order 1/n …");
  const legend = [{ role: "infinite width", label: "infinite width" }], marks = [Plot.ruleY([0], line("infinite width"))];
  if (finite.length) { legend.push(finiteEntry(data, "± 2 uncertainties")); marks.push(...uncertain(finite, data, (d) => d.shift, (d) => d.uncertainty), Plot.lineY(finite, { x: "x", y: "shift", ...line("finite width"), curve: "catmull-rom" })); }
  if (dots.length) { legend.push({ ...togetherEntry("with narrow networks, ± 2 s.e.") }); marks.push(...withErrors(dots, (d) => d.shift, (d) => d.error, NEXT, "diamond")); }
  const all = [0, ...finite.map((d) => d.shift), ...dots.flatMap((d) => [d.shift - 2 * d.error, d.shift + 2 * d.error])];
  drawn(place, { title: "mean at width n, minus infinite width", legend, marks, table: { "order 1/n": finite, "with narrow networks": dots }, x: { label: "input x", domain: [-data.span, data.span] }, y: { domain: padded(all) } });
}

export function spreadBeyond(place, data) {
  const bare = rows(data.infinite), finite = withHoles(data.finite), dots = data.beyond ? rows({ x: data.beyond.x, std: data.beyond.std, error: data.beyond.std_error }).filter((d) => d.std !== null && d.error !== null) : [];
  const legend = [{ role: "infinite width", label: "infinite width" }], marks = [Plot.lineY(bare, { x: "x", y: "std", ...line("infinite width") })];
  if (finite.length) { legend.push(finiteEntry(data, "± 2 uncertainties")); marks.push(...uncertain(finite, data, (d) => d.std, (d) => d.std_uncertainty), Plot.lineY(finite, { x: "x", y: "std", ...line("finite width"), curve: "catmull-rom" })); }
  if (dots.length) { legend.push({ ...togetherEntry("with narrow networks, ± 2 s.e.") }); marks.push(...withErrors(dots, (d) => d.std, (d) => d.error, NEXT, "diamond")); }
  const highest = d3.max([...bare, ...finite, ...dots], (d) => d.std) || 1;
  drawn(place, { title: "spread (std) of networks at width n", legend, marks, table: { "infinite width": bare, "order 1/n": finite, "with narrow networks": dots }, x: { label: "input x" }, y: { domain: [0, 1.08 * highest] } });
}
