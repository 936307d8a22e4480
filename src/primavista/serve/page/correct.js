// Corrections and questions. "Wrong?" keeps the last seconds and asks for their name. The service asks about likely answers,
// with Yes and No in the verdict, and after "Ask me" about other doubts too, with a button over the video.

import { setLearning } from "./learning.js";
import * as objects from "./objects.js";
import { TEXTS } from "./texts.js";
import { $, announce, hint, ignoreEarlyClicks, isOff, isPressed, make, press } from "./view.js";

let stream = null;
let open = null; // the clip in the dialog
let asked = null; // the clip that Yes and No are about
let waiting = []; // other clips that the service asks about; the button over the video shows the first one
let likely = ""; // the object in the verdict, if it is likely
let onAnswers, onDialog; // called when Yes and No, or the dialog, have just appeared

export const isAsking = () => Boolean(asked);

export function onNotice(said) {
  if (said.clip) said.clip.question ? ask(said.clip) : show(said.clip, TEXTS.correctTitle, said.clip.known ? said.clip.label : "");
  else if (said.lesson) onLesson(said.lesson);
  else if (said.dropped) take({ id: said.dropped });
  else if (said.error) onError(said.error);
}

// The verdict has changed. A question about another one is over; `label` is empty if no object is likely.
export function onVerdict(label) {
  likely = label;
  if (asked && asked.label !== label) setAside(asked);
}

// The service may ask about likely answers as long as there is a verdict, and about everything after "Ask me".
export function allowQuestions() {
  stream.wish("ask", isPressed($("asking")) || (isPressed($("find")) ? false : "likely"));
}

// The connection is gone or a new one, and the service has forgotten the clips of the old one.
export function forgetQuestions() {
  asked = null;
  waiting = [];
  showQuestions();
}

function ask(clip) {
  if (clip.answer !== "likely" || clip.label !== likely) return setAside(clip);
  asked = clip;
  onAnswers();
  showQuestions();
  announce(TEXTS.yesOrNo(clip.label));
}

// A question that the verdict no longer asks waits for "Ask me", or is dropped.
function setAside(clip) {
  take(clip);
  if (isPressed($("asking"))) waiting.push(clip);
  else stream.command({ drop: clip.id });
  showQuestions();
}

// Takes a clip out of the questions.
function take({ id }) {
  if (asked?.id === id) asked = null;
  waiting = waiting.filter((one) => one.id !== id);
  showQuestions();
}

const question = (clip) => (clip.answer === "unknown" ? TEXTS.whatIsThis : TEXTS.isThis(clip.label));

function showQuestions() {
  const [clip] = waiting;
  const gone = [...(asked ? [] : [$("answers")]), ...(clip ? [] : [$("question")])];
  if (gone.some((one) => one.contains(document.activeElement))) $("see").focus(); // the keyboard stays where it was
  $("answers").hidden = !asked;
  if (asked) $("answers").ariaLabel = TEXTS.isThis(asked.label);
  if (clip && $("question").hidden) announce(question(clip));
  $("question").hidden = !clip;
  if (!clip) return;
  $("question-picture").src = clip.picture;
  $("question-text").textContent = question(clip);
}

// Asks what a clip shows. Its guess comes first among the names, unless it is wrong.
function show(clip, title, wrong = "") {
  open = clip;
  $("correct-title").textContent = title;
  $("correct").dataset.answer = clip.answer;
  $("correct-picture").src = clip.picture;
  const said = { known: clip.label, likely: TEXTS.likely(clip.label), unknown: TEXTS.unknown }[clip.answer];
  $("correct-text").textContent = TEXTS.correctText(clip.frames, clip.seconds, said);
  $("correct-name").value = "";
  const names = objects.labels().filter((label) => label !== objects.model.nothing && label !== wrong);
  names.sort((one, two) => Number(two === clip.label) - Number(one === clip.label));
  $("correct-names").replaceChildren(...names.slice(0, 12).map((label) => make("button", { type: "button", textContent: label, onclick: () => teach(label, clip) })));
  onDialog();
  $("correct").showModal();
  if (clip.answer === "unknown") $("correct-name").focus();
}

function teach(label, clip) {
  open = null;
  $("correct").close("yes");
  take(clip);
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

function onError(text) {
  setLearning("");
  hint(text, "bad");
}

export function setUp(of) {
  stream = of;
  onAnswers = ignoreEarlyClicks($("answers"));
  onDialog = ignoreEarlyClicks($("correct"));
  allowQuestions();
  $("wrong").onclick = () => isOff($("wrong")) || stream.command({ clip: true }) || hint(TEXTS.gone, "bad");
  $("yes").onclick = () => teach(asked.label, asked);
  $("no").onclick = () => {
    const clip = asked;
    take(clip);
    show(clip, TEXTS.correctTitle, clip.label);
  };
  $("question").onclick = () => show(waiting[0], question(waiting[0]));
  $("asking").onclick = () => {
    press($("asking"), !isPressed($("asking")));
    allowQuestions();
    if (isPressed($("asking"))) hint(TEXTS.asking);
  };
  $("correct").onclose = () => {
    if (open) {
      stream.command({ drop: open.id });
      take(open);
    }
    open = null;
    if (document.activeElement === document.body) $("see").focus(); // the button that opened it is gone
  };
  $("correct-yes").onclick = () => {
    const label = $("correct-name").value.trim();
    if (label) teach(label, open);
    else $("correct-name").focus();
  };
  $("correct-none").onclick = () => teach(objects.model.nothing, open);
  $("correct-name").onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    $("correct-yes").click();
  };
}
