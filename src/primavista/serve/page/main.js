// Puts the parts together: the camera, the verdict, the boxes, the list of objects, and the messages if something is missing.

import * as backend from "./backend.js";
import * as camera from "./camera.js";
import * as correct from "./correct.js";
import { learning, whenLearning } from "./learning.js";
import * as objects from "./objects.js";
import { Stream } from "./stream.js";
import * as teach from "./teach.js";
import { fill, TEXTS } from "./texts.js";
import * as use from "./use.js";
import { $, announce, banner, hint, isPressed, make, press, setOff, sureness } from "./view.js";

const STEADY = 300; // milliseconds that a new verdict must last before it is shown
const STEADY_ASKING = 1500; // the same while the verdict asks a question, so that this does not go under the finger
const LAST_ANSWER = 2000; // milliseconds after which a new verdict is shown if no other answer has come
const FIND_CHECK = 1000; // milliseconds between two requests that check if the model can find objects
let refreshing = false;
let stream = null;
let state = "waiting"; // of the connection: waiting, live, gone
let confirming = 0; // the timer of a verdict that waits to be shown
let nextFindCheck = 0;
let recentFrames = 0; // from which the last answer came

// A shown value that changes when another one has lasted for a moment. The first value is shown at once, and so is any given with `atOnce`.
class Steady {
  constructor() {
    this.reset();
  }

  reset() {
    this.shown = this.candidate = "";
    this.since = 0;
  }

  take(value, atOnce = false, lasting = STEADY) {
    const now = performance.now();
    if (value !== this.candidate) [this.candidate, this.since] = [value, now];
    if (atOnce || !this.shown || now - this.since >= lasting) this.shown = value;
    return this.shown;
  }
}
const steadyVerdict = new Steady();
const steadyWords = new Steady();

async function onResult(result) {
  if (result.version !== objects.model.version && !refreshing) {
    refreshing = true; // this page or another client has changed the model
    await objects.refresh().catch(() => {});
    refreshing = false;
  }
  if (result.recent_frames === 1 && recentFrames > 1) correct.onVerdict(""); // another scene: a question is over
  recentFrames = result.recent_frames;
  const { recent } = result; // the answer for the last second
  objects.bars(recent);
  if (isPressed($("find")) && !learning) return result.objects && showBoxes(result.objects);
  showVerdict(describe(recent));
}

// A frame was refused. The verdict is about an earlier frame, so it is replaced, unless the next frames are answered.
function onError(reason) {
  if (learning) return;
  showVerdict({ state: "failed", name: TEXTS.noAnswer, share: reason });
  if (isPressed($("find"))) stopFindingIfImpossible();
}

async function stopFindingIfImpossible() {
  if (performance.now() < nextFindCheck) return;
  nextFindCheck = performance.now() + FIND_CHECK;
  if (!(await backend.refusesToLocate(await camera.captureWhole())) || !isPressed($("find"))) return;
  find(false);
  hint(TEXTS.noLocate, "bad");
}

function showVerdict(verdict) {
  clearTimeout(confirming);
  const key = `${verdict.state} ${verdict.name}`;
  const waits = ["known", "likely", "unknown", "failed"].includes(verdict.state) && !steadyVerdict.shown.startsWith("learning");
  const changed = steadyVerdict.shown !== key;
  if (steadyVerdict.take(key, !waits, correct.isAsking() ? STEADY_ASKING : STEADY) !== key) {
    confirming = setTimeout(() => showVerdict(verdict), LAST_ANSWER); // the picture stands still, and is not sent again
    return;
  }
  if (verdict.state === "failed") clearAnswers();
  if (changed) steadyWords.reset();
  $("verdict").dataset.state = $("stage").dataset.verdict = verdict.state;
  $("verdict-name").textContent = verdict.name;
  $("verdict-share").textContent = steadyWords.take(verdict.share);
  objects.mark(verdict.state === "known" ? verdict.name : "", steadyWords.shown);
  correct.onVerdict(verdict.likely ?? "");
  if (verdict.name && !correct.isAsking()) announce(verdict.state === "unknown" && verdict.share ? `${verdict.name}, ${steadyWords.shown}` : verdict.name);
}

function clearVerdict() {
  const wait = state === "live" && camera.ready() && objects.model.objects.length;
  const working = isPressed($("find")) ? TEXTS.searching : TEXTS.gettingReady;
  showVerdict({ state: wait ? "waiting" : "none", name: wait ? working : "", share: "" });
  steadyVerdict.reset(); // the next verdict is shown at once
  clearAnswers();
}

function clearAnswers() {
  $("boxes").replaceChildren();
  objects.clearBars();
}

function describe(result) {
  if (learning) return { state: "learning", name: TEXTS.learningName(learning), share: "" };
  const { nothing } = objects.model;
  const taught = result.scores.filter((one) => one.label !== nothing);
  if (!taught.length) return { state: "none", name: "", share: "" };
  const near = result.label !== nothing && (result.familiarity ?? 1) >= 0.5; // more familiar than most strangers
  if (result.answer === "likely") return { state: "likely", name: TEXTS.likely(result.label), share: "", likely: result.label };
  if (result.answer === "unknown") return { state: "unknown", name: TEXTS.unknown, share: near ? TEXTS.looksLike(result.label) : "" };
  return { state: "known", name: result.label, share: sureness(result) };
}

// Shows the best box of each name. The surroundings of an object often look like it, too, and would have boxes of their own.
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
  correct.allowQuestions();
  clearVerdict();
  showButtons();
}

function showButtons() {
  $("wrong").hidden = $("asking").hidden = !objects.model.objects.length;
  $("find").hidden = !backend.refusesToLocate || !objects.model.objects.length;
  for (const id of ["wrong", "follow"]) setOff($(id), isPressed($("find"))); // they keep their places
}

function onState(next) {
  state = next;
  correct.forgetQuestions();
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

// A key that is held presses a button once: another button may be at its place then, and teach.
function pressOnce(event) {
  if (event.repeat && event.key === "Enter" && event.target.localName === "button") event.preventDefault();
}

async function start() {
  fill();
  addEventListener("keydown", pressOnce);
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
    $("privacy-line").textContent = TEXTS.privacyLine(backend.place(), $("thumbs").checked);
    $("privacy").textContent = TEXTS.privacy(model.recall_seconds, model.camera, $("thumbs").checked);
    showButtons();
    if (!model.objects.length) clearVerdict();
  });
  await backend.enter(objects.refresh);
  stream = new Stream({ remember: objects.model.recall_seconds ?? 0, onResult, onError, onNotice: correct.onNotice, onState });
  correct.setUp(stream);
  teach.setUp(stream);
  camera.setServiceCamera(objects.model.camera);
  $("find").onclick = () => find(!isPressed($("find")));
  if (objects.model.camera) camera.useServiceCamera();
  else await camera.useCamera();
  if (!objects.model.objects.length) hint(TEXTS.firstHint, "first");
}

start();
