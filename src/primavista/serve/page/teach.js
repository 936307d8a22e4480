// The button that is held: it captures the frames of a lesson, or of a quick check of what was learned.

import { ask, form } from "./api.js";
import * as camera from "./camera.js";
import { holdable } from "./hold.js";
import { Lesson } from "./lesson.js";
import * as objects from "./objects.js";
import { $, announce, dialog, hint, percent, plural } from "./view.js";

const CAPTURE_INTERVAL = 1000 / 20; // milliseconds
const MIN_FRAMES = 5;
const MAX_CHECK_FRAMES = 200;
const STRIP_EVERY = 3; // every third frame is shown in the strip
const FIRST_HINT = $("hint").textContent;
let lesson = null;
let frames = [];
let timer = 0;
let last = null;
export let learning = ""; // the name of the object that is being learned

const mode = () => document.querySelector("input[name=mode]:checked").value;
const label = () => (mode() === "check" ? $("which").value : $("name").value.trim());

function begin(stream) {
  if (!camera.ready()) return hint("There is no picture yet: allow the camera, or open a video or images.", "bad");
  if (!label()) {
    hint("Enter a name first.", "bad");
    return setTimeout(() => $("name").focus());
  }
  stream.paused = true;
  frames = [];
  last = null;
  $("strip").replaceChildren();
  $("strip").classList.remove("gone");
  $("stage").classList.add("recording");
  $("hold-text").textContent = mode() === "check" ? "Checking" : "Release to learn";
  hint("Turn the object slowly, and show it from near and far.");
  announce("Capturing");
  if (mode() === "teach") lesson = new Lesson(label(), showProgress);
  timer = setInterval(() => capture(), CAPTURE_INTERVAL);
  capture();
}

async function capture() {
  const number = frames.length + 1;
  const frame = await camera.captureFrame();
  if (!timer) return;
  if (lesson ? !lesson.add(frame) : frames.length >= MAX_CHECK_FRAMES) return;
  frames.push(lesson ? null : frame);
  $("hold-count").textContent = frames.length;
  if (number % STRIP_EVERY === 1) {
    last = camera.thumbnail(96);
    $("strip").append(last);
    while ($("strip").childElementCount > 40) $("strip").firstElementChild.remove();
  }
  if (lesson && frames.length >= objects.model.max_frames) $("hold").dispatchEvent(new Event("blur"));
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
  if (few) {
    lesson?.cancel();
    hint("Hold the button longer, for a few seconds.", "bad");
  } else {
    await (lesson ? learn(name) : check(name));
  }
  lesson = null;
  frames = [];
  $("strip").classList.add("gone");
  showMode();
}

async function learn(name) {
  $("hold").disabled = true;
  $("hold-text").textContent = "Learning";
  learning = name;
  try {
    learned(name, await lesson.end());
  } catch (error) {
    hint(error.message, "bad");
  }
  reset();
}

async function learned(name, job) {
  if (job.already_taught) return hint("These frames were taught before, so they were left out: nothing was changed.", "bad");
  performance.mark("learned", { detail: job });
  objects.keepPicture(name, last);
  $("name").value = "";
  const text = `“${job.label}” learned from ${plural(job.frames, "frame")} in ${job.seconds.toFixed(1)} s. The frames were deleted.`;
  hint(text, "good");
  announce(`${job.label} learned`);
  await objects.refresh();
  const next = objects.adviceOn(job.label);
  if (next && $("hint").textContent === text) hint(`${text} Next: ${next.text}.`, "good"); // unless the next lesson began
}

async function check(name) {
  $("hold").disabled = true;
  $("hold-text").textContent = "Counting";
  try {
    const found = await ask("/api/check", { body: form({ label: name, frames }) });
    const others = Object.entries(found.taken_for).map(([other, count]) => `${other} ${count}`);
    const wrong = others.length ? ` The others were taken for: ${others.join(", ")}.` : "";
    hint(`“${name}”: ${found.right} of ${found.frames} frames recognised, ${percent(found.accuracy)}.${wrong}`, "good");
  } catch (error) {
    hint(error.message, "bad");
  }
  reset();
}

// Teaches a whole video or a set of images at once; the service decodes them.
async function teachWhole(again = false) {
  const name = $("name").value.trim();
  if (!name) {
    hint("Enter a name first.", "bad");
    return $("name").focus();
  }
  $("hold").disabled = $("whole").disabled = true;
  learning = name;
  hint("Uploading.");
  try {
    const fields = camera.kind === "video" ? { video: camera.file } : { frames: camera.file };
    let job = await ask(`/api/lessons?again=${again}`, { body: form({ label: name, ...fields }) });
    while (job.state === "queued" || job.state === "running") {
      showProgress(job);
      job = await ask(`/api/lessons/${job.id}?wait=0.3`);
    }
    if (job.state === "failed") throw new Error(job.error);
    if (job.already_taught && (await dialog("Taught before", "This lesson was taught before. It was left out, because it would count twice. If the object was forgotten in the meantime, teach it again.", undefined, "Teach it again"))) return teachWhole(true);
    await camera.captureFrame();
    last = camera.thumbnail(96);
    await learned(name, job);
  } catch (error) {
    hint(error.message, "bad");
  }
  $("whole").disabled = false;
  reset();
  showMode();
}

function showProgress(job) {
  $("progress").hidden = false;
  if (job.progress === null) $("progress").removeAttribute("value");
  else $("progress").value = job.progress;
  hint(job.state === "queued" ? "Waiting for the lessons before this one." : `Learning ${plural(job.frames, "frame")} of “${job.label}”.`);
}

function reset() {
  learning = "";
  $("progress").hidden = true;
  $("hold").disabled = false;
}

function showMode() {
  const checking = mode() === "check";
  $("name").hidden = checking;
  $("which").hidden = !checking;
  $("name-label").textContent = checking ? "Which object will you show?" : "What is it?";
  $("hold-text").textContent = checking ? "Hold to check" : "Hold to teach";
  $("hold").disabled = checking && !objects.model.objects.length;
  const known = objects.model.objects.map((object) => object.label);
  $("nothing").hidden = checking || !known.length || known.includes("nothing");
}

export function setUp(stream) {
  holdable($("hold"), () => begin(stream), () => end(stream));
  for (const radio of document.querySelectorAll("input[name=mode]")) {
    radio.onchange = () => {
      showMode();
      hint(mode() === "check" ? "Show an object from new sides and hold the button, to see how often it is recognised." : FIRST_HINT, mode() === "check" ? "" : "first");
    };
  }
  $("name").onkeydown = (event) => {
    if (event.key === "Enter") $("hold").focus();
  };
  $("whole").onclick = () => teachWhole();
  $("nothing").onclick = () => {
    $("name").value = "nothing";
    $("hold").focus();
    hint("Remove the object and hold the button: frames that look like this will be “unknown”.");
  };
  objects.onModel((model) => {
    const labels = model.objects.map((object) => object.label);
    $("names").replaceChildren(...labels.map((value) => Object.assign(document.createElement("option"), { value })));
    const chosen = $("which").value;
    $("which").replaceChildren(...labels.map((name) => new Option(name, name, false, name === chosen)));
    if (!timer && !lesson) showMode();
  });
}
