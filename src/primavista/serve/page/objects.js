// The list of taught objects: live bars, lessons with small pictures, rename, forget, remove and undo.

import * as backend from "./backend.js";
import { language, TEXTS } from "./texts.js";
import { $, clearToast, dialog, isOff, make, setOff, toast } from "./view.js";

const ICONS = { plus: "M12 5v14M5 12h14", dots: "M5 12h.01M12 12h.01M19 12h.01", cross: "M6 6l12 12M18 6L6 18" };
const ALLOWED = "primavista-thumbnails";
const FILTER_FROM = 12; // objects
const PIN_FROM = 6; // objects
const SHOWN_PICTURES = 4; // of a lesson
let rows = new Map();
let taken = new Map(); // small pictures by the id of their lesson: in the memory of this page only
let earlier = new Map(); // those before the last change, which undo may bring back
let listeners = [];
let onTeachMore = () => {};
export let model = { objects: [], advice: [], lessons: [], version: -1, name: "", threshold: 0, nothing: "nothing", camera: null };

export const onModel = (listener) => listeners.push(listener);
export const labels = () => model.objects.map((object) => object.label);

export async function refresh() {
  become(await backend.model());
}

export function become(next) {
  model = next;
  forgetPictures();
  $("model-name").textContent = model.name;
  setOff($("undo"), !model.can_undo);
  $("undo").textContent = TEXTS.undo;
  $("empty").hidden = model.objects.length > 0;
  $("total").textContent = model.objects.length || "";
  $("advice").hidden = !model.objects.length;
  $("advice").textContent = nextStep();
  if (document.activeElement !== $("threshold")) $("threshold").value = model.threshold;
  showThreshold();
  showRows();
  showKeep();
  for (const listener of listeners) listener(model);
}

// The most urgent advice. Of several that are as urgent, the one about the object that was taught last, which is at hand.
function nextStep() {
  const [first] = model.advice;
  if (!first || first.kind === "good enough") return TEXTS.next(TEXTS.allGood);
  const newest = model.lessons.at(-1)?.label;
  const urgent = model.advice.filter((one) => one.kind === first.kind);
  return TEXTS.next(TEXTS.advice(urgent.find((one) => one.labels.includes(newest)) ?? first));
}

// An object keeps its row for as long as it is taught, so that a change neither moves the focus nor closes an open row.
function showRows() {
  const kept = new Map(model.objects.map((object) => [object.label, rows.get(object.label) ?? row(object.label)]));
  for (const [label, one] of rows) if (!kept.has(label)) one.item.remove();
  rows = kept;
  for (const object of model.objects) update(rows.get(object.label), object);
  const items = [...rows.values()].map((one) => one.item);
  if (items.some((item, k) => $("objects").children[k] !== item)) $("objects").replaceChildren(...items);
  $("objects").classList.toggle("pins", items.length > PIN_FROM);
  $("filter").hidden = items.length <= FILTER_FROM;
  for (const id of taken.keys()) if (!model.lessons.some((lesson) => lesson.id === id)) taken.delete(id);
  filter();
}

function filter() {
  const wanted = $("filter").hidden ? "" : $("filter").value.trim().toLowerCase();
  let found = 0;
  for (const [label, { item }] of rows) {
    item.hidden = !label.toLowerCase().includes(wanted);
    found += item.hidden ? 0 : 1;
  }
  $("no-match").hidden = found > 0 || !rows.size;
}

// The bars divide the familiarity of the picture among the objects: a stranger fills none of them.
export function bars(result) {
  const familiarity = Math.min(Math.max(result.familiarity ?? 1, 0), 1);
  for (const { label, share } of result.scores) {
    const one = rows.get(label);
    if (one) one.fill.style.width = `${100 * share * familiarity}%`;
  }
}

export function clearBars() {
  for (const one of rows.values()) one.fill.style.width = "0";
}

// Marks the row of the object in the verdict; `best` is empty if there is none.
export function mark(best, words) {
  for (const [label, one] of rows) {
    one.item.classList.toggle("best", label === best);
    if (!one.item.ariaBusy) one.share.textContent = label === best ? words : "";
  }
}

// The threshold belongs to the model, not to this browser: `known` means the same for everybody who uses the model.
function showThreshold() {
  const value = Number($("threshold").value);
  $("threshold-text").textContent = value.toLocaleString(language, { minimumFractionDigits: 2 });
  $("threshold").setAttribute("aria-valuetext", TEXTS.thresholdText(value));
}

let settling;
function setThreshold() {
  clearTimeout(settling); // every step of an arrow key is a change; only the last one is saved
  settling = setTimeout(() => change("threshold", { threshold: Number($("threshold").value) }), 400);
}

function row(label) {
  const fill = make("i");
  const share = make("span", { className: "object-share" });
  const name = make("span", { className: "object-name", textContent: label, title: label });
  const count = make("span", { className: "object-count" });
  const picture = make("span", { className: "object-picture", ariaHidden: "true" });
  const head = make("span", { className: "object-head" }, name, share);
  const foot = make("span", { className: "object-foot" }, make("span", { className: "track", ariaHidden: "true" }, fill), count);
  const panel = make("div", { className: "object-panel", hidden: true });
  const open = icon("dots", TEXTS.more(label), () => {
    panel.hidden = !panel.hidden;
    open.ariaExpanded = String(!panel.hidden);
  });
  open.ariaExpanded = "false";
  const more = icon("plus", TEXTS.teachMore(label), () => onTeachMore(label));
  const buttons = make("span", { className: "object-buttons" }, more, open);
  const lessons = make("ul", { className: "lessons" });
  const older = make("p", { className: "quiet small", textContent: TEXTS.olderLessons });
  const changes = make("div", { className: "bar" },
    make("button", { type: "button", textContent: TEXTS.rename, ariaLabel: TEXTS.renameName(label), onclick: () => rename(label) }),
    make("button", { type: "button", textContent: TEXTS.forget, ariaLabel: TEXTS.forgetName(label), onclick: () => forget(label) }));
  panel.append(lessons, older, changes);
  return { item: make("li", {}, picture, head, foot, buttons, panel), fill, share, count, picture, lessons, older };
}

function update(one, { label, frames }) {
  one.count.textContent = TEXTS.frames(frames);
  const own = model.lessons.filter((lesson) => lesson.label === label);
  const known = own.reduce((sum, lesson) => sum + lesson.frames, 0);
  one.older.hidden = known >= frames;
  one.lessons.replaceChildren(...own.map((lesson, k) => lessonItem(lesson, k + 1)));
  const newest = own.map((lesson) => taken.get(lesson.id)).filter((pictures) => pictures?.length).at(-1);
  const kept = pictureOf(label);
  if (newest) one.picture.replaceChildren(copied(newest[Math.floor(newest.length / 2)]));
  else if (kept) one.picture.replaceChildren(make("img", { src: kept, alt: "" }));
  else one.picture.textContent = [...label][0]?.toUpperCase() ?? "";
}

function lessonItem(lesson, number) {
  const remove = icon("cross", TEXTS.removeLesson(number, lesson.label), () => removeLesson(lesson));
  const shown = make("span", { className: "lesson-pictures", ariaHidden: "true" }, ...(taken.get(lesson.id) ?? []));
  return make("li", {}, shown, make("span", { className: "small", textContent: TEXTS.lessonName(number, lesson.frames) }), remove);
}

function copied(canvas) {
  const copy = make("canvas", { width: canvas.width, height: canvas.height });
  copy.getContext("2d").drawImage(canvas, 0, 0);
  return copy;
}

function icon(name, label, onclick) {
  const made = make("button", { type: "button", title: label, ariaLabel: label, onclick });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", ICONS[name]);
  svg.append(line);
  made.append(svg);
  return made;
}

// Shows in a row what is being done to its object; returns the function that ends this.
function busy(label, text) {
  const one = rows.get(label);
  if (!one) return () => {};
  one.item.ariaBusy = "true";
  one.share.textContent = text;
  return () => {
    one.item.ariaBusy = null;
    one.share.textContent = "";
  };
}

export async function change(kind, fields, done, label = "", doing = "") {
  clearToast();
  const over = busy(label, doing);
  const before = new Map(taken);
  try {
    become(await backend.change(kind, fields));
    earlier = before;
    if (done) toast(done, model.can_undo ? undo : undefined);
    return true;
  } catch (error) {
    toast(error.message);
    return false;
  } finally {
    over();
  }
}

async function rename(label) {
  const to = (await dialog(TEXTS.renameTitle(label), "", label, TEXTS.rename))?.trim();
  if (!to || to === label) return;
  const picture = pictureOf(label);
  if (await change("rename", { label, to }, TEXTS.renamed(label, to), label, TEXTS.renaming)) {
    keepPictures({ ...pictures(), [to]: picture });
    become(model);
    rows.get(to)?.item.querySelector("button").focus();
  }
}

async function forget(label) {
  const place = [...rows.keys()].indexOf(label);
  if (!(await change("forget", { label }, TEXTS.forgotten(label), label, TEXTS.forgetting))) return;
  focusRow(place);
}

async function removeLesson({ id, label }) {
  const place = [...rows.keys()].indexOf(label);
  if (!(await change("remove", { lesson: id }, TEXTS.removed(label), label, TEXTS.removing))) return;
  const open = rows.get(label)?.item.querySelector("[aria-expanded]");
  if (open) open.focus();
  else focusRow(place);
}

// Moves the focus to the row that took the place of one that is gone.
function focusRow(place) {
  const left = [...rows.values()];
  const near = left[Math.min(place, left.length - 1)];
  (near ? near.item.querySelector("button") : $("name")).focus();
}

export async function undo() {
  if (isOff($("undo"))) return;
  setOff($("undo"), true);
  $("undo").textContent = TEXTS.undoing;
  taken = new Map([...earlier, ...taken]);
  if (await change("undo", {}, "")) toast(TEXTS.undone);
  else become(model);
}

// Keeps a few of the small pictures (canvases) of a lesson, evenly spread.
export function keepLesson(id, label, canvases) {
  const step = Math.max(1, Math.ceil(canvases.length / SHOWN_PICTURES));
  const chosen = canvases.filter((_, k) => k % step === 0).slice(0, SHOWN_PICTURES);
  taken.set(id, chosen);
  if (chosen.length) keepPictures({ ...pictures(), [label]: coded(chosen) });
}

const coded = (canvases) => canvases.at(-1).toDataURL("image/jpeg", 0.8);

// One picture per object outlives the page if the user allows it: in the storage of this browser, one list per model.
const key = () => `primavista-pictures-${model.name}`;
const allowed = () => localStorage.getItem(ALLOWED) === "yes";
// A name such as "constructor" is a property of every object.
const pictureOf = (label) => (Object.hasOwn(pictures(), label) ? pictures()[label] : undefined);
const pictures = () => (allowed() ? JSON.parse(localStorage.getItem(key()) ?? "{}") : {});

function keepPictures(all) {
  if (allowed()) localStorage.setItem(key(), JSON.stringify(all));
}

// Removes the pictures of objects that are gone: forgotten, undone, or without a lesson.
function forgetPictures() {
  const known = labels();
  keepPictures(Object.fromEntries(Object.entries(pictures()).filter(([label]) => known.includes(label))));
}

// Allows that, and keeps the pictures of the lessons so far; or forbids it, and removes all.
function allow(yes) {
  localStorage.setItem(ALLOWED, yes ? "yes" : "no");
  for (const name of Object.keys(localStorage)) if (!yes && name.startsWith("primavista-pictures-")) localStorage.removeItem(name);
  const lessons = model.lessons.filter((lesson) => taken.get(lesson.id)?.length);
  keepPictures({ ...pictures(), ...Object.fromEntries(lessons.map(({ id, label }) => [label, coded(taken.get(id))])) });
  $("thumbs").checked = yes;
  become(model);
}

// The user is asked once, after the first lesson on this page. The box below says and changes the answer.
function showKeep() {
  $("keep").hidden = !taken.size || localStorage.getItem(ALLOWED) !== null;
  $("option").hidden = !$("keep").hidden;
}

export function setUp(teachMore) {
  onTeachMore = teachMore;
  $("thumbs").checked = allowed();
  $("thumbs").onchange = () => allow($("thumbs").checked);
  for (const [id, yes] of [["keep-yes", true], ["keep-no", false]]) {
    $(id).onclick = () => {
      allow(yes);
      $("thumbs").focus(); // it has taken the place of the question
    };
  }
  $("filter").oninput = filter;
  $("threshold").oninput = showThreshold;
  $("threshold").onchange = setThreshold;
  $("undo").onclick = undo;
}
