// Predictions, and how those of a clip or of the last second are fused: Python's learner/prediction.py and learner/watch.py.
//
// A prediction is { label, confidence, answer, scores: [{ label, share }], familiarity }. `answer` is "known", "likely" or
// "unknown"; `label` is null if nothing has been taught; `familiarity` is null if the strategy cannot tell.

import { NOTHING } from "./coach.js";

export const SECONDS = 1; // that a window lasts
const CONFIDENCE_LIKELY = 0.5;
const LIKELY_FROM = 0.65; // the familiarity from which on a name is worth a question, if it is a rank
const MOST_FRAMES = 100; // in a window, whatever the rate of the frames
const LEAST_SHARE = 1e-6; // so that no single frame can rule a name out
const CELLS = 8; // per side of a thumbnail
const CELL_PIXELS = 8; // per side of a cell, at least, that are averaged
const SAME_SCENE = 0.65; // the least correlation of two thumbnails of one scene
const NOISE = 4; // levels, of 255, by which the cells of a plain grey picture may differ

export const NOTHING_TAUGHT = { label: null, confidence: 0, answer: "unknown", scores: [], familiarity: null };

// The rule of a learner: { threshold, ranked, correlation }. `ranked` says that the familiarity is a rank among strangers.
export function answerOf({ threshold, ranked }, confidence, names, familiarity) {
  const isKnown = familiarity === null
    ? names === 1 || (confidence - 1 / names) / (1 - 1 / names) >= threshold
    : familiarity >= threshold;
  if (isKnown) return "known";
  return ranked && familiarity >= LIKELY_FROM && confidence >= CONFIDENCE_LIKELY ? "likely" : "unknown";
}

// The predictions by name of frames that a head has judged; `columns` has the name of each class, or undefined.
export function namedPredictions(columns, { scores, temperature, familiarity }, rule) {
  const taught = columns.flatMap((name, column) => (name === undefined ? [] : [column]));
  return scores.map((row, k) => {
    const shares = softmax(taught.map((column) => row[column] / temperature));
    return prediction(taught.map((column, j) => ({ label: columns[column], share: shares[j] })), familiarity?.[k] ?? null, rule);
  });
}

function prediction(scores, familiarity, rule) {
  const best = scores.reduce((most, one) => (one.share > most.share ? one : most));
  return { label: best.label, confidence: best.share, answer: answerOf(rule, best.share, scores.length, familiarity), scores, familiarity };
}

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = logits.map((x) => Math.exp(x - most));
  const total = powers.reduce((sum, x) => sum + x, 0);
  return powers.map((x) => x / total);
}

// log p(name) = mean_t log p_t(name) + constant: one prediction from those of the frames of a clip.
export function fuse(predictions, rule) {
  const [first] = predictions;
  if (predictions.length === 1 || !first.scores.length) return first;
  const mean = (numbers) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length;
  const shares = softmax(first.scores.map((_, j) => mean(predictions.map((one) => Math.log(Math.max(one.scores[j].share, LEAST_SHARE))))));
  const told = predictions.map((one) => one.familiarity);
  let familiarity = null;
  if (!told.includes(null)) familiarity = rule.ranked ? fusedRank(told, rule.correlation) : mean(told);
  return prediction(first.scores.map(({ label }, j) => ({ label, share: shares[j] })), familiarity, rule);
}

// Phi(mean_t z_t / sqrt(rho + (1 - rho) / n)),  z_t = Phi^-1(rank_t)
export function fusedRank(ranks, correlation) {
  const z = ranks.map((rank) => normalQuantile(Math.min(Math.max(rank, LEAST_SHARE), 1 - LEAST_SHARE)));
  const variance = correlation + (1 - correlation) / z.length;
  return normalShare(z.reduce((sum, x) => sum + x, 0) / z.length / Math.sqrt(variance));
}

// Phi(x), the share of standard normal numbers below x: a series near 0, a continued fraction in the tails.
export function normalShare(x) {
  const size = Math.abs(x);
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  let tail = 0;
  if (size < 4) {
    let [term, total] = [size, size];
    for (let k = 3; term > 1e-17 * total; k += 2) total += term *= (x * x) / k;
    tail = 0.5 - density * total;
  } else {
    let fraction = size;
    for (let k = 80; k > 0; k--) fraction = size + k / fraction;
    tail = density / fraction;
  }
  return x < 0 ? tail : 1 - tail;
}

// Phi^-1(p), by Halley's method.
export function normalQuantile(p) {
  let x = 0;
  for (let round = 0; round < 60; round++) {
    const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
    const step = (normalShare(x) - p) / density;
    x -= step / (1 + (x * step) / 2); // Halley's step
    if (Math.abs(step) < 1e-15 * Math.max(1, Math.abs(x))) break;
  }
  return x;
}

// Recognises what a camera shows from the last second of its frames. The window starts anew if the scene or the names change.
export class Watch {
  constructor(seconds = SECONDS) {
    this.seconds = seconds;
    this.frames = [];
  }

  // Adds a frame that the learner was asked about; returns the answer from all frames of the window.
  add(thumbnail, prediction, at, rule) {
    const newest = { at, prediction, thumbnail };
    if (this.frames.length && !continues(this.frames.at(-1), newest)) this.frames = [];
    this.frames = [...this.frames.filter((one) => one.at > at - this.seconds), newest].slice(-MOST_FRAMES);
    return fuse(this.frames.map((one) => one.prediction), rule);
  }
}

function continues(last, newest) {
  const names = ({ prediction }) => prediction.scores.map((one) => one.label).join("\n");
  return newest.at >= last.at && names(newest) === names(last) && correlation(last.thumbnail, newest.thumbnail) >= SAME_SCENE;
}

// The mean colours of 8 x 8 cells of a square frame, RGBA or RGB: 192 numbers.
export function thumbnail(frame, size) {
  const channels = frame.length / (size * size);
  const step = Math.max(1, Math.floor(size / (CELLS * CELL_PIXELS)));
  const length = Math.ceil(size / step);
  const cells = Math.min(CELLS, length);
  const width = Math.floor(length / cells);
  const found = new Float64Array(cells * cells * 3);
  for (let y = 0; y < width * cells; y++) {
    for (let x = 0; x < width * cells; x++) {
      const from = (y * step * size + x * step) * channels;
      const to = (Math.floor(y / width) * cells + Math.floor(x / width)) * 3;
      for (let colour = 0; colour < 3; colour++) found[to + colour] += frame[from + colour];
    }
  }
  return found.map((total) => total / width ** 2);
}

// (a b + e) / sqrt((a a + e) (b b + e)),  a and b the thumbnails less their means: how alike they are, from -1 to 1.
export function correlation(one, two) {
  if (one.length !== two.length) return 0;
  const centred = (x) => x.map((value) => value - x.reduce((sum, other) => sum + other, 0) / x.length);
  const [a, b] = [centred(one), centred(two)];
  const noise = a.length * NOISE ** 2;
  const product = (x, y) => x.reduce((sum, value, k) => sum + value * y[k], noise);
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
}

// A prediction as the service's clients see it: what was taught as "nothing" is never known or likely.
export function recognised({ label, confidence, answer, scores, familiarity }, version) {
  const shown = label === NOTHING ? "unknown" : answer;
  return { label, confidence, answer: shown, known: shown === "known", familiarity, scores, version };
}
