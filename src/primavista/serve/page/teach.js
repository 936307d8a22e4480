// Teaching and checking: while the button is held, the frames of a lesson or of a check are captured.

import * as backend from "./backend.js";
import * as camera from "./camera.js";
import { holdable } from "./hold.js";
import { setLearning } from "./learning.js";
import * as objects from "./objects.js";
import { TEXTS } from "./texts.js";
import { $, announce, dialog, hint, percent, setOff } from "./view.js";

const CAPTURE_INTERVAL = 1000 / 20; // milliseconds
const MIN_FRAMES = 5;
const MAX_CHECK_FRAMES = 200;
const STRIP_EVERY = 3; // every third frame is shown in the strip
let lesson = null;
let frames = [];
let timer = 0;
let newestFrame = ""; // the identity of the newest frame of the lesson
let lessonSource = 0; // the identity of the source of its frames
let pictures = []; // small pictures of the lesson

const mode = () => document.querySelector("input[name=mode]:checked").value;
const label = () => (mode() === "check" ? $("which").value : $("name").value.trim());

function begin(stream) {
  if (!camera.ready()) return hint(TEXTS.noPictureYet, "bad");
  if (!stream.live) return hint(TEXTS.serviceGoneTeach, "bad");
  if (!label()) {
    hint(TEXTS.nameFirst, "bad");
    return setTimeout(() => $("name").focus());
  }
  if (mode() === "teach" && nearlyTaught(label())) return void setTimeout(chooseName);
  stream.paused = true;
  lessonSource = camera.sourceId();
  frames = [];
  pictures = [];
  $("strip").replaceChildren();
  $("strip").classList.remove("gone");
  $("stage").classList.add("recording");
  $("hold-text").textContent = mode() === "check" ? TEXTS.checking : TEXTS.letGo;
  hint(TEXTS.turnSlowly);
  announce(TEXTS.capturing);
  if (mode() === "teach") lesson = new backend.Lesson(label(), showProgress);
  timer = setInterval(() => capture(), CAPTURE_INTERVAL);
  capture();
}

// Returns the taught name that differs from `name` in its capitals only: "cup" for "Cup". Such names are asked about once.
const meant = new Set(); // names that the user means as they are
function nearlyTaught(name) {
  const labels = objects.labels();
  if (labels.includes(name) || meant.has(name)) return "";
  return labels.find((one) => one.toLowerCase() === name.toLowerCase()) ?? "";
}

async function chooseName() {
  const name = label();
  const other = nearlyTaught(name);
  const chosen = await dialog(TEXTS.almostTitle(name, other), TEXTS.almost(name, other), undefined, TEXTS.almostOld(other), TEXTS.almostNew(name));
  if (chosen === true) $("name").value = other;
  if (chosen === "other") meant.add(name);
  $("hold").focus();
}

// A lesson is not taught if its source is lost before the button is released.
const isLost = () => !camera.ready() || camera.sourceId() !== lessonSource;
const letGo = () => $("hold").dispatchEvent(new Event("blur"));

async function capture() {
  if (isLost()) return letGo();
  const number = frames.length + 1;
  const id = camera.frameId();
  if (newestFrame === id) return;
  newestFrame = id;
  const frame = await camera.captureFrame();
  if (!timer) return;
  if (lesson ? !lesson.add(frame) : frames.length >= MAX_CHECK_FRAMES) {
    if (newestFrame === id) newestFrame = ""; // it was not taken, and may be when the service is ready
    return;
  }
  frames.push(lesson ? null : frame);
  $("hold-count").textContent = frames.length;
  if (number % STRIP_EVERY === 1) {
    const picture = camera.thumbnail(96);
    pictures.push(picture);
    if (pictures.length > 60) pictures = pictures.filter((_, k) => k % 2 === 0);
    $("strip").append(picture);
    while ($("strip").childElementCount > 40) $("strip").firstElementChild.remove();
  }
  if (lesson && frames.length >= objects.model.max_frames) letGo();
}

async function end(stream) {
  if (!timer) return;
  clearInterval(timer);
  timer = 0;
  performance.mark("released");
  const name = label();
  $("stage").classList.remove("recording");
  $("hold-count").textContent = "";
  stream.paused = false;
  const few = frames.length < MIN_FRAMES;
  if (isLost()) {
    lesson?.cancel();
    hint(TEXTS.pictureLost, "bad");
  } else if (lesson && !lesson.open) {
    hint(stream.live ? TEXTS.connectionLost : TEXTS.serviceGoneTeach, "bad");
  } else if (few) {
    lesson?.cancel();
    hint(TEXTS.holdLonger, "bad");
  } else {
    await (lesson ? learn(name) : check(name));
  }
  lesson = null;
  frames = [];
  $("strip").classList.add("gone");
  showMode();
}

async function learn(name) {
  setOff($("hold"), true);
  $("hold-text").textContent = TEXTS.learningButton;
  setLearning(name);
  try {
    learned(name, await lesson.end());
  } catch (error) {
    hint(error.message, "bad");
  }
  reset();
}

async function learned(name, job) {
  if (job.already_taught) return hint(TEXTS.taughtBefore, "bad");
  performance.mark("learned", { detail: job });
  objects.keepLesson(job.id, name, pictures);
  $("name").value = "";
  const text = TEXTS.learned(job.label, job.frames, job.seconds);
  hint(text, "good");
  announce(TEXTS.learnedShort(job.label));
  await objects.refresh();
  const praise = objects.model.advice.find((one) => one.kind === "good enough" && one.labels.includes(job.label));
  if (praise && $("hint").textContent === text) hint(`${text} ${TEXTS.tested(TEXTS.advice(praise))}`, "good"); // unless the next lesson has begun
}

async function check(name) {
  setOff($("hold"), true);
  $("hold-text").textContent = TEXTS.counting;
  try {
    const found = await backend.check(name, frames);
    const others = Object.entries(found.taken_for).map(([other, count]) => `${other} ${count}`);
    const wrong = others.length ? TEXTS.takenFor(others.join(", ")) : "";
    hint(TEXTS.checked(name, found.right, found.frames, percent(found.accuracy), wrong), "good");
  } catch (error) {
    hint(error.message, "bad");
  }
  reset();
}

// Teaches a whole video or a set of images at once.
async function teachWhole(again = false) {
  const name = $("name").value.trim();
  if (!name) {
    hint(TEXTS.nameFirst, "bad");
    return $("name").focus();
  }
  if (nearlyTaught(name)) return chooseName();
  setOff($("hold"), true);
  setOff($("whole"), true);
  setLearning(name);
  hint(TEXTS.uploading);
  try {
    const job = await backend.teachFiles(name, camera.kind, camera.file, again, showProgress);
    if (job.already_taught && (await dialog(TEXTS.taughtTwiceTitle, TEXTS.taughtTwice, undefined, TEXTS.teachAgain))) return teachWhole(true);
    if (camera.ready()) await camera.captureFrame();
    pictures = camera.ready() ? [camera.thumbnail(96)] : [];
    await learned(name, job);
  } catch (error) {
    hint(error.message, "bad");
  }
  setOff($("whole"), false);
  reset();
  showMode();
}

function showProgress(job) {
  $("progress").hidden = false;
  if (job.progress === null) $("progress").removeAttribute("value");
  else $("progress").value = job.progress;
  hint(job.state === "queued" ? TEXTS.queued : TEXTS.learningFrames(job.frames, job.label));
}

function reset() {
  setLearning("");
  $("progress").hidden = true;
  setOff($("hold"), false);
}

function showMode() {
  const checking = mode() === "check";
  $("name").hidden = checking;
  $("which").hidden = !checking;
  $("name-label").textContent = checking ? TEXTS.whichOne : TEXTS.whatIsIt;
  $("hold-text").textContent = checking ? TEXTS.holdToCheck : TEXTS.holdToTeach;
  setOff($("hold"), checking && !objects.model.objects.length);
  const known = objects.labels();
  $("nothing").hidden = checking || known.length < 2 || known.includes(objects.model.nothing);
}

// Prepares another lesson of an object; the plus in its row calls this.
export function teachMore(name) {
  const teaching = document.querySelector("input[name=mode][value=teach]");
  if (!teaching.checked) teaching.click();
  $("name").value = name;
  $("hold").focus();
  hint(TEXTS.teachMoreHint(name));
}

export function setUp(stream) {
  holdable($("hold"), () => begin(stream), () => end(stream));
  for (const radio of document.querySelectorAll("input[name=mode]")) {
    radio.onchange = () => {
      showMode();
      hint(mode() === "check" ? TEXTS.checkHint : TEXTS.firstHint, mode() === "check" ? "" : "first");
    };
  }
  $("name").onkeydown = (event) => {
    if (event.key === "Enter") $("hold").focus();
  };
  $("whole").onclick = () => $("whole").ariaDisabled === "true" || teachWhole();
  $("nothing").onclick = () => {
    $("name").value = objects.model.nothing;
    $("hold").focus();
    hint(TEXTS.removeObject);
  };
  objects.onModel((model) => {
    const labels = model.objects.map((object) => object.label);
    $("names").replaceChildren(...labels.map((value) => Object.assign(document.createElement("option"), { value })));
    const chosen = $("which").value;
    $("which").replaceChildren(...labels.map((name) => new Option(name, name, false, name === chosen)));
    if (!timer && !lesson) showMode();
  });
}
