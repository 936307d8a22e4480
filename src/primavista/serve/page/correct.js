// Corrections: "Wrong?" keeps the last seconds and asks for their name; "Ask me" lets the service ask about what it doubts.

import { setLearning } from "./learning.js";
import * as objects from "./objects.js";
import { TEXTS } from "./texts.js";
import { $, announce, hint, isPressed, make, press } from "./view.js";

let stream = null;
let open = null; // the clip in the dialog
let questions = []; // clips that the service asks about, the first one is shown

export function onNotice(said) {
  if (said.clip) said.clip.question ? asked(said.clip) : show(said.clip);
  else if (said.lesson) onLesson(said.lesson);
  else if (said.dropped) withdraw(said.dropped);
  else if (said.error) onError(said.error);
}

function onError(text) {
  setLearning("");
  hint(text, "bad");
}

function withdraw(id) {
  questions = questions.filter((one) => one.id !== id);
  showQuestion();
}

function show(clip) {
  open = clip;
  $("correct-picture").src = clip.picture;
  $("correct-text").textContent = TEXTS.correctText(clip.frames, clip.seconds, clip.known ? clip.label : TEXTS.correctUnknown);
  $("correct-name").value = "";
  const names = objects.labels().filter((label) => label !== objects.model.nothing && !(clip.known && label === clip.label));
  $("correct-names").replaceChildren(...names.slice(0, 12).map((label) => make("button", { type: "button", textContent: label, onclick: () => teach(label) })));
  $("correct").showModal();
}

function teach(label) {
  const clip = open;
  open = null;
  $("correct").close("yes");
  if (!clip) return;
  questions = questions.filter((one) => one.id !== clip.id);
  showQuestion();
  setLearning(label);
  if (!stream.command({ teach: clip.id, label })) return onError(TEXTS.gone);
  hint(TEXTS.learningName(label));
}

function onLesson(job) {
  if (job.state === "failed") return onError(job.error);
  if (job.state !== "done") return;
  setLearning("");
  const none = job.label === objects.model.nothing;
  hint(none ? TEXTS.correctedNone : TEXTS.corrected(job.label), "good");
  announce(TEXTS.learnedShort(job.label));
  performance.mark("corrected", { detail: job });
  objects.refresh().catch(() => {});
}

function asked(clip) {
  questions.push(clip);
  if ($("hint").textContent === TEXTS.asking) hint("");
  showQuestion();
}

function showQuestion() {
  const [clip] = questions;
  $("question").hidden = !clip;
  if (!clip) return;
  $("question-picture").src = clip.picture;
  const text = clip.known ? TEXTS.questionUnsure(clip.label) : TEXTS.questionUnknown(clip.label);
  $("question-text").textContent = text;
  $("question-yes").textContent = TEXTS.yesName(clip.label);
  announce(text);
}

const answer = (label) => {
  [open] = questions;
  teach(label ?? open.label);
};

export function setUp(of) {
  stream = of;
  $("wrong").onclick = () => stream.command({ clip: true }) || hint(TEXTS.gone, "bad");
  $("correct").onclose = () => {
    if (open && !questions.includes(open)) stream.command({ drop: open.id });
    open = null;
    if (document.activeElement === document.body) $("wrong").focus(); // the question from which it was opened is gone
  };
  $("correct-yes").onclick = () => {
    const label = $("correct-name").value.trim();
    if (label) teach(label);
    else $("correct-name").focus();
  };
  $("correct-none").onclick = () => teach(objects.model.nothing);
  $("correct-name").onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    $("correct-yes").click();
  };
  $("asking").onclick = () => {
    const on = !isPressed($("asking"));
    press($("asking"), on);
    stream.wish("ask", on);
    if (on) hint(TEXTS.asking);
  };
  $("question-yes").onclick = () => answer();
  $("question-none").onclick = () => answer(objects.model.nothing);
  $("question-other").onclick = () => show(questions[0]);
  $("question-skip").onclick = () => {
    const clip = questions.shift();
    stream.command({ drop: clip.id });
    showQuestion();
  };
}
