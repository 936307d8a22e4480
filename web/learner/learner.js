// A learner: names, lessons, undo and the file around a head, as Python's learner/learner.py, history.py, head_strategy.py and
// file.py. A change makes a new state and leaves the old one as it was; the state before the last change stays for `undo`.

import { advise, countAnswers, framesToTest, fromRecords, withIds, withTests } from "./coach.js";
import { quoted, Refusal, WRONG_INPUT } from "./errors.js";
import { check, checkFinite, headArrays, restoredBeside, restoreHead, storedBeside } from "./head_file.js";
import { array, decode, encode } from "./learner_file.js";
import { Matrix, sum } from "./linear.js";
import { manifestToWrite, MAX_COUNT, parseManifest } from "./manifest.js";
import { checkedName } from "./names.js";
import { NCMHead } from "./ncm.js";
import { BACKBONE, GRAPH_ARRAYS, graphOf } from "./network.js";
import { LessonHead } from "./prima.js";
import { fuse, namedPredictions, NOTHING_TAUGHT } from "./watch.js";

const UNDO = "undo/"; // prefix of the arrays of the state before the last change
// How each strategy makes its head, and its default threshold.
const STRATEGIES = new Map([
  ["prima", { make: ({ sizes, priors }) => LessonHead.empty([...sizes], priors), threshold: 0.9 }],
  ["ncm", { make: ({ sizes }) => NCMHead.empty(sum(sizes)), threshold: 0.25 }],
]);

// Everything that a lesson may change: the head, the class id of each of its columns, the number of batches, the name and the number
// of frames of each class id, the id of the next new name, the ids of the lessons, and the tests of the coach. `stored` are the
// arrays of a loaded undo state as the file holds them, as differences from the later state.
const untaughtState = (head) => ({
  head, classes: [], batches: 0, names: new Map(), counts: new Map(), nextId: 0, lessons: [], heldOut: new Map(), stored: null,
});

// Puts the features of frames under each other, in float64.
export function stacked(features) {
  const found = new Matrix(features.length, features[0].length);
  features.forEach((z, i) => found.row(i).set(z));
  return found;
}

export class Learner {
  // `settings` has `strategy`: { name, seed, options }; the network has the `spec` of the backbone.
  constructor(settings, network, threshold, now, before = null) {
    Object.assign(this, { settings, network, threshold, now, before });
  }

  static untaught(network, strategy = "prima") {
    const { make, threshold } = STRATEGIES.get(strategy);
    const settings = { name: strategy, seed: 0, options: new Map() };
    return new Learner(settings, network, threshold, untaughtState(make(network)));
  }

  // The learner of the bytes of a file. `openNetwork(spec, arrays, graph, places)` returns its network.
  static async load(bytes, name, openNetwork) {
    const { arrays, manifest: raw } = await decode(bytes, name);
    const manifest = parseManifest(raw, name);
    const { strategy, backbone } = manifest;
    if (!STRATEGIES.has(strategy.name)) {
      throw new Refusal(`${name} is of the strategy ${strategy.name}: this page has ${[...STRATEGIES.keys()].join(" and ")}. Open it in Python`, WRONG_INPUT);
    }
    try {
      const odd = [...strategy.options.keys()];
      if (odd.length) throw new Refusal(`${strategy.name} has no option ${odd[0]}`, WRONG_INPUT);
      const current = new Map([...arrays].filter(([own]) => !own.startsWith(UNDO) && !GRAPH_ARRAYS.includes(own)));
      checkFinite(current);
      const weights = new Map([...current].filter(([own]) => own.startsWith(BACKBONE)));
      const network = await openNetwork(backbone, weights, graphOf(arrays), strategy.name === "prima");
      const { make } = STRATEGIES.get(strategy.name);
      const now = restoredState(make(network), current, manifest);
      const before = manifest.undo && stateBefore(make(network), now, current, arrays, manifest.undo);
      return new Learner(strategy, network, manifest.threshold, now, before);
    } catch (error) {
      throw error instanceof Refusal ? new Refusal(`${name} cannot be loaded: ${error.message}`, WRONG_INPUT) : error;
    }
  }

  copy() {
    const { settings, network, threshold, now, before } = this;
    return new Learner(settings, network, threshold, now, before);
  }

  // A copy with nothing to undo.
  withoutUndo() {
    const { settings, network, threshold, now } = this;
    return new Learner(settings, network, threshold, now);
  }

  get labels() {
    return [...this.now.names.values()];
  }

  get rule() {
    const { head, classes } = this.now;
    return { threshold: this.threshold, ranked: head.ranksStrangers, correlation: head.correlation(classes.length) };
  }

  get canUndo() {
    return this.before !== null;
  }

  change(state) {
    this.before = this.now;
    this.now = { stored: null, ...state };
  }

  // A copy of the head that can learn, with the state around it.
  draft() {
    const { head, classes } = this.now;
    return { ...this.now, head: head.copy(), classes: [...classes], stored: null };
  }

  // Learns one lesson from the features of its frames (Float32Arrays), once; `lesson` is its id.
  learn(features, label, lesson, { coach = true } = {}) {
    const name = checkedName(label, this.labels);
    const state = this.draft();
    const { head } = state;
    const id = idOf(this.now, name);
    const z = stacked(features);
    const heldOut = coach && !this.now.lessons.includes(lesson) ? this.heldOutTests(z, id) : new Map();
    if (head.sample && !head.sample.hasReference) this.setReference(head);
    expand(state, [id]);
    head.learn(z, state.classes.indexOf(id));
    state.batches += 1;
    this.change(taught(state, new Map([[id, name]]), new Map([[id, features.length]]), [lesson], heldOut));
  }

  setReference(head) {
    const { reference, spec } = this.network;
    if (!reference) {
      throw new Refusal(`this page does not know what arbitrary objects look like to ${spec.name} at ${spec.size} pixels: teach the first lesson in Python`);
    }
    head.sample.takeReference(reference);
  }

  // How the frames of a lesson of a known object were answered before it was learned.
  heldOutTests(z, id) {
    const { names } = this.now;
    const chosen = framesToTest(z.rows, names.has(id), names.size);
    if (!chosen.length) return new Map();
    const ids = new Map([...names].map(([own, name]) => [name, own]));
    const found = this.predictions(z.rowsAt(chosen));
    return new Map([[id, [countAnswers(found.map((one) => ids.get(one.label)), found.map((one) => one.answer === "known"))]]]);
  }

  // The predictions of frames, from their features, N x D.
  predictions(z) {
    const { head, classes, names } = this.now;
    if (!names.size) return Array.from({ length: z.rows }, () => NOTHING_TAUGHT);
    return namedPredictions(classes.map((id) => names.get(id)), head.judgeFeatures(z, classes.length), this.rule);
  }

  // One prediction from all frames of a clip.
  predictClip(z) {
    return fuse(this.predictions(z), this.rule);
  }

  advice() {
    return advise(this.now.heldOut, this.now.names);
  }

  rename(old, label) {
    const id = knownId(this.now, checkedName(old, this.labels));
    const name = checkedName(label);
    if (this.labels.includes(name)) {
      throw new Refusal(`there is a ${quoted(name)} already: forget it first, or choose another name`);
    }
    this.change({ ...this.now, stored: null, names: new Map(this.now.names).set(id, name) });
  }

  forget(label) {
    const id = knownId(this.now, checkedName(label, this.labels));
    const state = this.draft();
    const column = state.classes.indexOf(id);
    state.head.forget(column);
    state.classes.splice(column, 1);
    const without = (map) => new Map([...map].filter(([own]) => own !== id));
    const names = without(state.names);
    const heldOut = withIds(state.heldOut, new Map([...names.keys()].map((own) => [own, own])));
    this.change({ ...state, names, counts: without(state.counts), heldOut });
  }

  undo() {
    if (!this.before) throw new Refusal("there is nothing to undo: only the last change can be taken back");
    this.now = { ...this.before, stored: null };
    this.before = null;
  }

  // Learns everything that another learner was taught. Objects are joined by name.
  merge(other) {
    this.checkMergeable(other);
    const theirs = other.now;
    const twice = theirs.lessons.filter((lesson) => this.now.lessons.includes(lesson)).length;
    if (twice) throw new Refusal(`${twice} of the other's ${theirs.lessons.length} lessons are among ours: they would count twice.`);
    const names = new Map();
    const ours = new Map(); // our class id of each of theirs
    let { nextId } = this.now;
    for (const [id, name] of theirs.names) {
      const known = [...this.now.names].find(([, own]) => own === name);
      ours.set(id, known ? known[0] : nextId++);
      names.set(ours.get(id), name);
    }
    const state = this.draft();
    const ids = theirs.classes.map((id) => ours.get(id));
    expand(state, ids);
    state.head.merge(theirs.head, ids.map((id) => state.classes.indexOf(id)));
    state.batches += theirs.batches;
    const frames = new Map([...theirs.counts].map(([id, count]) => [ours.get(id), count]));
    this.change(taught(state, names, frames, theirs.lessons, withIds(theirs.heldOut, ours)));
  }

  checkMergeable(other) {
    const [ours, theirs] = [this, other].map(({ settings, network }) => ({ ...settings, ...network.spec }));
    if (this.settings.name !== other.settings.name) {
      throw new Refusal(`this learner's strategy is ${this.settings.name}, the other's is ${other.settings.name}: only equal ones can be merged`);
    }
    const facts = ({ size, seed }) => `size ${size}, seed ${seed}`;
    if (facts(ours) !== facts(theirs)) {
      throw new Refusal(`their settings differ: ${facts(ours)} here and ${facts(theirs)} there. Merge learners with equal settings`);
    }
    if (!this.network.equals(other.network)) {
      throw new Refusal("their backbones have different weights, so their statistics cannot be added");
    }
  }

  // The bytes of the file, with what undo needs.
  toBytes() {
    const { arrays, manifest } = this.content();
    return encode(arrays, manifest);
  }

  content() {
    const { now, before, network, settings, threshold } = this;
    const own = stateArrays(now);
    const arrays = new Map([...own, ...network.arrays]);
    let undo = null;
    if (before) {
      const whole = stateArrays(before);
      const stored = before.stored ?? storedBeside(before.head, now.head, whole, own);
      undo = { ...stateRecords(before), tensors: [...whole.keys(), ...network.arrays.keys()].sort() };
      for (const [name, one] of stored) arrays.set(UNDO + name, one);
    }
    for (const [name, one] of network.graphArrays()) arrays.set(name, one);
    const manifest = manifestToWrite({ strategy: settings, backbone: network.spec, threshold, undo, state: stateRecords(now) });
    return { arrays, manifest };
  }
}

function idOf({ names, nextId }, name) {
  for (const [id, own] of names) if (own === name) return id;
  return nextId;
}

function knownId({ names }, label) {
  for (const [id, name] of names) if (name === label) return id;
  throw new Refusal(`there is no ${quoted(label)}; known are ${[...names.values()].join(", ") || "none yet"}`);
}

// Gives each new class id a column of the head.
function expand({ head, classes }, ids) {
  classes.push(...[...new Set(ids)].filter((id) => !classes.includes(id)).sort((one, two) => one - two));
  head.expand(classes.length);
}

// The state after lessons: the names, the frames of each class id, the ids of the lessons, and their tests.
function taught(state, names, frames, lessons, heldOut) {
  const counts = new Map(state.counts);
  for (const [id, count] of frames) counts.set(id, (counts.get(id) ?? 0) + count);
  const all = new Map([...state.names, ...names].sort(([one], [two]) => one - two));
  const nextId = Math.max(state.nextId, Math.max(-1, ...all.keys()) + 1);
  if (Math.max(nextId, ...counts.values()) >= MAX_COUNT) throw new Refusal("there are more frames or objects than a file can count");
  return { ...state, names: all, counts, nextId, lessons: [...state.lessons, ...lessons], heldOut: withTests(state.heldOut, heldOut) };
}

// ---- The state in files ----

function stateArrays({ head, classes, batches }) {
  const ids = BigInt64Array.from(classes, BigInt);
  return new Map([
    ["classes", array("int64", [ids.length], ids)],
    ["batches", array("int64", [], BigInt64Array.of(BigInt(batches)))],
    ...headArrays(head),
  ]);
}

function stateRecords({ names, counts, nextId, lessons, heldOut }) {
  const classes = [...names].map(([id, name]) => {
    const record = { id, name, frames: counts.get(id) };
    return heldOut.get(id)?.length ? { ...record, held_out: heldOut.get(id) } : record;
  });
  return { classes, next_id: nextId, lessons };
}

// Takes the arrays of an untrusted file into an empty head, after checking that they fit it and the names in the record.
function restoredState(head, arrays, record) {
  const own = new Map([...arrays].filter(([name]) => !name.startsWith(BACKBONE)));
  const integers = (name, dims) => {
    const found = own.get(name);
    check(found?.dtype === "int64" && found.shape.length === dims, name, `is missing or not int64 with ${dims} dimensions`);
    own.delete(name);
    return Array.from(found.data, Number);
  };
  const classes = integers("classes", 1);
  const [batches] = integers("batches", 0);
  const names = new Map(record.classes.map((one) => [one.id, one.name]));
  const counts = new Map(record.classes.map((one) => [one.id, one.frames]));
  const distinct = new Set(classes).size === classes.length && classes.every((id) => id >= 0 && Number.isSafeInteger(id));
  if (!distinct || [...names.keys()].some((id) => !classes.includes(id))) {
    throw new Refusal("its names do not belong to its classes", WRONG_INPUT);
  }
  const frames = new Map(classes.flatMap((id, column) => (counts.has(id) ? [[column, counts.get(id)]] : [])));
  restoreHead(head, own, classes.length, frames);
  if (own.size) throw new Refusal(`there is no place for ${[...own.keys()].sort().join(", ")}`, WRONG_INPUT);
  const heldOut = fromRecords(new Map(record.classes.map((one) => [one.id, one.held_out])));
  return { head, classes, batches, names, counts, nextId: record.next_id, lessons: record.lessons, heldOut, stored: null };
}

// The state before the last change, of which the file holds what differs from the present one.
function stateBefore(head, now, current, arrays, record) {
  const stored = new Map([...arrays].flatMap(([name, own]) => (name.startsWith(UNDO) ? [[name.slice(UNDO.length), own]] : [])));
  checkFinite(stored);
  if ([...stored.keys()].some((name) => name.startsWith(BACKBONE))) throw new Refusal("its undo state has another network", WRONG_INPUT);
  const known = new Map([...current, ...restoredBeside(now.head, stored)]);
  const before = new Map(record.tensors.map((name) => {
    if (!known.has(name)) throw new Refusal(`it lacks ${name}`, WRONG_INPUT);
    return [name, known.get(name)];
  }));
  return { ...restoredState(head, before, record), stored };
}
