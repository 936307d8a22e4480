// The list of taught objects: live bars, counts, rename, forget, undo, save and load; pictures only if they are allowed.

import { ask, form } from "./api.js";
import { $, dialog, make, plural, sureness, toast } from "./view.js";

const PENCIL = "M4 20l1-4L16 5l3 3L8 19l-4 1zM14 7l3 3";
const CROSS = "M6 6l12 12M18 6L6 18";
const ALLOWED = "primavista-thumbnails";
let rows = new Map();
export let model = { objects: [], advice: [], version: -1, name: "", threshold: 0 };
let listeners = [];

export const onModel = (listener) => listeners.push(listener);
export const adviceOn = (label) => model.advice.find((one) => one.labels.includes(label)); // the most urgent one

export async function refresh() {
  become(await ask("/api/model"));
}

export function become(next) {
  model = next;
  $("model-name").textContent = model.name;
  $("undo").disabled = !model.can_undo;
  $("empty").hidden = model.objects.length > 0;
  $("total").textContent = model.objects.length || "";
  const urgent = model.advice.find((one) => one.kind !== "good enough");
  $("advice").hidden = !model.objects.length;
  $("advice").textContent = `Next: ${urgent ? urgent.text : "nothing, all objects are good enough"}.`;
  if (document.activeElement !== $("threshold")) $("threshold").value = model.threshold;
  showThreshold();
  rows = new Map(model.objects.map((object) => [object.label, row(object)]));
  $("objects").replaceChildren(...[...rows.values()].map((one) => one.item));
  for (const listener of listeners) listener(model);
}

// A bar is how familiar the picture is, shared among the objects: a stranger fills none of them.
export function bars(result) {
  const familiarity = Math.min(Math.max(result.familiarity ?? 1, 0), 1);
  for (const { label, share } of result.scores) {
    const one = rows.get(label);
    if (!one) continue;
    const best = result.known && label === result.label;
    one.fill.style.width = `${100 * share * familiarity}%`;
    one.share.textContent = best ? sureness(result) : "";
    one.item.classList.toggle("best", best);
  }
}

// The threshold belongs to the learner, not to this browser: `known` means the same for everybody who uses the model.
function showThreshold() {
  const value = Number($("threshold").value);
  $("threshold-text").textContent = value.toFixed(2);
  $("threshold").setAttribute("aria-valuetext", `known from a familiarity of ${value.toFixed(2)}`);
}

let settling;
function setThreshold() {
  clearTimeout(settling); // every step of an arrow key is a change, and each would be saved
  settling = setTimeout(() => change("/api/threshold", { json: { threshold: Number($("threshold").value) } }), 400);
}

function row({ label, frames }) {
  const fill = make("i");
  const share = make("span", { className: "object-share" });
  const name = make("span", { className: "object-name", textContent: label, title: label });
  const count = make("span", { className: "object-count", textContent: plural(frames, "frame") });
  const buttons = make("span", { className: "object-buttons" },
    button(PENCIL, `Rename ${label}`, () => rename(label)), button(CROSS, `Forget ${label}`, () => forget(label)));
  const head = make("span", { className: "object-head" }, name, share);
  const foot = make("span", { className: "object-foot" }, make("span", { className: "track", ariaHidden: "true" }, fill), count);
  const item = make("li", {}, head, foot, buttons);
  const picture = pictureOf(label);
  if (picture) item.prepend(make("img", { src: picture, alt: "" }));
  return { item, fill, share };
}

function button(path, label, onclick) {
  const made = make("button", { type: "button", title: label, ariaLabel: label, onclick });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  svg.append(line);
  made.append(svg);
  return made;
}

async function change(path, body, done) {
  try {
    become(await ask(path, { method: "POST", ...body }));
    if (done) toast(done, model.can_undo ? undo : undefined);
    return true;
  } catch (error) {
    toast(error.message);
    return false;
  }
}

async function rename(label) {
  const to = (await dialog(`Rename “${label}”`, "", label, "Rename"))?.trim();
  if (!to || to === label) return;
  if (await change("/api/rename", { json: { label, to } }, `“${label}” is now “${to}”.`)) {
    keepPictures({ ...pictures(), [to]: pictureOf(label), [label]: undefined });
    become(model);
  }
}

async function forget(label) {
  if (await change("/api/forget", { json: { label } }, `“${label}” is forgotten.`)) keepPictures({ ...pictures(), [label]: undefined });
}

export const undo = () => change("/api/undo", {}, "Undone.");

export async function save() {
  try {
    const link = make("a", { href: URL.createObjectURL(await ask("/api/model/file", { blob: true })), download: model.name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) {
    toast(error.message);
  }
}

export async function load(file) {
  const known = plural(model.objects.length, "object");
  const text = model.objects.length ? `It replaces the current model (${known}). Undo brings that one back, and a copy is kept as “${model.name}.before-load”.` : "";
  if (!(await dialog(`Load “${file.name}”?`, text, undefined, "Load"))) return;
  if (await change("/api/model/file", { body: form({ file }) }, "")) toast(`“${file.name}” is loaded: ${plural(model.objects.length, "object")}.`, undo);
}

// Pictures of objects: only if the user allows them, only in this browser, one list per model.
const key = () => `primavista-pictures-${model.name}`;
const pictures = () => (allowed() ? JSON.parse(localStorage.getItem(key()) ?? "{}") : {});
// A name such as "constructor" is a property of every object.
const pictureOf = (label) => (Object.hasOwn(pictures(), label) ? pictures()[label] : undefined);
const allowed = () => localStorage.getItem(ALLOWED) === "yes";

function keepPictures(all) {
  if (allowed()) localStorage.setItem(key(), JSON.stringify(all));
}

export function keepPicture(label, canvas) {
  if (canvas) keepPictures({ ...pictures(), [label]: canvas.toDataURL("image/jpeg", 0.8) });
}

export function setUp() {
  $("thumbs").checked = allowed();
  $("thumbs").onchange = () => {
    if ($("thumbs").checked) localStorage.setItem(ALLOWED, "yes");
    else for (const name of Object.keys(localStorage).filter((one) => one === ALLOWED || one.startsWith("primavista-pictures-"))) localStorage.removeItem(name);
    become(model);
  };
  $("threshold").oninput = showThreshold;
  $("threshold").onchange = setThreshold;
  $("undo").onclick = undo;
  $("save").onclick = save;
  $("load").onclick = () => $("load-file").click();
  $("load-file").onchange = async () => {
    const [file] = $("load-file").files;
    $("load-file").value = "";
    if (file) await load(file);
  };
}
