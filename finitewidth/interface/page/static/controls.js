// The controls, the tabs and the address: what was typed is kept as text, and the server checks it.

import { help } from "./help.js";

const GROUPS = [
  ["Network", ["activation", "depth", "width", "gamma"]],
  ["Initialization and learning rates", ["start", "C_b", "C_W", "weights", "lambda_b", "lambda_W"]],
  ["Training", ["algorithm", "time", "learning_rate", "steps"]],
  ["One-dimensional regression", ["target", "points", "noise"]],
  ["Real networks", ["members"]],
];
const SHOWN_WITH = { time: "flow_time", learning_rate: "descent", steps: "descent" };  // the algorithm
const SHOWN_ON = { gamma: "residual", noise: "bayes" };  // the tab
const OF_RESIDUAL = ["activation", "depth", "width", "gamma"];

const element = (id) => document.getElementById(id);
const state = new Map();   // name: text, as it was typed
const fields = new Map();  // name: { about, box, slider, message, row }
let abouts = [], rawQuery = null, deepest = 0, listen = () => {};

export const value = (name) => state.get(name);

// the controls and tabs, with the values of the address; `changed` is told the name of a value that changes
export function makeControls(controls, mostLayers, changed) {
  abouts = controls;
  deepest = mostLayers;
  listen = changed;
  for (const [title, names] of GROUPS) {
    const group = document.createElement("div"), heading = document.createElement("h2");
    group.className = "group";
    heading.textContent = title;
    group.append(heading, ...names.map((name) => makeField(about(name))));
    element("controls").append(group);
  }
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  makeTabs(about("tab").options);
  readAddress();
  addEventListener("popstate", () => { readAddress(); listen("address"); });
}

// the server checks the raw address first: a browser would silently correct parts of it
function readAddress() {
  rawQuery = location.search.slice(1);
  const given = new URLSearchParams(rawQuery);
  for (const { name, default: standard } of abouts) {
    state.set(name, given.get(name) ?? String(standard));
    showValue(name, state.get(name));
  }
  arrange({});
}

const about = (name) => abouts.find((one) => one.name === name);

function makeTabs(options) {
  const tabs = options.map(({ value: name, label }) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `tab-${name}`;
    tab.dataset.name = name;
    tab.textContent = label;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "results");
    tab.addEventListener("click", () => change("tab", name));
    return tab;
  });
  element("tabs").addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
  element("tabs").append(...tabs);
}

function makeField(about) {
  const row = document.createElement("div"), label = document.createElement("label"), name = document.createElement("span");
  row.className = "field";
  row.dataset.name = about.name;
  label.textContent = about.label;
  label.htmlFor = `field-${about.name}`;
  const box = about.options ? makeSelect(about) : makeBox();
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
  box.addEventListener("input", () => change(about.name, box.value));
  if (slider) slider.addEventListener("input", () => { box.value = fromSlider(about, slider); change(about.name, box.value, true); });
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

const isDirect = (about, slider) => Number(slider.min) === about.lowest && about.whole && !about.logarithmic;

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

export function showValue(name, text) {
  if (!fields.has(name)) return;  // the tab
  const { about, box, slider } = fields.get(name);
  if (about.options && !about.options.some((option) => option.value === text) && ![...box.options].some((o) => o.value === text)) {
    box.append(new Option(text.slice(0, 40), text));  // an unknown value of an address is shown, with its message beside it
  }
  box.value = text;
  if (slider) toSlider(about, slider, text);
}

export function set(name, text) {
  state.set(name, text);
  showValue(name, text);
}

function change(name, text, fromItsSlider = false) {
  if (rawQuery !== null && new URLSearchParams(rawQuery).get(name) === null && state.get(name) === text) return;  // nothing new
  const field = fields.get(name);
  state.set(name, text);
  if (field && field.slider && !fromItsSlider) toSlider(field.about, field.slider, text);
  rawQuery = null;
  listen(name, text);
  // Back leads through the tabs, and not through every value of a slider
  history[name === "tab" ? "pushState" : "replaceState"](null, "", query() ? `?${query()}` : location.pathname);
  arrange({});
}

export function reset() {
  const tab = state.get("tab");
  rawQuery = null;
  for (const { name, default: standard } of abouts) set(name, String(standard));
  if (about("tab").options.some((option) => option.value === tab)) state.set("tab", tab);  // one stays where one is
  history.replaceState(null, "", query() ? `?${query()}` : location.pathname);
  arrange({});
}

export function query() {
  if (rawQuery !== null) return rawQuery;
  const different = [...state].filter(([name, text]) => text !== String(about(name).default));
  return new URLSearchParams(different).toString();
}

function isShown(name, tab) {
  if (tab === "residual") return OF_RESIDUAL.includes(name);
  if (name in SHOWN_ON) return SHOWN_ON[name] === tab;
  return !(name in SHOWN_WITH) || SHOWN_WITH[name] === state.get("algorithm");
}

export function arrange(errors) {
  const tab = state.get("tab");
  document.body.dataset.tab = about("tab").options.some((option) => option.value === tab) ? tab : "network";
  for (const one of element("tabs").children) {
    const chosen = one.dataset.name === document.body.dataset.tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
  }
  element("results").setAttribute("aria-labelledby", `tab-${document.body.dataset.tab}`);
  const depth = fields.get("depth");  // with skips there may be more layers
  depth.slider.max = tab === "residual" ? deepest : depth.about.highest;
  toSlider(depth.about, depth.slider, state.get("depth"));
  for (const [name, { row }] of fields) row.hidden = !isShown(name, document.body.dataset.tab) && !(name in errors);
  for (const group of document.querySelectorAll(".group")) group.hidden = ![...group.querySelectorAll(".field")].some((row) => !row.hidden);
  for (const name of ["C_b", "C_W"]) {
    const { box, slider } = fields.get(name), fixed = state.get("start") !== "own" && !(name in errors);
    box.disabled = slider.disabled = fixed;
  }
}

export function showErrors(errors) {
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
