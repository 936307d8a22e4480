// What the page asks for: the learner with its lessons in progress, the last second of the camera, and the state that is kept.
// The answers have the fields of the service's (serve/schemas.py).

import { NOTHING } from "./coach.js";
import { quoted, Refusal, WRONG_INPUT, WRONG_STATE } from "./errors.js";
import { lessonId, rgb } from "./frames.js";
import { Journal } from "./journal.js";
import { Learner, stacked } from "./learner.js";
import { sameBits } from "./learner_file.js";
import { isLzma, unlzma } from "./lzma.js";
import { checkedName, UNKNOWN } from "./names.js";
import { Network, shippedSpec, shippedWeights } from "./network.js";
import { unpacked } from "./packed_model.js";
import { openStore } from "./store.js";
import { recognised, thumbnail, Watch } from "./watch.js";

const SIZE = 192; // pixels, the side of the frames of a new learner
const LESSON_FRAMES = 600;
const RECALL_SECONDS = 4;
const TOO_MUCH = 413;
const LOCKED = 423;

export class PageLearner {
  // `ort` is ONNX Runtime; `now` returns the time in seconds.
  constructor(ort, now = () => performance.now() / 1000) {
    Object.assign(this, { ort, now, version: 0, lessons: new Map(), nextLesson: 1, watch: new Watch(), watched: -1 });
  }

  // Opens the state that is kept under the name `state`, or else the learner of `file` or the one that is packed into the page, or
  // else an untaught one.
  async open({ wasm, network, graph, references, file = null, packed = null, name = "objects.pv", state = name, fresh = false }) {
    const runtime = new Uint8Array(wasm);
    Object.assign(this.ort.env.wasm, { numThreads: 1, wasmBinary: isLzma(runtime) ? unlzma(runtime) : wasm });
    this.shipped = { graph: new Uint8Array(graph), weights: shippedWeights(new Uint8Array(network)), references: new Uint8Array(references) };
    this.name = name;
    await lock(state);
    this.store = await openStore(state);
    const kept = fresh ? null : await this.kept();
    const given = packed ? unpacked(new Uint8Array(packed), this.shipped.weights) : file && new Uint8Array(file);
    this.learner = kept ?? (await (given ? this.load(given, name) : this.untaught()));
    this.journal = new Journal(this.learner);
    this.journalBefore = this.replaced = null;
    return this.model();
  }

  // The newest whole state that is kept, or null if there is none.
  async kept() {
    let damaged = null;
    for await (const bytes of this.store?.read() ?? []) {
      try {
        return await this.load(bytes, this.name);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        damaged ??= error;
      }
    }
    if (damaged) throw new Refusal(damaged.message, WRONG_STATE);
    return null;
  }

  async untaught() {
    return Learner.untaught(await this.openNetwork(shippedSpec(SIZE), this.shipped.weights, null, true));
  }

  load(bytes, name) {
    return Learner.load(bytes, name, (...asked) => this.openNetwork(...asked));
  }

  // Returns the network of the present learner if it is the same, since opening one takes a second.
  async openNetwork(spec, arrays, graph, places) {
    const { opened } = this;
    if (opened && !graph && opened.places === places && isSameNetwork(opened.network, spec, arrays)) return opened.network;
    const network = await Network.open(this.ort, this.shipped, spec, arrays, graph, places);
    this.opened = { network, places };
    return network;
  }

  get size() {
    return this.learner.network.spec.size;
  }

  model() {
    const { learner, journal } = this;
    const { now } = learner;
    return {
      name: this.name,
      strategy: learner.settings.name,
      size: this.size,
      objects: [...now.names].map(([id, label]) => ({ label, frames: now.counts.get(id) })),
      can_undo: learner.canUndo || this.replaced !== null,
      queued: 0,
      version: this.version,
      max_frames: LESSON_FRAMES,
      threshold: learner.threshold,
      advice: learner.advice(),
      nothing: NOTHING,
      camera: null,
      recall_seconds: RECALL_SECONDS,
      lessons: journal.lessons().map(({ id, label, features }) => ({ id, label, frames: features.length })),
    };
  }

  features(frame) {
    return this.learner.network.features(rgb(frame, this.size));
  }

  // The answer for a frame of the camera, and the one for the last second.
  async recognise(frame) {
    const [prediction] = this.learner.predictions(stacked([await this.features(frame)]));
    if (this.watched !== this.version) {
      this.watch = new Watch();
      this.watched = this.version;
    }
    const recent = this.watch.add(thumbnail(frame, this.size), prediction, this.now(), this.learner.rule);
    return {
      ...recognised(prediction, this.version),
      recent: recognised(recent, this.version),
      recent_frames: this.watch.frames.length,
    };
  }

  // One answer for all frames of a clip.
  async predict(frames) {
    return recognised(this.learner.predictClip(await this.stackedFeatures(frames)), this.version);
  }

  async stackedFeatures(frames) {
    if (!frames.length) throw new Refusal("there are no frames: send at least one", WRONG_INPUT);
    if (frames.length > LESSON_FRAMES) throw new Refusal(`at most ${LESSON_FRAMES} frames at once`, TOO_MUCH);
    const found = [];
    for (const frame of frames) found.push(await this.features(frame));
    return stacked(found);
  }

  async check(label, frames) {
    const name = checkedName(label, this.learner.labels);
    if (!this.learner.labels.includes(name)) throw new Refusal(`${quoted(name)} was not taught, so it cannot be checked`);
    const counts = new Map();
    for (const one of this.learner.predictions(await this.stackedFeatures(frames))) {
      const isKnown = one.answer === "known" && one.label !== NOTHING;
      const outcome = (one.label === name && name === NOTHING) || isKnown ? one.label : UNKNOWN;
      counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
    }
    const right = counts.get(name) ?? 0;
    counts.delete(name);
    const { length } = frames;
    return { label: name, frames: length, right, accuracy: right / length, taken_for: Object.fromEntries(counts), version: this.version };
  }

  // ---- Lessons ----

  // Begins a lesson, and returns its number. Its features are computed while its frames come.
  lesson(label) {
    const number = this.nextLesson++;
    this.lessons.set(number, { label: checkedName(label, this.learner.labels), frames: [], features: [] });
    return number;
  }

  async add(number, frame) {
    const lesson = this.lessonOf(number);
    if (lesson.frames.length >= LESSON_FRAMES) {
      throw new Refusal(`a lesson has at most ${LESSON_FRAMES} frames: end it, and begin another`, TOO_MUCH);
    }
    const pixels = rgb(frame, this.size);
    lesson.features.push(await this.learner.network.features(pixels));
    lesson.frames.push(pixels);
    return { frames: lesson.frames.length };
  }

  cancel(number) {
    this.lessons.delete(number);
    return null;
  }

  async learn(number, again = false) {
    const { label, frames, features } = this.lessonOf(number);
    this.lessons.delete(number);
    if (!frames.length) throw new Refusal("there are no frames: send at least one", WRONG_INPUT);
    const began = this.now();
    const lesson = await lessonId(frames.length, (k) => frames[k]);
    const id = randomId();
    const status = { id, kind: "lesson", label, frames: frames.length, state: "done", progress: 1, error: null };
    if (!again && this.learner.now.lessons.includes(lesson)) {
      return { ...status, seconds: this.now() - began, parts: {}, version: this.version, already_taught: true };
    }
    const draft = this.learner.copy();
    draft.learn(features, label, lesson);
    draft.rule; // solves, so that the next frame is answered at once
    const worked = this.now();
    await this.keep(draft, { label, features, lesson, id });
    const parts = { working: worked - began, saving: this.now() - worked };
    return { ...status, seconds: this.now() - began, parts, version: this.version, already_taught: false };
  }

  async teach(report, label, frames, again = false) {
    const number = this.lesson(label);
    try {
      for (const [k, frame] of frames.entries()) {
        await this.add(number, frame);
        report({ kind: "lesson", label, frames: frames.length, state: "running", progress: (k + 1) / (frames.length + 1), error: null });
      }
      return await this.learn(number, again);
    } finally {
      this.lessons.delete(number);
    }
  }

  lessonOf(number) {
    const found = this.lessons.get(number);
    if (!found) throw new Refusal("there is no such lesson: begin one first");
    return found;
  }

  // ---- Changes ----

  async change(kind, fields) {
    const draft = this.learner.copy();
    const label = fields.label === undefined ? undefined : checkedName(fields.label, draft.labels);
    const renamed = fields.to === undefined ? undefined : checkedName(fields.to);
    const changes = {
      rename: () => draft.rename(label, renamed),
      forget: () => draft.forget(label),
      threshold: () => this.setThreshold(draft, fields.threshold),
      merge: async () => draft.merge(await this.load(new Uint8Array(fields.file), fields.name)),
    };
    if (kind === "undo") return this.undo();
    if (kind === "remove") return this.remove(fields.lesson);
    if (kind === "load") return this.replace((await this.load(new Uint8Array(fields.file), fields.name)).withoutUndo());
    if (!(kind in changes)) throw new Refusal(`there is no change ${kind}`, WRONG_INPUT);
    await changes[kind]();
    if (kind === "threshold") return this.keepAs(draft, {});
    await this.keep(draft, kind === "merge" ? null : { label, renamed });
    return this.model();
  }

  setThreshold(draft, threshold) {
    const isShare = typeof threshold === "number" && threshold >= 0 && threshold <= 1;
    if (!isShare) throw new Refusal(`threshold must be from 0 to 1; got ${threshold}`, WRONG_INPUT);
    draft.threshold = threshold;
  }

  // Takes back the last change. That of a load or a removal is possible until the tab is closed.
  undo() {
    const draft = this.replaced ?? this.learner.copy();
    if (!this.replaced) draft.undo();
    return this.keepAs(draft, { journal: this.journalBefore ?? new Journal(draft), journalBefore: null, replaced: null });
  }

  remove(id) {
    const journal = this.journal.without(id);
    return this.keepAs(journal.replayed(this.learner.threshold), { journal, journalBefore: this.journal, replaced: this.learner });
  }

  replace(learner) {
    return this.keepAs(learner, { journal: new Journal(learner), journalBefore: this.journal, replaced: this.learner });
  }

  // Keeps the learner after a change that the journal can repeat, or that it cannot (null).
  keep(draft, entry) {
    if (!entry) return this.keepAs(draft, { journal: new Journal(draft), journalBefore: this.journal, replaced: null });
    const before = this.journal.withRoom(entry);
    return this.keepAs(draft, { journal: before.followedBy(entry), journalBefore: before, replaced: null });
  }

  // On disk first: what was acknowledged is never lost.
  async keepAs(learner, more) {
    const bytes = await learner.toBytes();
    try {
      await this.store?.write(bytes);
    } catch (error) {
      throw new Refusal(`this browser cannot keep the change (${error.message}), and nothing was changed: free some room, or save the model as a file`, TOO_MUCH);
    }
    Object.assign(this, { learner, version: this.version + 1, ...more });
    return this.model();
  }

  async file() {
    return (await this.learner.toBytes()).buffer;
  }
}

// Holds a lock for as long as this worker lives; another tab that has it is told so.
async function lock(state) {
  if (!globalThis.navigator?.locks) return;
  const taken = await new Promise((resolve) => {
    navigator.locks.request(`primavista ${state}`, { ifAvailable: true }, (found) => {
      resolve(found !== null);
      return found && new Promise(() => {});
    });
  });
  if (!taken) throw new Refusal("this page is open in another tab: close one of the two", LOCKED);
}

function isSameNetwork(network, spec, arrays) {
  const facts = ({ name, size, mean, std, options }) => JSON.stringify([name, size, mean, std, [...options]]);
  const same = () => [...arrays].every(([name, own]) => sameBits(own, network.arrays.get(name)));
  return !network.graph && facts(spec) === facts(network.spec) && arrays.size === network.arrays.size && same();
}

function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
