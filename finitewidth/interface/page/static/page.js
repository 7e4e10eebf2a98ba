// Requests, and what becomes of their answers. The server checks all values; its messages are shown as text.

import * as controls from "./controls.js";
import { setLook } from "./drawing.js";
import { explain, setSymbols } from "./help.js";
import * as plots from "./plots.js";
import * as tabPlots from "./tab_plots.js";

const DEBOUNCE = 30, POLL = 250;

const element = (id) => document.getElementById(id);
const shownTab = () => document.body.dataset.tab;
let setup, current = {}, controller = null, timer = null, job = null;

function changed(name, text) {
  element("preset-note").textContent = "";
  if (name === "start" && text === "own" && current.critical && current.critical.C_W !== null) {
    for (const field of ["C_b", "C_W"]) controls.set(field, String(Number(current.critical[field].toPrecision(9))));
  }
  if (!["members", "tab", "noise", "gamma"].includes(name)) { stopTraining(); current.sampled = current.beyond = null; }
  else if (name === "members") { stopTraining(); current.beyond = null; }
  schedule();
}

// --- asking --------------------------------------------------------------------------------------------

function schedule() {
  clearTimeout(timer);
  timer = setTimeout(update, DEBOUNCE);
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { "X-Finitewidth": "page" } });
  if (!answer.ok) throw new Error(`the server answered with status ${answer.status}`);
  return answer.json();
}

async function update() {
  if (controller) controller.abort();
  const mine = (controller = new AbortController());
  const asked = controls.query();
  const { signal } = mine;
  element("train").textContent = shownTab() === "extrapolation" ? "Train narrow networks" : "Train real networks";
  busy("computing …");
  try {
    if (shownTab() === "residual") await updateResidual(asked, signal);
    else await updateTrained(asked, signal);
    document.body.dataset.refined = asked;
    busy("");
    if (!element("python").hidden) showPython();
  } catch (error) {
    if (error.name === "AbortError") return;  // a newer request has replaced this one
    busy("");
    element("banner").hidden = false;
    element("banner").textContent = `No answer from the server (${error.message}); is finitewidth page still running?`;
  }
}

async function updateTrained(asked, signal) {
  const answer = await ask(`/api/theory?${asked}`, { signal });
  controls.showErrors(answer.errors || {});
  if (!answer.regression && !current.lastGood) showTheory(await ask("/api/theory", { signal }));
  if (answer.critical) showTheory(answer); else markStale();
  document.body.dataset.drawn = asked;
  if (!answer.regression) { if (shownTab() === "bayes") markStale(); return; }
  if (shownTab() === "bayes") await updateBayes(asked, signal);
  if (!answer.finite_missing) await refine(asked, signal);
}

async function updateBayes(asked, signal) {
  busy("posterior …");
  const answer = await ask(`/api/bayes?${asked}`, { signal });
  if (answer.errors) {
    element("evidence").textContent = Object.values(answer.errors).join(" ");
    return markStale();
  }
  current.posterior = answer;
  element("evidence").textContent = [answer.evidence, answer.missing].join(" ");
  if (answer.verdict) showTrust(`${answer.verdict}: ${answer.warning || "What it leaves out is small for this posterior."}`);
  drawRegression();
}

// the chosen gamma first, then others for comparison; each is drawn when it comes
async function updateResidual(asked, signal) {
  let chosen = await ask(`/api/residual?${asked}`, { signal });
  controls.showErrors(chosen.errors || {});
  const wrong = !chosen.ratio;
  if (wrong) {
    if (current.residual || !("depth" in chosen.errors || "width" in chosen.errors || "gamma" in chosen.errors || "activation" in chosen.errors || "address" in chosen.errors)) { markStale(); document.body.dataset.drawn = asked; return; }
    chosen = await ask("/api/residual", { signal });
  }
  current.residual = { chosen, others: [], depth: wrong ? 4 : Number(controls.value("depth")) };
  element("text").textContent = "";
  element("findings").replaceChildren(...chosen.text.slice(1).map(item));
  element("verdict").classList.remove("stale");
  showTrust(`${chosen.verdict}: ${chosen.text[0]}`);
  drawResidual();
  if (wrong) markStale();
  document.body.dataset.drawn = asked;
  for (const gamma of wrong ? [] : setup.gammas) {
    const values = new URLSearchParams(asked);
    values.set("gamma", gamma);
    const answer = await ask(`/api/residual?${values}`, { signal });
    if (answer.ratio) current.residual.others.push(answer);
    drawResidual();
  }
}

const CURVE = ["x", "mean", "uncertainty", "std", "std_uncertainty"];
const VERDICTS = ["trusted", "doubtful", "meaningless"];

async function refine(asked, signal) {
  const points = new Map();
  let worst = 0, warning = "";  // the verdict is that of the worst part
  for (let part = 0; part < setup.parts; part += 1) {
    busy(`finite width, part ${part + 1} of ${setup.parts} …`);
    const answer = await ask(`/api/finite/${part}?${asked}`, { signal });
    if (answer.errors) {
      current.finiteNote = Object.values(answer.errors).join(" ");
      break;
    }
    answer.x.forEach((x, i) => points.set(x, Object.fromEntries(CURVE.map((name) => [name, answer[name][i]]))));
    const sorted = [...points.values()].sort((a, b) => a.x - b.x);
    current.finite = Object.fromEntries(CURVE.map((name) => [name, sorted.map((d) => d[name])]));
    worst = Math.max(worst, VERDICTS.indexOf(answer.verdict));
    current.verdict = VERDICTS[worst];
    warning = VERDICTS.indexOf(answer.verdict) === worst && answer.warning ? answer.warning : warning;
    if (shownTab() !== "bayes") showTrust(`${VERDICTS[worst]}: ${warning || "What it leaves out is small for these trained networks."}`);
    drawRegression();
  }
  drawRegression();
}

function busy(text) { element("busy").textContent = text; }

// wrong values leave the last good plots in grey; an address that begins with them, those of the default state
function markStale(which = `[data-on="${shownTab()}"] .plot, #verdict`) {
  document.querySelectorAll(which).forEach((place) => place.classList.add("stale"));
}

// --- showing -------------------------------------------------------------------------------------------

function showTheory(answer) {
  const { critical } = answer;
  const { sampled, beyond, lastGood, posterior, residual } = current;
  current = { ...answer, lastGood: answer.regression || lastGood, sampled, beyond, posterior, residual, finite: null, finiteNote: answer.finite_missing };
  const badge = { critical: "critical", close: "nearly critical", off: "not critical" };
  element("state").textContent = badge[critical.verdict.state];
  element("state").dataset.state = critical.verdict.state;
  element("text").textContent = critical.verdict.text;
  element("findings").replaceChildren(...[...critical.findings, ...critical.advice].map(item));
  element("why").textContent = `Class ${critical.class}. ${critical.why}`;
  element("verdict").classList.remove("stale");
  showTrust(critical.width);
  element("width-note").textContent = answer.depth.missing;
  if (controls.value("start") !== "own") {
    for (const name of ["C_b", "C_W"]) controls.showValue(name, String(Number(critical[name].toPrecision(6))));
  }
  draw();
}

// the one verdict on order 1/n: of trained networks where it is known, before that of initialization
function showTrust(text) {
  const word = VERDICTS.find((verdict) => text.startsWith(verdict)) || "";
  element("trust").textContent = `order 1/n ${word || "unknown"}`;
  element("trust").dataset.state = word;
  element("trust-text").textContent = text.slice(word.length).replace(/^[:\s]+/, "").replace(/^\((.*)\)\.$/, "At initialization: $1.");
}

function item(text) {
  const li = document.createElement("li");
  li.textContent = text;
  return li;
}

function draw() {
  if (shownTab() === "residual") return drawResidual();
  if (!current.depth) return;
  if (shownTab() === "network") {
    plots.overDepth(element("kernel"), current.depth, "K", "signals: kernel K over depth");
    plots.overDepth(element("ntk"), current.depth, "Theta", "neural tangent kernel Θ over depth");
    plots.ratios(element("ratios"), current.depth);
  }
  drawRegression();
}

function drawResidual() {
  if (!current.residual) return;
  const { chosen, others, depth } = current.residual;
  tabPlots.ratiosOverDepth(element("depth-ratios"), chosen, others, depth);
  tabPlots.reach(element("reach"), chosen, others, depth);
}

// each tab has its plots of the regression
const DRAWN = {
  network: (data) => {
    plots.shift(element("shift"), data);  // first: without it the regression has the whole width
    plots.regression(element("regression"), data);
    plots.spread(element("spread"), data);
  },
  bayes: (data) => {
    if (!data.posterior) return;
    tabPlots.posterior(element("posterior"), data);
    tabPlots.posteriorShift(element("posterior-shift"), data);
    tabPlots.posteriorSpread(element("posterior-spread"), data);
  },
  extrapolation: (data) => {
    const width = Number(controls.value("width")), place = element("over-width");
    if (data.beyond) tabPlots.overWidth(place, data, width); else tabPlots.theoryOverWidth(place, data, width);
    tabPlots.shiftBeyond(element("shift-beyond"), data);
    tabPlots.spreadBeyond(element("spread-beyond"), data);
    element("beyond-note").textContent = data.beyond ? `The fit of orders 1/n² and 1/n³ to the narrow networks has a median χ² of ${data.beyond.chi_square.toPrecision(2)} for ${data.beyond.freedom} degree of freedom.` : current.finiteNote || "The line is order 1/n alone. The button trains narrow networks, which show the orders behind it, and adds them.";
  },
};

function drawRegression() {
  const { finite, verdict, sampled, beyond, posterior } = current;
  const data = { ...current.lastGood, finite, verdict, sampled, beyond, posterior, span: setup.span, noise: Number(controls.value("noise")), note: current.finiteNote };
  DRAWN[shownTab()](data);
  const notes = document.querySelectorAll(".regression-note");
  if (!current.regression) {
    markStale(`[data-on="${shownTab()}"] .plot:not(#kernel, #ntk, #ratios)`);
    notes.forEach((note) => { note.textContent = Object.values(current.errors || {}).join(" "); });
    return;
  }
  const rate = current.regression.largest_learning_rate;
  const hint = controls.value("algorithm") === "descent" && rate !== null ? `Gradient descent is stable below η = ${rate.toPrecision(3)}. ` : "";
  notes.forEach((note) => { note.textContent = hint + (current.finiteNote || ""); });
}

// --- real networks -------------------------------------------------------------------------------------

async function train() {
  stopTraining();
  const mine = (job = { id: null, ended: false });
  const asked = controls.query();
  mine.kind = shownTab() === "extrapolation" ? "beyond" : "sampled";
  trainingNote("starting …");
  element("train").disabled = true;
  element("cancel").hidden = element("progress").hidden = false;
  element("progress").removeAttribute("value");
  try {
    const answer = await ask("/api/jobs", { method: "POST", body: asked });
    if (answer.errors) {
      controls.showErrors(answer.errors);
      return endTraining(mine, Object.values(answer.errors).join(" "));
    }
    mine.id = answer.id;
    if (mine.ended) return forget(mine);
    while (!mine.ended) {
      const status = await ask(`/api/jobs/${mine.id}`);
      if (mine.ended) return;
      if (showStatus(mine, status)) return;
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
  } catch (error) {
    endTraining(mine, `No answer from the server (${error.message}).`);
  }
}

function showStatus(mine, status) {
  if (status.errors) { endTraining(mine, Object.values(status.errors).join(" ")); return true; }
  const sampled = status.result, before = current[mine.kind];
  if (sampled && (!before || before.members !== sampled.members)) {
    current[mine.kind] = sampled;
    if (shownTab() !== "residual") drawRegression();
  }
  if (status.progress) element("progress").value = status.progress;
  const trained = mine.kind === "beyond" ? "training narrow networks …" : sampled ? `${sampled.members} of ${sampled.of} networks` : "compiling and training the first networks …";
  if (status.state === "waiting") trainingNote(status.before ? `waiting for ${status.before === 1 ? "another training" : `${status.before} other trainings`} …` : "preparing …");
  else if (status.state === "running") trainingNote(trained);
  else {
    const notes = sampled && sampled.notes.length ? ` ${sampled.notes.join(" ")}` : "";
    endTraining(mine, status.state === "finished" ? `${sampled.members} networks ${mine.kind === "beyond" ? "of each width " : ""}trained.${notes}` : status.message || "cancelled");
    document.body.dataset.trained = status.state;
    return true;
  }
  return false;
}

function trainingNote(text) { element("training-note").textContent = text; }

function endTraining(mine, text) {
  mine.ended = true;
  if (job !== mine) return;
  element("train").disabled = false;
  element("cancel").hidden = element("progress").hidden = true;
  trainingNote(text);
}

function forget(mine) { ask(`/api/jobs/${mine.id}`, { method: "DELETE" }).catch(() => {}); }

function stopTraining() {
  if (!job) return;
  if (!job.ended) {
    if (job.id) forget(job);
    endTraining(job, "cancelled");
    document.body.dataset.trained = "cancelled";
  } else trainingNote("");
}

// --- reset and theme -----------------------------------------------------------------------------------

function reset() {
  controls.reset();
  stopTraining();
  current.sampled = current.beyond = null;
  schedule();
}

function showTheme() {
  const dark = document.documentElement.dataset.theme === "dark";
  element("theme").textContent = dark ? "Light" : "Dark";
  element("theme").setAttribute("aria-pressed", String(dark));
  setLook(dark ? setup.dark_look : setup.look);
  const stale = [...document.querySelectorAll(".plot.stale")];
  draw();
  stale.forEach((place) => place.classList.add("stale"));
}

// --- presets, link and code ----------------------------------------------------------------------------

// a preset is an address; the one of this address is returned
function makePresets() {
  const box = element("preset"), here = location.search.slice(1), now = setup.presets.find((one) => one.query === here);
  if (!now) box.append(new Option("your own values", "", true, true));
  setup.presets.forEach((one, i) => box.append(new Option(one.name, String(i), one === now, one === now)));
  element("preset-note").textContent = now ? now.sentence : "";
  box.addEventListener("change", () => { if (box.value !== "") location.assign(`/?${setup.presets[Number(box.value)].query}`); });
  return now;
}

async function copyLink() {
  await navigator.clipboard.writeText(location.href);
  element("copy").textContent = "Copied";
  setTimeout(() => { element("copy").textContent = "Copy link"; }, 2000);
}

async function showPython() {
  const place = element("python");
  element("code").setAttribute("aria-expanded", String(!place.hidden));
  if (place.hidden) return;
  const answer = await ask(`/api/python?${controls.query()}`);
  place.textContent = answer.code || Object.values(answer.errors).join(" ");
}

// --- beginning -----------------------------------------------------------------------------------------

async function begin() {
  setup = await ask("/api/setup");
  setSymbols(setup.symbols);
  controls.makeControls(setup.controls, setup.deepest, changed);
  const preset = makePresets();
  document.querySelectorAll(".symbols").forEach(explain);
  document.querySelectorAll(".plot").forEach((place) => { place.dataset.empty = "computing …"; });
  showTheme();
  document.addEventListener("themechange", showTheme);
  element("theme").addEventListener("click", () => document.dispatchEvent(new Event("switchtheme")));
  element("reset").addEventListener("click", reset);
  element("train").addEventListener("click", train);
  element("cancel").addEventListener("click", stopTraining);
  element("copy").addEventListener("click", copyLink);
  element("code").addEventListener("click", () => { element("python").hidden = !element("python").hidden; showPython(); });
  const all = document.createElement("a");
  all.href = "/symbols";
  all.textContent = "All symbols, and where the documentation defines them";
  element("footer").append(`finitewidth ${setup.version}, on this machine. The address of this page holds its state. `, all);
  // on a phone the first plot stays in sight while controls are moved
  new IntersectionObserver(([one]) => document.body.classList.toggle("adjusting", one.isIntersecting)).observe(element("controls"));
  let width = window.innerWidth;
  new ResizeObserver(() => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } }).observe(document.body);
  await update();
  if (preset && preset.trains && !job) train();
}

begin().catch((error) => {
  element("banner").hidden = false;
  element("banner").textContent = `The page could not start (${error.message}).`;
});
