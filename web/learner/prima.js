// The head of prima: one ridge regression per place, weighted by leave-one-out scores. The formulas are those of the Python
// modules heads/prima.py, place_fit.py, place_weights.py and strangers.py, under the same names and in the same order; the
// explanations are there. Everything is float64 unless it says otherwise.

import { Matrix, add, dot, forSquare, minus, solveShifted, solveSmall, sum, times, timesTransposed } from "./linear.js";
import { randomSigns } from "./hashes.js";

export const LESSONS_KEPT = 4; // lessons per class that are kept to judge the places
const KEY_PERIOD = 0.002; // the period of keys
const LEVEL = 0.1; // rho is this fraction of the variance tr C that one lesson of L contributes
const ROUNDING = 1e-7; // bound on the rounding error of an eigenvalue of G, relative to tr G
const USUAL_ALIKENESS = 1 / 3; // of classes, if there are no two; the priors are then as they are
const MOST_EXPONENT = 2; // of the priors
const LOGIT_SCALE = 16; // the sum of the weights of the places in the prior
const WEIGHT_SPREAD = 1; // prior standard deviation of the logarithm of each weight
const SCALE_SPREAD = 1; // prior standard deviation of the logarithm of the common scale
const GENERIC_CLASSES = 4; // the number of classes that the spread over generic frames counts for
const GENERIC_SHIFT = 2; // prior mean and standard deviation of M, in units of the generic spread
const ROOM_SLOPE = 0.75; // decrease of the likeness of strangers per unit of the cosine of the rooms
const SIMILAR = 0.75; // prior correlation of the likeness of two frames of one clip
const SIMILAR_LESSONS = 2; // the number of lessons that this prior counts for
const LEAST_CORRELATION = 0.1;
const LARGEST_OF_TWO = Math.PI ** -0.5; // the mean of the larger of two standard normal numbers

// Slices of these sizes, one after the other.
export function consecutive(sizes) {
  let stop = 0;
  return sizes.map((size) => ({ start: stop, stop: (stop += size) }));
}

const clip = (x, low, high) => Math.min(Math.max(x, low), high);
const norm = (x) => Math.sqrt(dot(x, x));
export const largest = (x) => x.reduce((most, value) => Math.max(most, value), -Infinity);

// ---- The sums ----

// n_c = sum_l 1,  s_c = sum_l mean_l z  and  G = sum_l mean_l (z z^T)  over the lessons l (`LessonStatistics`).
//
// G has one block per place, each packed into D (D + 1) / 2 numbers: for G = [[A, B], [B^T, C]] first B, then a rectangle with
// the triangles of A and C. After every change G is rounded to the five bytes per number that files store.
export class LessonStatistics {
  static rowNames = ["n", "s"];

  constructor({ n, s, t, gram }, blocks) {
    Object.assign(this, { n, s, t, gram, blocks, dim: sum(blocks), places: consecutive(blocks) });
    this.packed = consecutive(blocks.map(packedSize));
  }

  static empty(blocks) {
    const gram = new Float64Array(sum(blocks.map(packedSize)));
    return new LessonStatistics({ n: new Float64Array(0), s: new Matrix(0, sum(blocks)), t: 0, gram }, blocks);
  }

  copy() {
    const { n, s, t, gram } = this;
    return new LessonStatistics({ n: n.slice(), s: new Matrix(s.rows, s.columns, s.data.slice()), t, gram: gram.slice() }, this.blocks);
  }

  // mu_c = s_c / n_c for the first `known` classes.
  means(known) {
    return new Matrix(known, this.dim).mapRows((_, c) => this.s.row(c).map((x) => x / this.n[c]));
  }

  // Adds one lesson of the class in this row: the features of its frames.
  add(row, frames) {
    this.n[row] += 1;
    this.t += 1;
    const root = Math.sqrt(frames.rows);
    const x = frames.mapRows((z) => times(z, 1 / root));
    const total = this.s.row(row);
    for (let i = 0; i < x.rows; i++) add(total, x.row(i), 1 / root);
    this.addGram(x, 1);
  }

  // G <- G + factor x^T x, without rounding
  addGram(x, factor) {
    this.places.forEach((place, h) => addGram(this.gram.subarray(this.packed[h].start, this.packed[h].stop), x.part(place), factor));
    shorten(this.gram);
  }

  merge(other, rows) {
    rows.forEach((row, theirs) => {
      this.n[row] += other.n[theirs];
      add(this.s.row(row), other.s.row(theirs));
    });
    this.t += other.t;
    add(this.gram, other.gram);
    shorten(this.gram);
  }

  expand(rows) {
    this.n = grown(this.n, rows, 1);
    this.s = new Matrix(Math.max(rows, this.s.rows), this.dim, grown(this.s.data, rows, this.dim));
  }

  // Forgets a class: G <- G - s s^T / n, then its row is deleted.
  drop(row) {
    if (this.n[row] > 0) {
      const root = Math.sqrt(this.n[row]);
      this.addGram(new Matrix(1, this.dim, this.s.row(row).map((x) => x / root)), -1);
    }
    this.n = dropped(this.n, row, 1);
    this.s = new Matrix(this.s.rows, this.dim, dropped(this.s.data, row, this.dim));
  }
}

export const packedSize = (dim) => (dim * (dim + 1)) / 2;

// Returns the function (i, j), i >= j, of the position of G_ij in the packed form of G = [[A, B], [B^T, C]]: first come the rows
// of B, then a rectangle whose rows begin with the lower triangle of C and end with the upper one of A.
export function packedPosition(dim) {
  const half = Math.floor(dim / 2);
  const rest = dim - half;
  const width = half + 1;
  const rectangle = half * rest;
  return (i, j) => {
    if (j >= half) return rectangle + (i - half) * width + (j - half);
    if (i >= half) return j * rest + (i - half);
    return rectangle + j * width + 1 + i;
  };
}

// G <- G + factor z^T z for a packed G
function addGram(packed, z, factor) {
  const at = packedPosition(z.columns);
  forSquare(z.transposed(), (start, product) => {
    for (let k = 0; k < product.rows; k++) {
      const i = start + k;
      const row = product.row(k);
      for (let j = 0; j <= i; j++) packed[at(i, j)] += factor * row[j];
    }
  });
}

// Rounds to 29 significant bits, in place: the lowest 24 of the 64 bits are then 0.
export function shorten(x) {
  for (let k = 0; k < x.length; k++) {
    const product = x[k] * (2 ** 24 + 1);
    x[k] = product - (product - x[k]);
  }
}

const grown = (array, rows, width) => {
  if (array.length >= rows * width) return array;
  const found = new array.constructor(rows * width);
  found.set(array);
  return found;
};

const dropped = (array, row, width) => {
  const found = new array.constructor(array.length);
  found.set(array.subarray(0, row * width));
  found.set(array.subarray((row + 1) * width), row * width);
  return found;
};

// ---- The sample ----

// A few lessons per class: of each its key, the mean, and the features of one frame (`LessonSample`). `key` is
// classes x LESSONS_KEPT (BigInt64Array, 0 for an empty slot); `mean` and `frame` have a row per slot, float32.
export class LessonSample {
  static rowNames = ["key", "mean", "frame"];

  constructor({ key, mean, frame, centre, spread }, blocks) {
    Object.assign(this, { key, mean, frame, centre, spread, blocks, dim: sum(blocks), places: consecutive(blocks) });
  }

  static empty(blocks) {
    const none = () => new Float32Array(0);
    const centre = new Float32Array(sum(blocks));
    const spread = new Float32Array(blocks.length ** 2);
    return new LessonSample({ key: new BigInt64Array(0), mean: none(), frame: none(), centre, spread }, blocks);
  }

  copy() {
    const { key, mean, frame, centre, spread } = this;
    return new LessonSample({ key: key.slice(), mean: mean.slice(), frame: frame.slice(), centre, spread }, this.blocks);
  }

  get rows() {
    return this.key.length / LESSONS_KEPT;
  }

  get hasReference() {
    return this.centre.some((x) => x !== 0);
  }

  slot(name, row, slot) {
    const at = (row * LESSONS_KEPT + slot) * this.dim;
    return this[name].subarray(at, at + this.dim);
  }

  // Adds a lesson if its key is among the smallest of its class.
  add(row, frames) {
    const mean = Float32Array.from(frames.mean());
    const keys = featureKeys(frames);
    const chosen = frames.row(keys.indexOf(keys.reduce((least, key) => (key < least ? key : least))));
    const [key] = featureKeys(new Matrix(1, this.dim, Float64Array.from(mean)));
    this.insert(row, key, mean, Float32Array.from(chosen));
  }

  insert(row, key, mean, frame) {
    const lessons = [];
    for (let slot = 0; slot < LESSONS_KEPT; slot++) {
      const own = this.key[row * LESSONS_KEPT + slot];
      if (own) lessons.push({ key: own, mean: this.slot("mean", row, slot).slice(), frame: this.slot("frame", row, slot).slice() });
    }
    lessons.push({ key, mean, frame });
    lessons.sort((one, two) => (one.key < two.key ? -1 : Number(one.key > two.key)));
    lessons.slice(0, LESSONS_KEPT).forEach((lesson, slot) => {
      this.key[row * LESSONS_KEPT + slot] = lesson.key;
      this.slot("mean", row, slot).set(lesson.mean);
      this.slot("frame", row, slot).set(lesson.frame);
    });
  }

  merge(other, rows) {
    if (!this.hasReference) this.takeReference(other);
    rows.forEach((row, theirs) => {
      for (let slot = 0; slot < LESSONS_KEPT; slot++) {
        const key = other.key[theirs * LESSONS_KEPT + slot];
        if (key) this.insert(row, key, other.slot("mean", theirs, slot), other.slot("frame", theirs, slot));
      }
    });
  }

  takeReference({ centre, spread }) {
    Object.assign(this, { centre, spread });
  }

  expand(rows) {
    this.key = grown(this.key, rows, LESSONS_KEPT);
    for (const name of ["mean", "frame"]) this[name] = grown(this[name], rows, LESSONS_KEPT * this.dim);
  }

  drop(row) {
    this.key = dropped(this.key, row, LESSONS_KEPT);
    for (const name of ["mean", "frame"]) this[name] = dropped(this[name], row, LESSONS_KEPT * this.dim);
  }

  // The kept lessons of the first `known` classes: the class of each, the means, and the features of one frame each.
  lessons(known, isKept = () => true) {
    const slots = [];
    for (let at = 0; at < known * LESSONS_KEPT; at++) {
      if (this.key[at] && isKept(Math.floor(at / LESSONS_KEPT))) slots.push(at);
    }
    const columns = slots.map((at) => Math.floor(at / LESSONS_KEPT));
    const vectors = (name) => new Matrix(slots.length, this.dim)
      .mapRows((_, l) => this[name].subarray(slots[l] * this.dim, (slots[l] + 1) * this.dim));
    return { columns, means: vectors("mean"), frames: vectors("frame") };
  }
}

// key = 1 + 2^53 frac(u z / (KEY_PERIOD |z|)),  u = random signs / sqrt(D)
export function featureKeys(z) {
  const signs = randomSigns(z.columns);
  return Array.from({ length: z.rows }, (_, i) => {
    const x = z.row(i);
    const periods = dot(x, signs) / Math.sqrt(Math.max(dot(x, x), 1e-30)) / KEY_PERIOD;
    return 1n + BigInt(Math.trunc((periods - Math.floor(periods)) * 2 ** 53));
  });
}

// ---- The regression of one place, and its leave-one-out scores ----

// w_c = inv(C + rho I) (mu_c - m) / K,  C = S / t + sum_c (mu_c - m)(mu_c - m)^T / K,
//
// S = G - sum_c s_c s_c^T / n_c,  rho = LEVEL tr C / L
//
// `n` and `s` are those of the K classes, `fill` writes the lower triangle of G, `generic` is g. Returns w, b, and `leftOut`,
// the scores of one frame of each lesson by the regression on all other lessons.
function fitPlace(n, s, fill, t, lessons, generic) {
  const classes = s.rows;
  const dim = s.columns;
  const mu = s.mapRows((row, c) => row.map((x) => x / Math.max(n[c], 1)));
  const m = mu.mean();
  const offset = mu.mapRows((row) => minus(row, m));
  if (classes === 1) {
    return { w: new Matrix(1, dim), b: new Float64Array(1), leftOut: new Matrix(lessons.columns.length, 1) };
  }
  t = Math.max(t, 1);
  // t C = G + sum_c (t / K - n_c) mu_c mu_c^T - t m m^T
  const u = new Matrix(classes + 1, dim).mapRows((_, c) => (c < classes ? times(mu.row(c), t / classes - n[c]) : times(m, -t)));
  const v = new Matrix(classes + 1, dim).mapRows((_, c) => (c < classes ? mu.row(c) : m));
  const squares = mean(Array.from({ length: classes }, (_, c) => dot(mu.row(c), mu.row(c))));
  const shift = (trace) => t * ((LEVEL * trace) / t / Math.max(sum(n), 1) + ROUNDING * squares + 1e-30); // t rho
  const x = lessons.means.mapRows((row) => minus(row, m));
  const right = new Matrix(classes + x.rows, dim)
    .mapRows((_, k) => (k < classes ? times(offset.row(k), t / classes) : times(x.row(k - classes), t)));
  const solved = solveShifted(dim, fill, u.transposed(), v.transposed(), shift, right);
  const w = new Matrix(classes, dim, solved.data.subarray(0, classes * dim));
  const px = new Matrix(x.rows, dim, solved.data.subarray(classes * dim));
  const { o, kappa } = originOfScores(n, m, generic);
  const z = lessons.frames.mapRows((row) => minus(row, o));
  const leftOut = leftOutScores(w, offset, lessons.columns, n, t, x, px, z, kappa);
  return { w, b: Float64Array.from({ length: classes }, (_, c) => -dot(w.row(c), o)), leftOut };
}

const mean = (x) => sum(x) / x.length;

// o = (1 - kappa) m + kappa g,  kappa = K / (K + L):  all classes score 0 at o; without g, o = m.
function originOfScores(n, m, generic) {
  if (!generic.some((x) => x !== 0)) return { o: m, kappa: 0 };
  const kappa = n.length / (n.length + sum(n));
  return { o: m.map((x, k) => x + kappa * (generic[k] - x)), kappa };
}

// With d = x - mu_c, e = mu_c - m, a = 1 / (n_c - 1): without the lesson C changes by F M F^T, F = [d e],
//
// M = [[(1 - 1 / K) a^2 / K - (1 + a) / t, -a / K], [-a / K, 0]]
//
// and P = inv(C + rho I) by -P F N F^T P,  G = F^T P F,  N = inv(I + M G) M.
function leftOutScores(w, offset, columns, n, t, x, px, z, kappa) {
  const classes = w.rows;
  const es = offset.rowsAt(columns);
  const ds = x.mapRows((row, l) => minus(row, es.row(l)));
  const zs = z.mapRows((row, l) => {
    const moved = row.slice();
    add(moved, ds.row(l), (1 - kappa) / (n[columns[l]] - 1) / classes);
    return moved;
  });
  const zw = timesTransposed(zs, w);
  const dw = timesTransposed(ds, w);
  const ew = timesTransposed(offset, w);
  return zw.mapRows((_, l) => {
    const c = columns[l];
    const a = 1 / (n[c] - 1);
    const [d, e] = [ds.row(l), es.row(l)];
    const pe = times(w.row(c), classes);
    const pd = minus(px.row(l), pe);
    const [dd, de, ee] = [dot(d, pd), dot(d, pe), dot(e, pe)]; // G
    const mdd = ((1 - 1 / classes) / classes) * a * a - (1 + a) / Math.max(t, 1);
    const mde = -a / classes;
    const reduced = mdd - mde * mde * ee;
    const det = Math.max((1 + mde * de) ** 2 + dd * reduced, 1e-9); // det(I + M G) > 0
    const [ndd, nde, nee] = [reduced / det, (mde * (1 + mde * de)) / det, (-mde * mde * dd) / det];
    const [zd, ze] = [dot(zs.row(l), pd), dot(zs.row(l), pe)]; // F^T P z
    const [vd, ve] = [ndd * zd + nde * ze, nde * zd + nee * ze];
    const along = (a * (zd - dd * vd - de * ve)) / classes; // a d^T P z / K, P without the lesson
    const [dOwn, eOwn] = [dw.row(l), ew.row(c)];
    return zw.row(l).map((score, k) => score - vd * dOwn[k] - ve * eOwn[k] - along * (Number(k === c) - 1 / classes));
  });
}

// y^T P v / K + y^T P e e^T P v a / (1 - a e^T P e) / K,  v = mu_k - m + a e,  y = z + (1 - kappa) a e,  a = 1 / (K - 1):
//
// the scores of a frame of each lesson by the same regression without the class of the lesson. The lessons are z, L x D.
function strangeScores(w, offset, columns, z, kappa) {
  const classes = w.rows;
  const a = 1 / Math.max(classes - 1, 1);
  const ay = (1 - kappa) * a;
  const zps = timesTransposed(z, w); // z^T P (mu_k - m) / K
  const eps = timesTransposed(offset, w); // e^T P (mu_k - m) / K
  return zps.mapRows((zp, l) => {
    const c = columns[l];
    const ep = eps.row(c);
    const [ze, ee] = [zp[c], ep[c]]; // z^T P e / K, e^T P e / K
    const ye = ze + ay * ee;
    const factor = (a * classes) / Math.max(1 - a * classes * ee, 1e-9);
    return zp.map((value, k) => {
      const ev = ep[k] + a * ee;
      return value + ay * ep[k] + a * ye + ye * ev * factor;
    });
  });
}

// ---- The weights of the places ----

// e = log2((1 - a) / a), from 0 to MOST_EXPONENT: the priors are raised to it. Classes that are alike (a) differ in what earlier
// places show.
export function priorExponent(alikeness) {
  if (alikeness <= 0) return MOST_EXPONENT;
  return clip(Math.log2(Math.max(1 - alikeness, 0) / alikeness), 0, MOST_EXPONENT);
}

// beta = exp(theta),  theta = argmax sum_l log softmax(sum_h beta_h f_hl)_c(l) + log p(theta)
//
// `leftOut` has f of one place each, L x K; `columns` the class of each lesson. Found by Newton's method.
export function placeWeights(leftOut, columns, priors) {
  const places = priors.length;
  const total = sum(priors);
  const start = Float64Array.from(priors, (prior) => Math.log((LOGIT_SCALE * prior) / total));
  const count = columns.length;
  if (!count) return start.map(Math.exp);
  const classes = leftOut[0].columns;
  const precision = precisionOfWeights(places);
  const score = (h, l, k) => leftOut[h].data[l * classes + k];

  function posterior(theta) {
    const beta = theta.map(Math.exp);
    const p = new Matrix(count, classes);
    let value = 0;
    for (let l = 0; l < count; l++) {
      const row = p.row(l);
      for (let h = 0; h < places; h++) add(row, leftOut[h].row(l), beta[h]);
      const most = largest(row);
      for (let k = 0; k < classes; k++) row[k] -= most;
      const own = row[columns[l]];
      for (let k = 0; k < classes; k++) row[k] = Math.exp(row[k]);
      const all = sum(row);
      for (let k = 0; k < classes; k++) row[k] /= all;
      value += own - Math.log(all);
    }
    const off = minus(theta, start);
    return { theta, value: value - 0.5 * dot(off, timesVector(precision, off)), p, beta };
  }

  let best = posterior(start);
  for (let round = 0; round < 50; round++) {
    const { theta, beta, p } = best;
    const gradient = new Float64Array(places);
    const hessian = new Matrix(places, places);
    for (let l = 0; l < count; l++) {
      const f = Array.from({ length: places }, (_, h) => leftOut[h].row(l));
      const q = p.row(l);
      const means = f.map((row) => dot(row, q));
      for (let h = 0; h < places; h++) {
        gradient[h] += (score(h, l, columns[l]) - means[h]) * beta[h];
        const weighted = f[h].map((x, k) => x * q[k]);
        for (let i = 0; i < places; i++) hessian.row(h)[i] += (dot(weighted, f[i]) - means[h] * means[i]) * beta[h] * beta[i];
      }
    }
    for (let h = 0; h < places; h++) hessian.row(h)[h] += Math.max(-gradient[h], 0);
    add(hessian.data, precision.data);
    const off = minus(theta, start);
    let step = solveSmall(hessian, minus(gradient, timesVector(precision, off)));
    const shortened = Math.min(1, 2 / Math.max(length(step), 1e-30));
    step = step.map((x) => x * shortened);
    const moved = () => posterior(theta.map((x, h) => x + step[h]));
    let found = moved();
    while (found.value < best.value && length(step) > 1e-6) {
      step = step.map((x) => x / 2);
      found = moved();
    }
    if (found.value <= best.value + 1e-9) break;
    best = found;
  }
  return best.beta;
}

const length = (step) => largest(step.map(Math.abs));
const timesVector = (a, x) => Float64Array.from({ length: a.rows }, (_, i) => dot(a.row(i), x));

// The inverse of WEIGHT_SPREAD^2 I + SCALE_SPREAD^2
function precisionOfWeights(places) {
  const spread = new Matrix(places, places).mapRows((row, h) => row.map((_, i) => WEIGHT_SPREAD ** 2 * Number(h === i) + SCALE_SPREAD ** 2));
  return new Matrix(places, places).mapRows((row, h) => solveSmall(spread, row.map((_, i) => Number(i === h))));
}

// ---- Strangers ----

// M + sigma t, the distribution of the likeness of strangers, with Student's t.
class Strangers {
  constructor(most, usual, spread, freedom) {
    this.usual = Math.min(usual, most - 1e-6); // well below the likeness of a frame that equals the mean of a class
    this.spread = Math.min(spread, (most - this.usual) / 2);
    this.freedom = freedom;
  }

  // The fraction of strangers with a value below s, by Wallace's approximation.
  shareBelow(s) {
    const t = (s - this.usual) / this.spread;
    const v = this.freedom;
    const size = ((8 * v + 1) / (8 * v + 3)) * Math.sqrt(v * Math.log1p((t * t) / v));
    const x = t < 0 ? -size : size;
    return 1 / (1 + Math.exp(clip(-1.5976 * x - 0.07056 * x ** 3, -80, 80)));
  }
}

// The lessons count so that each class counts the same; the weights sum to 1.
function lessonWeights(columns, classes) {
  const counts = new Float64Array(classes);
  for (const c of columns) counts[c] += 1;
  const weights = columns.map((c) => 1 / counts[c]);
  const total = sum(weights);
  return weights.map((weight) => weight / total);
}

// The distribution of the likeness of strangers to the most similar of K classes, from the likeness of lessons, L x K.
export function expectedStrangers(likeness, columns, generic, most) {
  const classes = likeness.columns;
  generic = Math.max(generic, 1e-3);
  const prior = GENERIC_SHIFT ** -2;
  if (classes === 1 || !columns.length) {
    return new Strangers(most, GENERIC_SHIFT * generic, generic * Math.sqrt(1 + 1 / prior), GENERIC_CLASSES);
  }
  const ordered = columns.map((c, l) => likeness.row(l).filter((_, k) => k !== c).sort());
  const x = ordered.map((row) => row.at(-1));
  const weight = lessonWeights(columns, classes);
  const average = dot(weight, x);
  const above = 2 * dot(weight, x.map((value) => Math.max(value - average, 0) ** 2));
  const pairs = classes - 1;
  const freedom = GENERIC_CLASSES + pairs - 1;
  const sigma = Math.sqrt((GENERIC_CLASSES * generic ** 2 + pairs * above) / freedom);
  let more = LARGEST_OF_TWO * sigma;
  if (classes > 2) {
    const less = dot(weight, ordered.map((row) => row.at(-1) - row.at(-2))) / (classes - 1);
    more = (less * (classes - 2)) / (classes - 1);
  }
  const count = prior + pairs;
  const usual = (prior * GENERIC_SHIFT * generic + pairs * (average + more)) / count;
  return new Strangers(most, usual, sigma * Math.sqrt(1 + 1 / count), freedom);
}

// rho = 1 - W / sigma^2,  W = (n (1 - SIMILAR) sigma^2 + sum_l d_l^2) / (n + L)
export function frameCorrelation(frames, means, columns, strangers) {
  const count = columns.length;
  if (frames.columns === 1 || !count) return SIMILAR;
  const nearest = (x, l) => largest(x.row(l).filter((_, k) => k !== columns[l]));
  const d = columns.map((_, l) => nearest(frames, l) - nearest(means, l));
  const average = mean(d);
  const variance = strangers.spread ** 2;
  const squares = SIMILAR_LESSONS * (1 - SIMILAR) * variance + sum(d.map((x) => (x - average) ** 2));
  return Math.max(1 - squares / (SIMILAR_LESSONS + count) / variance, LEAST_CORRELATION);
}

// The weight of each place in the likeness of objects: none for the first place, which reads the whole picture.
export function middleShares(beta) {
  const share = Array.from(beta, (weight, h) => (h === 0 && beta.length > 1 ? 0 : weight));
  const total = sum(share);
  return share.map((weight) => weight / total);
}

// The mean similarity of the rooms of different classes, e of `roomLift`.
export function usualRoom(alike, columns) {
  const classes = alike.columns;
  if (classes === 1 || !columns.length) return 0;
  const others = columns.map((c, l) => sum(alike.row(l)) - alike.row(l)[c]);
  return dot(lessonWeights(columns, classes), others) / (classes - 1);
}

// ROOM_SLOPE max(0, e - r),  r = (e + sum_{c not b} alike_c) / K  for the similarities of one frame; b is its nearest class.
function roomLift(alike, likeness, usual) {
  const most = largest(likeness);
  const lower = alike.map((value, k) => (likeness[k] < most ? usual - value : 0));
  return ROOM_SLOPE * Math.max(mean(lower), 0);
}

// Adds to the likeness of each lesson its `roomLift` among the classes other than its own.
export function lessonsLifted(likeness, alike, columns, usual) {
  if (likeness.columns === 1) return likeness;
  return likeness.mapRows((row, l) => {
    const others = (x) => x.filter((_, k) => k !== columns[l]);
    const lift = roomLift(others(alike.row(l)), others(row), usual);
    return row.map((value) => value + lift);
  });
}

// x_h / |x_h| for each place h, side by side.
function unitVectors(x, places) {
  return x.mapRows((row) => {
    const found = row.slice();
    for (const { start, stop } of places) {
      const own = found.subarray(start, stop);
      found.set(times(own, 1 / Math.sqrt(Math.max(dot(own, own), 1e-30))), start);
    }
    return found;
  });
}

// ---- The head ----

// scores = sum_h beta_h (w_h x_h + b_h)
export class LessonHead {
  ranksStrangers = true; // familiarity is a rank among strangers

  constructor(statistics, sample, priors) {
    Object.assign(this, { statistics, sample, priors, groups: { lessons: sample, moments: statistics }, derived: null });
  }

  static empty(blocks, priors) {
    return new LessonHead(LessonStatistics.empty(blocks), LessonSample.empty(blocks), priors);
  }

  copy() {
    return new LessonHead(this.statistics.copy(), this.sample.copy(), this.priors);
  }

  untaught() {
    const made = LessonHead.empty(this.statistics.blocks, this.priors);
    made.sample.takeReference(this.sample);
    return made;
  }

  // Learns one lesson: frames of the class in `column`, N x D.
  learn(frames, column) {
    this.statistics.add(column, frames);
    this.sample.add(column, frames);
    this.derived = null;
  }

  expand(classes) {
    for (const group of Object.values(this.groups)) group.expand(classes);
    this.derived = null;
  }

  forget(column) {
    for (const group of Object.values(this.groups)) group.drop(column);
    this.derived = null;
  }

  merge(other, columns) {
    this.sample.merge(other.sample, columns);
    this.statistics.merge(other.statistics, columns);
    this.derived = null;
  }

  // The regression of each place.
  fits(classes) {
    const { statistics, sample } = this;
    const n = statistics.n.subarray(0, classes);
    const lessons = this.toLeaveOut(classes);
    const s = new Matrix(classes, statistics.dim, statistics.s.data.subarray(0, classes * statistics.dim));
    const generic = Float64Array.from(sample.centre);
    return statistics.places.map((place, h) => {
      const { start, stop } = statistics.packed[h];
      const fill = (a, stride) => unpackLower(statistics.gram.subarray(start, stop), place.stop - place.start, a, stride);
      const own = { columns: lessons.columns, means: lessons.means.part(place), frames: lessons.frames.part(place) };
      return fitPlace(n, s.part(place), fill, statistics.t, own, generic.subarray(place.start, place.stop));
    });
  }

  // The weights of the places, how far their scores can be trusted, and the scores of lessons as strangers.
  judge(fits) {
    const classes = fits[0].w.rows;
    const { columns } = this.toLeaveOut(classes);
    const beta = placeWeights(fits.map((fit) => fit.leftOut), columns, this.priorsOf(classes));
    const total = sum(beta);
    const share = Array.from(beta, (weight) => weight / total);
    const own = columns.map((c, l) => sum(fits.map((fit, h) => share[h] * fit.leftOut.row(l)[c])));
    const trust = own.length ? Math.max(mean(own), 0) : 0;
    return { beta, trust, strange: this.strange(fits, share) };
  }

  // The prior weights of the places for what is taught.
  priorsOf(classes) {
    const exponent = priorExponent(this.alikeness(classes));
    return this.priors.map((prior) => prior ** exponent);
  }

  // mean_{c != k} u_c u_k,  u_c = mean_l (z_l - g) / |z_l - g| over the kept lessons l of c: the mean over the places with the
  // largest prior, without the first one, which shows the room, if there is another.
  alikeness(classes) {
    const { sample, priors } = this;
    if (classes < 2 || !sample.hasReference) return USUAL_ALIKENESS;
    const { columns, means } = sample.lessons(classes);
    const units = unitVectors(means.mapRows((row) => minus(row, sample.centre)), sample.places);
    const counts = new Float64Array(classes);
    for (const c of columns) counts[c] += 1;
    const u = new Matrix(classes, sample.dim);
    columns.forEach((c, l) => add(u.row(c), units.row(l), 1 / counts[c]));
    const last = priors.flatMap((prior, h) => (prior === largest(priors) ? [h] : []));
    const parts = last.filter((h) => h > 0 || last.length === 1).map((h) => u.part(sample.places[h]));
    const pairs = parts.map((part) => {
      const total = times(part.mean(), classes);
      return dot(total, total) - dot(part.data, part.data);
    });
    return sum(pairs) / parts.length / (classes * (classes - 1));
  }

  strange(fits, share) {
    const classes = fits[0].w.rows;
    const { statistics, sample } = this;
    const { columns, frames } = sample.lessons(classes);
    const mu = statistics.means(classes);
    const m = mu.mean();
    const { o, kappa } = originOfScores(statistics.n.subarray(0, classes), m, Float64Array.from(sample.centre));
    const offset = mu.mapRows((row) => minus(row, m));
    const z = frames.mapRows((row) => minus(row, o));
    const found = new Matrix(columns.length, classes);
    sample.places.forEach((place, h) => {
      add(found.data, strangeScores(fits[h].w, offset.part(place), columns, z.part(place), kappa).data, share[h]);
    });
    return found;
  }

  // The lessons of the sample whose class has at least one other lesson.
  toLeaveOut(classes) {
    return this.sample.lessons(classes, (row) => this.statistics.n[row] > 1);
  }

  // Everything that is computed from the state, until the state changes: w, b and the familiarity.
  solution(classes) {
    this.derived ??= this.solve(classes);
    return this.derived;
  }

  solve(classes) {
    const fits = this.fits(classes);
    const judged = this.judge(fits);
    const { places } = this.sample;
    const w = new Matrix(classes, this.sample.dim).mapRows((row, c) => {
      places.forEach(({ start }, h) => row.set(times(fits[h].w.row(c), judged.beta[h]), start));
      return row;
    });
    const b = Float64Array.from({ length: classes }, (_, c) => sum(fits.map((fit, h) => judged.beta[h] * fit.b[c])));
    return { w, b, familiarity: this.familiarity(classes, w, b, judged) };
  }

  familiarity(classes, w, b, { beta, trust, strange }) {
    const { sample, statistics } = this;
    const { places, blocks } = sample;
    const share = middleShares(beta);
    const centre = Float64Array.from(sample.centre);
    const { columns, means, frames } = sample.lessons(classes);
    const around = (x) => unitVectors(x.mapRows((row) => minus(row, centre)), places);
    const [taught, shown, usuallyShown] = [statistics.means(classes), frames, means].map(around);
    const rooms = taught.part(places[0]);
    if (places.length === 1) rooms.data.fill(0);
    const directions = taught.mapRows((row) => {
      const scaled = row.slice();
      places.forEach(({ start, stop }, h) => scaled.set(times(row.subarray(start, stop), share[h]), start));
      return scaled;
    });
    const cosines = timesTransposed(shown, directions);
    const usualCosines = timesTransposed(usuallyShown, directions);
    const alike = timesTransposed(shown.part(places[0]), rooms);
    const usual = usualRoom(alike, columns);
    const likeness = cosines.mapRows((row, l) => row.map((x, k) => x + trust * strange.row(l)[k]));
    const spread = new Matrix(blocks.length, blocks.length, Float64Array.from(sample.spread));
    const generic = Math.sqrt(Math.max(dot(share, timesVector(spread, share)), 0));
    const strangers = expectedStrangers(lessonsLifted(likeness, alike, columns, usual), columns, generic, 1 + trust);
    const worth = trust / sum(beta);
    const correlation = frameCorrelation(cosines, usualCosines, columns, strangers);
    return { directions, centre, rooms, worth, usual, strangers, correlation };
  }

  // The scores and the familiarity of frames, N x D.
  judgeFeatures(z, classes) {
    const { w, b, familiarity } = this.solution(classes);
    const scores = [];
    const familiarities = [];
    for (let i = 0; i < z.rows; i++) {
      const row = z.row(i);
      const found = Float64Array.from(b, (offset, c) => dot(w.row(c), row) + offset);
      scores.push(found);
      familiarities.push(this.familiarityOf(row, found, familiarity));
    }
    return { scores, temperature: 1, familiarity: familiarities };
  }

  // The fraction of strangers with a smaller s,  s = max_c (sum_h share_h cos(z_h - g_h, mu_ch - g_h) + worth score_c) + lift
  familiarityOf(z, scores, { directions, centre, rooms, worth, usual, strangers }) {
    const off = minus(z, centre);
    const { places } = this.sample;
    const lengths = places.map(({ start, stop }) => Math.max(norm(off.subarray(start, stop)), 1e-15));
    const first = off.subarray(places[0].start, places[0].stop);
    const alike = Float64Array.from(scores, (_, c) => dot(rooms.row(c), first) / lengths[0]);
    const likeness = scores.map((score, c) => {
      const cosines = places.map(({ start, stop }, h) => dot(directions.row(c).subarray(start, stop), off.subarray(start, stop)) / lengths[h]);
      return worth * score + sum(cosines);
    });
    return strangers.shareBelow(largest(likeness) + roomLift(alike, likeness, usual));
  }

  // The correlation of the familiarity of two frames of one clip of a stranger.
  correlation(classes) {
    return classes ? this.solution(classes).familiarity.correlation : 1;
  }
}

// Writes the lower triangle of a packed G into `a`, whose rows have `stride` numbers.
function unpackLower(packed, dim, a, stride) {
  const at = packedPosition(dim);
  for (let i = 0; i < dim; i++) for (let j = 0; j <= i; j++) a[i * stride + j] = packed[at(i, j)];
}
