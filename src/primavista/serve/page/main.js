// Puts the parts together: the camera, the predictions, the list of objects, and what to do if something is missing.

import { setToken } from "./api.js";
import * as camera from "./camera.js";
import * as correct from "./correct.js";
import * as objects from "./objects.js";
import { Stream } from "./stream.js";
import * as teach from "./teach.js";
import { fill, TEXTS } from "./texts.js";
import * as use from "./use.js";
import { $, announce, banner, dialog, hint, isPressed, learning, make, press, sureness, whenLearning } from "./view.js";

const STEADY = 300; // milliseconds that a new verdict must last before it is shown
const LOCAL = ["localhost", "127.0.0.1", "[::1]"];
let refreshing = false;
let stream = null;
let state = "waiting";

// What is shown changes when the new value has lasted for a moment; the first value, and one that `atOnce` says, is shown at once.
class Steady {
  constructor() {
    this.reset();
  }

  reset() {
    this.shown = this.candidate = "";
    this.since = 0;
  }

  take(value, atOnce = false) {
    const now = performance.now();
    if (value !== this.candidate) [this.candidate, this.since] = [value, now];
    if (atOnce || !this.shown || now - this.since >= STEADY) this.shown = value;
    return this.shown;
  }
}
const steadyVerdict = new Steady();
const steadyWords = new Steady();

async function onResult(result) {
  if (result.version !== objects.model.version && !refreshing) {
    refreshing = true; // taught by this page or by another client
    await objects.refresh().catch(() => {});
    refreshing = false;
  }
  const recent = result.recent ?? result; // what the last second shows, if there was one
  objects.bars(recent);
  if (isPressed($("find")) && !learning) return result.objects && showBoxes(result.objects);
  showVerdict(describe(recent));
}

function showVerdict(verdict) {
  const key = `${verdict.state} ${verdict.name}`;
  const waits = ["known", "unknown"].includes(verdict.state) && !steadyVerdict.shown.startsWith("learning");
  const changed = steadyVerdict.shown !== key;
  if (steadyVerdict.take(key, !waits) !== key) return;
  if (changed) steadyWords.reset();
  $("verdict").dataset.state = $("stage").dataset.verdict = verdict.state;
  $("verdict-name").textContent = verdict.name;
  $("verdict-share").textContent = steadyWords.take(verdict.share);
  objects.mark(verdict.state === "known" ? verdict.name : "", steadyWords.shown);
  if (verdict.name) announce(verdict.name);
}

function clearVerdict() {
  const wait = state === "live" && camera.ready() && objects.model.objects.length && !isPressed($("find"));
  showVerdict({ state: wait ? "waiting" : "none", name: wait ? TEXTS.gettingReady : "", share: "" });
  steadyVerdict.reset(); // the next verdict is the first one
  $("boxes").replaceChildren();
  objects.clearBars();
}

function describe(result) {
  if (learning) return { state: "learning", name: TEXTS.learningName(learning), share: "" };
  const { nothing } = objects.model;
  const taught = result.scores.filter((one) => one.label !== nothing);
  if (!taught.length) return { state: "none", name: "", share: "" };
  const near = result.label !== nothing && (result.familiarity ?? 1) >= 0.5; // nearer than most strangers
  if (!result.known) return { state: "unknown", name: TEXTS.unknown, share: near ? TEXTS.looksLike(result.label) : "" };
  return { state: "known", name: result.label, share: sureness(result) };
}

// Of each name the best box alone: what lies around an object often looks like it.
function showBoxes(all) {
  const found = all.filter(({ label }, k) => all.findIndex((one) => one.label === label) === k);
  $("boxes").replaceChildren(...found.map(({ label, confidence, box }) => {
    const text = make("span", {}, label, " ", make("small", { textContent: sureness({ confidence }) }));
    const made = make("div", { className: "box" }, text);
    made.classList.toggle("low", box.top < 0.08);
    camera.place(made, box.left, box.top, box.right - box.left, box.bottom - box.top);
    return made;
  }));
  announce(TEXTS.found(found.length));
  showVerdict(found.length ? { state: "none", name: "", share: "" } : { state: "unknown", name: TEXTS.found(0), share: "" });
}

function find(on) {
  press($("find"), on);
  $("stage").classList.toggle("finding", on);
  stream.wish("locate", on);
  clearVerdict();
  showButtons();
}

function showButtons() {
  const some = objects.model.objects.length > 0;
  $("wrong").hidden = !some || isPressed($("find"));
  $("find").hidden = $("asking").hidden = !some;
  $("follow").hidden = isPressed($("find"));
}

function onState(next) {
  state = next;
  showLink();
  banner(state === "gone" ? TEXTS.gone : "");
  if (state === "live") objects.refresh().catch(() => {});
  clearVerdict();
}

function showLink() {
  const words = { waiting: TEXTS.connecting, gone: TEXTS.notConnected, live: camera.ready() ? TEXTS.live : TEXTS.noPicture };
  $("link").dataset.state = state;
  $("link").dataset.picture = camera.ready();
  $("link-text").textContent = words[state];
}

async function enter(text = TEXTS.tokenText) {
  try {
    await objects.refresh();
  } catch (error) {
    if (error.status !== 401) return;
    const token = await dialog(TEXTS.tokenTitle, text, "", TEXTS.enter);
    if (token) setToken(token.trim());
    await enter(token ? TEXTS.tokenWrong : TEXTS.tokenText);
  }
}

function acceptDrops() {
  let depth = 0;
  const over = (by) => ($("drop").hidden = (depth += by) <= 0);
  addEventListener("dragenter", () => over(1));
  addEventListener("dragleave", () => over(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    over(-depth);
    camera.useFiles([...event.dataTransfer.files]);
  });
}

async function start() {
  fill();
  objects.setUp(teach.teachMore);
  use.setUp();
  camera.setUp();
  acceptDrops();
  whenLearning(() => {
    if (!learning) return;
    $("boxes").replaceChildren();
    showVerdict(describe());
  });
  camera.onReady(() => {
    showLink();
    clearVerdict();
  });
  objects.onModel((model) => {
    const where = LOCAL.includes(location.hostname) ? TEXTS.thisMachine : location.hostname;
    $("privacy").textContent = TEXTS.privacy(model.recall_seconds, where, model.camera, $("thumbs").checked);
    showButtons();
    if (!model.objects.length) clearVerdict();
  });
  await enter();
  stream = new Stream({ remember: objects.model.recall_seconds ?? 0, onResult, onNotice: correct.onNotice, onState });
  correct.setUp(stream);
  teach.setUp(stream);
  camera.setOwn(objects.model.camera);
  $("find").onclick = () => find(!isPressed($("find")));
  if (objects.model.camera) camera.useOwn();
  else await camera.useCamera();
  if (!objects.model.objects.length) hint(TEXTS.firstHint, "first");
}

start();
