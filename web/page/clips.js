// The last seconds of the camera, to correct answers and to ask about doubtful ones: the rules of serve/clips.py, in this page's memory.

import { correlation, thumbnail } from "../learner/watch.js";

const OTHER_SCENE = 0.3; // the correlation of thumbnails below which a frame shows another scene
const SPACING = 100; // milliseconds between two frames that are kept
const DOUBT_LASTS = 1500; // milliseconds for which a doubt must last without a break before a question is asked
const ASK_AGAIN = 60000; // milliseconds between two questions about the same object
const LEAST_FRAMES = 5; // of a question, all of the present scene
const SURE = 0.6; // the least confidence of a known object that is not doubtful
const REJUDGED_FRAMES = 4; // of a question, which are recognised again when the model has changed
const MOST_CLIPS = 8;
const QUALITY = 0.8; // of the picture of a clip, as JPEG

const shownWord = ({ answer, label }) => (answer === "unknown" ? "unknown" : `${answer} ${label}`);

// What is doubtful about an answer: nothing about the background and what is sure.
function doubtAbout({ answer, label, confidence }, nothing) {
  if (label === null) return "";
  if (answer === "likely") return "likely";
  const isSure = confidence >= SURE && (answer === "known" || label === nothing);
  return isSure ? "" : "other";
}

function pictureOf(frame, size) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const image = new ImageData(size, size);
  for (let k = 0; k < size * size; k += 1) image.data.set([...frame.subarray(3 * k, 3 * k + 3), 255], 4 * k);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.toDataURL("image/jpeg", QUALITY);
}

export class Clips {
  // `predict` resolves to the answer of the present model for all given frames together; `nothing` names the background.
  constructor({ seconds, size, nothing, predict }) {
    Object.assign(this, { seconds, size, nothing, predict, asks: false });
    this.kept = [];
    this.clips = new Map();
    this.answer = { label: null, answer: "unknown", confidence: 0 };
    this.doubt = "";
    this.doubtSince = 0;
    this.isAsked = false; // about this doubt, as long as the scene is the same
    this.askedAt = new Map(); // by the object that was guessed
    this.version = null;
    this.judgedVersion = null;
  }

  // Remembers a frame with the answer for the last second; the frames of another scene or of another model are forgotten.
  add(frame, recent, version) {
    const now = performance.now();
    const small = thumbnail(frame, this.size);
    const isNewModel = this.version !== null && version !== this.version;
    const likeness = this.kept.map((one) => correlation(small, one.small));
    if (isNewModel || (likeness.length && Math.max(...likeness) < OTHER_SCENE)) {
      this.kept = [];
      this.isAsked = false;
    }
    this.version = version;
    this.answer = recent;
    this.kept = this.kept.filter((one) => one.at > now - 1000 * this.seconds);
    if (!this.kept.length || now - this.kept.at(-1).at >= SPACING) this.kept.push({ at: now, frame, small, word: shownWord(recent) });
    const doubt = doubtAbout(recent, this.nothing);
    if (doubt === this.doubt && !isNewModel) return;
    [this.doubt, this.doubtSince, this.isAsked] = [doubt, now, false];
  }

  withThisAnswer() {
    const now = shownWord(this.answer);
    return this.kept.filter((one) => one.word === now);
  }

  // Keeps the remembered frames for which the page showed the same word as now, and returns the message about them.
  clip(question = false) {
    const kept = this.withThisAnswer();
    if (!kept.length) throw new Error("no frame of this scene is remembered yet: wait a moment");
    if (this.clips.size >= MOST_CLIPS) throw new Error(`${MOST_CLIPS} clips are kept already: teach or drop one first`);
    const id = crypto.randomUUID();
    const frames = kept.map((one) => one.frame);
    this.clips.set(id, { frames, question });
    const { label, answer, known } = this.answer;
    const seconds = (kept.at(-1).at - kept[0].at) / 1000;
    return { clip: { id, frames: frames.length, seconds, label, answer, known, question, picture: pictureOf(frames[frames.length >> 1], this.size) } };
  }

  // Takes the frames of a clip out.
  take(id) {
    const found = this.clips.get(id);
    if (!found) throw new Error("there is no such clip: it was taught, dropped or answered");
    this.clips.delete(id);
    return found.frames;
  }

  // Returns messages: a new question, and the questions to which a changed model knows the answer, which are withdrawn.
  async notices() {
    const found = [];
    if (this.version !== this.judgedVersion) {
      this.judgedVersion = this.version;
      found.push(...(await this.withdrawn()));
    }
    const now = performance.now();
    if (!this.isTimeToAsk(now)) return found;
    this.askedAt.set(this.answer.label, now);
    this.isAsked = true;
    return [...found, this.clip(true)];
  }

  isTimeToAsk(now) {
    const mayAsk = this.asks === "likely" ? this.doubt === "likely" : this.asks && this.doubt !== "";
    return (
      mayAsk &&
      !this.isAsked &&
      now - this.doubtSince >= DOUBT_LASTS &&
      this.withThisAnswer().length >= LEAST_FRAMES &&
      now - (this.askedAt.get(this.answer.label) ?? -ASK_AGAIN) >= ASK_AGAIN &&
      this.clips.size < MOST_CLIPS
    );
  }

  async withdrawn() {
    const found = [];
    for (const [id, { frames, question }] of this.clips) {
      if (!question) continue;
      const step = Math.ceil(frames.length / REJUDGED_FRAMES);
      const answer = await this.predict(frames.filter((_, k) => k % step === 0));
      if (doubtAbout(answer, this.nothing) || !this.clips.delete(id)) continue;
      found.push({ dropped: id });
    }
    return found;
  }
}
