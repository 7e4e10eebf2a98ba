// Controls, address and requests. The server checks all values, and its messages are shown as text.

import { explain, help, setSymbols } from "./help.js";
import * as plots from "./plots.js";

const GROUPS = [
  ["Network", ["activation", "depth", "width"]],
  ["Initialization and learning rates", ["start", "C_b", "C_W", "lambda_b", "lambda_W"]],
  ["Training", ["algorithm", "time", "learning_rate", "steps"]],
  ["One-dimensional regression", ["target", "points"]],
  ["Real networks", ["members"]],
];
const SHOWN_WITH = { time: ["flow_time"], learning_rate: ["descent"], steps: ["descent"] };
const DEBOUNCE = 30, POLL = 250;

const element = (id) => document.getElementById(id);
const state = new Map();   // name: text, as it was typed
const fields = new Map();  // name: { about, box, slider, message, row }
let setup, current = {}, controller = null, timer = null, job = null, rawQuery = null;

// --- controls ------------------------------------------------------------------------------------------

function makeControls() {
  for (const [title, names] of GROUPS) {
    const heading = document.createElement("h2");
    heading.textContent = title;
    document.querySelector(".training").before(heading, ...names.map((name) => makeField(setup.controls.find((c) => c.name === name))));
  }
  element("controls").addEventListener("submit", (event) => event.preventDefault());
}

function makeField(about) {
  const row = document.createElement("div"), label = document.createElement("label"), name = document.createElement("span");
  row.className = "field";
  row.dataset.name = about.name;
  label.textContent = about.label;
  label.htmlFor = `field-${about.name}`;
  const box = about.options ? makeSelect(about) : makeBox(about);
  box.id = label.htmlFor;
  box.name = about.name;
  const message = document.createElement("p");
  message.className = "message";
  message.id = `message-${about.name}`;
  message.hidden = true;
  box.setAttribute("aria-describedby", message.id);
  name.className = "name";
  name.append(label, help(about.name, about.label));
  const slider = about.options ? null : makeSlider(about);
  row.append(name, ...(slider ? [slider] : []), box, message);
  box.addEventListener("input", () => changed(about.name, box.value));
  if (slider) slider.addEventListener("input", () => { box.value = fromSlider(about, slider); changed(about.name, box.value, true); });
  fields.set(about.name, { about, box, slider, message, row });
  return row;
}

function makeSelect(about) {
  const box = document.createElement("select");
  for (const { value, label } of about.options) box.append(new Option(label, value));
  return box;
}

function makeBox() {
  const box = document.createElement("input");
  box.type = "text";
  box.inputMode = "decimal";
  return box;
}

// a slider has 200 positions; the box beside it takes any number
function makeSlider(about) {
  const slider = document.createElement("input");
  slider.type = "range";
  const few = about.whole && about.highest - about.lowest <= 200 && !about.logarithmic;
  Object.assign(slider, few ? { min: about.lowest, max: about.highest, step: 1 } : { min: 0, max: 200, step: 1 });
  slider.setAttribute("aria-label", `${about.label}, slider`);
  return slider;
}

const isDirect = (about, slider) => Number(slider.max) === about.highest && Number(slider.min) === about.lowest;

function fromSlider(about, slider) {
  if (isDirect(about, slider)) return slider.value;
  const part = slider.value / 200;
  const value = about.logarithmic ? about.lowest * (about.highest / about.lowest) ** part : about.lowest + part * (about.highest - about.lowest);
  return about.whole ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

function toSlider(about, slider, text) {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) return;
  if (isDirect(about, slider)) { slider.value = value; return; }
  const part = about.logarithmic ? Math.log(value / about.lowest) / Math.log(about.highest / about.lowest) : (value - about.lowest) / (about.highest - about.lowest);
  slider.value = Math.round(200 * part);
}

function showValue(name, text) {
  const { about, box, slider } = fields.get(name);
  if (about.options && !about.options.some((option) => option.value === text) && ![...box.options].some((o) => o.value === text)) {
    box.append(new Option(text.slice(0, 40), text));  // an unknown value of an address is shown, with its message beside it
  }
  box.value = text;
  if (slider) toSlider(about, slider, text);
}

function changed(name, text, fromItsSlider = false) {
  const { about, slider } = fields.get(name);
  state.set(name, text);
  if (slider && !fromItsSlider) toSlider(about, slider, text);
  if (name === "start" && text === "own" && current.critical && current.critical.C_W !== null) {
    for (const [field, value] of [["C_b", current.critical.C_b], ["C_W", current.critical.C_W]]) {
      state.set(field, String(Number(value.toPrecision(9))));
      showValue(field, state.get(field));
    }
  }
  rawQuery = null;
  history.replaceState(null, "", query() ? `?${query()}` : location.pathname);
  arrange({});
  if (name !== "members") { stopTraining(); current.sampled = null; }
  schedule();
}

function query() {
  if (rawQuery !== null) return rawQuery;
  const different = [...state].filter(([name, text]) => text !== String(fields.get(name).about.default));
  return new URLSearchParams(different).toString();
}

function arrange(errors) {
  for (const [name, { row }] of fields) {
    row.hidden = name in SHOWN_WITH && !SHOWN_WITH[name].includes(state.get("algorithm")) && !(name in errors);
  }
  for (const name of ["C_b", "C_W"]) {
    const { box, slider } = fields.get(name), fixed = state.get("start") !== "own" && !(name in errors);
    box.disabled = slider.disabled = fixed;
  }
}

function showErrors(errors) {
  arrange(errors);
  for (const [name, { box, message }] of fields) {
    message.hidden = !(name in errors);
    message.textContent = errors[name] || "";
    if (name in errors) box.setAttribute("aria-invalid", "true"); else box.removeAttribute("aria-invalid");
  }
  const rest = Object.entries(errors).filter(([name]) => !fields.has(name) && !["regression", "finite", "train"].includes(name)).map(([, text]) => text);
  element("banner").hidden = !rest.length;
  element("banner").textContent = rest.join(" ");
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
  const asked = query();
  busy("computing …");
  try {
    const answer = await ask(`/api/theory?${asked}`, { signal: mine.signal });
    showErrors(answer.errors || {});
    if (!answer.regression && !current.lastGood) showTheory(await ask("/api/theory", { signal: mine.signal }));
    if (answer.critical) showTheory(answer); else markStale();
    document.body.dataset.drawn = asked;
    if (answer.regression && !answer.finite_missing) await refine(asked, mine.signal);
    document.body.dataset.refined = asked;
    busy("");
  } catch (error) {
    if (error.name === "AbortError") return;  // a newer request has replaced this one
    busy("");
    element("banner").hidden = false;
    element("banner").textContent = `No answer from the server (${error.message}); is finitewidth page still running?`;
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
    showTrust(`${VERDICTS[worst]}: ${warning || "of trained networks, what it neglects is small."}`);
    drawRegression();
  }
  drawRegression();
}

function busy(text) { element("busy").textContent = text; }

// wrong values leave the last good plots in grey; an address that begins with them, those of the default state
function markStale() {
  document.querySelectorAll(".plot, #verdict").forEach((place) => place.classList.add("stale"));
}

// --- showing -------------------------------------------------------------------------------------------

function showTheory(answer) {
  const { critical } = answer;
  const { sampled, lastGood } = current;
  current = { ...answer, lastGood: answer.regression || lastGood, sampled, finite: null, finiteNote: answer.finite_missing };
  const badge = { critical: "critical", close: "nearly critical", off: "not critical" };
  element("state").textContent = badge[critical.verdict.state];
  element("state").dataset.state = critical.verdict.state;
  element("text").textContent = critical.verdict.text;
  element("findings").replaceChildren(...[...critical.findings, ...critical.advice].map(item));
  element("why").textContent = `Class ${critical.class}. ${critical.why}`;
  element("verdict").classList.remove("stale");
  showTrust(critical.width);
  element("width-note").textContent = answer.depth.missing;
  if (state.get("start") !== "own") {
    for (const name of ["C_b", "C_W"]) showValue(name, String(Number(critical[name].toPrecision(6))));
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
  if (!current.depth) return;
  plots.overDepth(element("kernel"), current.depth, "K", "signals: kernel K over depth");
  plots.overDepth(element("ntk"), current.depth, "Theta", "neural tangent kernel Θ over depth");
  plots.ratios(element("ratios"), current.depth);
  drawRegression();
}

function drawRegression() {
  const data = { ...current.lastGood, finite: current.finite, verdict: current.verdict, sampled: current.sampled, span: setup.span };
  plots.regression(element("regression"), data);
  plots.shift(element("shift"), data);
  plots.spread(element("spread"), data);
  if (!current.regression) {
    for (const id of ["regression", "shift", "spread"]) element(id).classList.add("stale");
    element("regression-note").textContent = Object.values(current.errors || {}).join(" ");
    return;
  }
  const rate = current.regression.largest_learning_rate;
  const hint = state.get("algorithm") === "descent" && rate !== null ? `Gradient descent is stable below η = ${rate.toPrecision(3)}. ` : "";
  element("regression-note").textContent = hint + (current.finiteNote || "");
}

// --- real networks -------------------------------------------------------------------------------------

async function train() {
  stopTraining();
  const mine = (job = { id: null, ended: false });
  const asked = query();
  trainingNote("starting …");
  element("train").disabled = true;
  element("cancel").hidden = element("progress").hidden = false;
  element("progress").removeAttribute("value");
  try {
    const answer = await ask("/api/jobs", { method: "POST", body: asked });
    if (answer.errors) {
      showErrors(answer.errors);
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
  const sampled = status.result;
  if (sampled && sampled !== current.sampled && (!current.sampled || current.sampled.members !== sampled.members)) {
    current.sampled = sampled;
    drawRegression();
  }
  if (status.progress) element("progress").value = status.progress;
  const trained = sampled ? `${sampled.members} of ${sampled.of} networks` : "compiling and training the first networks …";
  if (status.state === "waiting") trainingNote(`waiting for ${status.before} other training(s) …`);
  else if (status.state === "running") trainingNote(trained);
  else {
    const notes = sampled && sampled.notes.length ? ` ${sampled.notes.join(" ")}` : "";
    endTraining(mine, status.state === "finished" ? `${sampled.members} networks trained.${notes}` : status.message || "cancelled");
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
  rawQuery = null;
  for (const { name, default: value } of setup.controls) { state.set(name, String(value)); showValue(name, String(value)); }
  history.replaceState(null, "", location.pathname);
  stopTraining();
  current.sampled = null;
  arrange({});
  schedule();
}

function showTheme() {
  const dark = document.documentElement.dataset.theme === "dark";
  element("theme").textContent = dark ? "Light" : "Dark";
  element("theme").setAttribute("aria-pressed", String(dark));
  plots.setLook(dark ? setup.dark_look : setup.look);
  const stale = [...document.querySelectorAll(".plot.stale")];
  draw();
  stale.forEach((place) => place.classList.add("stale"));
}

// --- beginning -----------------------------------------------------------------------------------------

async function begin() {
  setup = await ask("/api/setup");
  setSymbols(setup.symbols);
  makeControls();
  document.querySelectorAll(".symbols").forEach(explain);
  showTheme();
  document.addEventListener("themechange", showTheme);
  element("theme").addEventListener("click", () => document.dispatchEvent(new Event("switchtheme")));
  element("reset").addEventListener("click", reset);
  // the server checks the raw address first: a browser would silently correct parts of it
  rawQuery = location.search.slice(1);
  const given = new URLSearchParams(rawQuery);
  for (const about of setup.controls) {
    state.set(about.name, given.get(about.name) ?? String(about.default));
    showValue(about.name, state.get(about.name));
  }
  arrange({});
  element("train").addEventListener("click", train);
  element("cancel").addEventListener("click", stopTraining);
  element("footer").textContent = `finitewidth ${setup.version}, on this machine. The address of this page holds its state.`;
  let width = window.innerWidth;
  new ResizeObserver(() => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } }).observe(document.body);
  update();
}

begin().catch((error) => {
  element("banner").hidden = false;
  element("banner").textContent = `The page could not start (${error.message}).`;
});
