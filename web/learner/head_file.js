// The groups of arrays of a head in files: what is written, what is read and checked, and how the state before the last change is
// stored as its difference from the present one. The rules are those of Python's heads (`to_file`, `from_file`, `check`, `beside`,
// `earlier`) and of storage/validate.py.

import { Refusal, WRONG_INPUT } from "./errors.js";
import { array, equalBytes, sameBits, size } from "./learner_file.js";
import { add, Matrix, minus, sum, times } from "./linear.js";
import { MAX_COUNT } from "./manifest.js";
import { ClassSums } from "./ncm.js";
import { LESSONS_KEPT, LessonSample, LessonStatistics, packedPosition } from "./prima.js";

const MAX_FEATURE = 3.4028234663852886e38; // of float32
const ROUNDING = 1e-6; // the share by which sums in float64 may fall short of their lower bound
const MOST_CHANGED = 128; // the most rows of F in a file; with more rows, G itself is stored
const CHANGE_PRECISION = 2 ** -26; // relative error allowed in the difference of two G
const BELOW_ZERO = 4; // times this error: how far rounding may take a square in the difference below 0

export function check(condition, name, problem) {
  if (!condition) throw new Refusal(`${name} ${problem}`, WRONG_INPUT);
}

// Finds an array of this type; null for a length that may be any.
function taken(arrays, prefix, name, dtype, shape) {
  const found = arrays.get(name);
  check(found, prefix + name, "is missing");
  const fits = found.shape.length === shape.length && shape.every((length, k) => length === null || found.shape[k] === length);
  check(fits && found.dtype === dtype, prefix + name, `is ${found.dtype} of shape ${found.shape}, expected ${dtype} of shape ${shape}`);
  return found;
}

const every = (numbers, fits) => {
  for (const x of numbers) if (!fits(x)) return false;
  return true;
};

// ---- The parts of a row by which two states are compared ----

const rowBits = ({ shape, data }, row) => {
  const width = size(shape.slice(1));
  const part = data.subarray(row * width, (row + 1) * width);
  return new Uint8Array(part.buffer, part.byteOffset, part.byteLength);
};

// Stores only the rows that the later state does not have: `rows` has the index of an equal row there, or -1.
function rowsBeside(ours, theirs, arrays) {
  const names = [...ours.keys()];
  if (!names.some((name) => arrays.has(name))) return arrays;
  const [count, later] = [ours, theirs].map((group) => group.get(names[0]).shape[0]);
  const free = new Set(Array.from({ length: later }, (_, row) => row));
  const rows = new BigInt64Array(count).fill(-1n);
  for (let row = 0; row < count; row++) {
    const isEqual = (other) => names.every((name) => equalBytes(rowBits(ours.get(name), row), rowBits(theirs.get(name), other)));
    const found = [...free].find(isEqual);
    if (found === undefined) continue;
    free.delete(found);
    rows[row] = BigInt(found);
  }
  const stored = new Map([...arrays].filter(([name]) => !ours.has(name)));
  stored.set("rows", array("int64", [count], rows));
  const changed = [...rows.keys()].filter((row) => rows[row] < 0n);
  for (const [name, whole] of ours) stored.set(`changed_${name}`, chosenRows(whole, changed));
  return stored;
}

function chosenRows({ dtype, shape, data }, rows) {
  const width = size(shape.slice(1));
  const found = new data.constructor(rows.length * width);
  rows.forEach((row, k) => found.set(data.subarray(row * width, (row + 1) * width), k * width));
  return array(dtype, [rows.length, ...shape.slice(1)], found);
}

// Restores the rows that `rowsBeside` left out.
function rowsEarlier(theirs, prefix, stored) {
  if (!stored.has("rows")) return stored;
  const found = new Map(stored);
  const { data: rows } = taken(found, prefix, "rows", "int64", [null]);
  found.delete("rows");
  const old = rows.filter((row) => row >= 0n);
  const count = Math.min(...[...theirs.values()].map(({ shape }) => shape[0]));
  const fits = new Set(old).size === old.length && every(rows, (row) => row >= -1n && row < BigInt(count));
  check(fits, prefix + "rows", "is not a list of rows of the present state");
  for (const [name, later] of theirs) {
    const changed = taken(found, prefix, `changed_${name}`, later.dtype, [rows.length - old.length, ...later.shape.slice(1)]);
    const width = size(later.shape.slice(1));
    const whole = new later.data.constructor(rows.length * width);
    let next = 0;
    rows.forEach((row, k) => {
      const [from, at] = row < 0n ? [changed.data, next++] : [later.data, Number(row)];
      whole.set(from.subarray(at * width, (at + 1) * width), k * width);
    });
    found.delete(`changed_${name}`);
    found.set(name, array(later.dtype, [rows.length, ...later.shape.slice(1)], whole));
  }
  return found;
}

// ---- The sums of prima ----

const one = (x) => array("float64", [], new Float64Array([x]));
const vector = (data) => array("float64", [data.length], data);
const table = ({ rows, columns, data }) => array("float64", [rows, columns], data);
const readTable = ({ shape, data }) => new Matrix(shape[0], shape[1], data);

const statistics = {
  toFile: ({ n, s, t, gram }) => new Map([["n", vector(n)], ["s", table(s)], ["t", one(t)], ["gram", fiveBytes(gram)]]),

  fromFile(prefix, arrays, empty) {
    const n = taken(arrays, prefix, "n", "float64", [null]);
    const s = taken(arrays, prefix, "s", "float64", [n.shape[0], empty.dim]);
    const t = taken(arrays, prefix, "t", "float64", []);
    const gram = fromFiveBytes(prefix + "gram", taken(arrays, prefix, "gram", "uint8", [empty.gram.length, 5]));
    return new LessonStatistics({ n: n.data, s: readTable(s), t: t.data[0], gram }, empty.blocks);
  },

  rowsOf: ({ n, s }) => new Map([["n", vector(n)], ["s", table(s)]]),
  length: ({ n }) => n.length,

  check(own, prefix, known, taught) {
    const { n, s, t, gram } = own;
    checkCounts(prefix + "n", n, known, taught);
    checkSums(prefix + "s", s, n);
    const total = sum(n);
    const isTotal = total <= t && t <= MAX_COUNT && Number.isInteger(t);
    check(isTotal, prefix + "t", `is ${t}, but its classes have ${total} frames`);
    const squares = squaresOfMeans(n, s);
    own.places.forEach(({ start, stop }, h) => {
      const at = packedPosition(stop - start);
      const diagonal = Float64Array.from({ length: stop - start }, (_, k) => gram[own.packed[h].start + at(k, k)]);
      const least = new Float64Array(stop - start);
      for (let c = 0; c < n.length; c++) squares.row(c).subarray(start, stop).forEach((x, k) => (least[k] += x));
      checkSquares(prefix + "gram", diagonal, least, t);
    });
    check(every(gram, (x) => Math.abs(x) <= t * MAX_FEATURE ** 2), prefix + "gram", "is larger than any sum over frames");
  },

  checkFrames({ n }, prefix, taught) {
    const enough = [...taught].every(([row, frames]) => n[row] <= frames);
    check(enough, prefix + "n", "counts more lessons than the manifest has frames");
  },

  // The rows that changed, and the difference of the two G as +-F^T F.
  beside(own, later, arrays) {
    const stored = rowsBeside(statistics.rowsOf(own), statistics.rowsOf(later), arrays);
    if (!stored.has("gram")) return stored;
    let change = minus(later.gram, own.gram);
    const grown = sum(change) >= 0;
    if (!grown) change = times(change, -1);
    const factors = [];
    for (const [h, { start, stop }] of own.packed.entries()) {
      const largest = (grown ? later : own).gram.subarray(start, stop);
      const factor = lowRankFactor(change.subarray(start, stop), own.blocks[h], largest);
      if (!factor) return stored;
      factors.push(factor);
    }
    const most = Math.max(...factors.map((factor) => factor.length));
    const data = new Float32Array(most * own.dim);
    factors.forEach((factor, h) => factor.forEach((row, k) => data.set(row, k * own.dim + own.places[h].start)));
    stored.delete("gram");
    return stored.set(grown ? "added" : "removed", array("float32", [most, own.dim], data));
  },

  earlier(later, prefix, stored) {
    const found = new Map(rowsEarlier(statistics.rowsOf(later), prefix, stored));
    for (const [name, sign] of [["added", 1], ["removed", -1]]) {
      if (!found.has(name)) continue;
      const { shape, data } = taken(found, prefix, name, "float32", [null, later.dim]);
      check(shape[0] <= MOST_CHANGED, prefix + name, `has shape ${shape}`);
      const before = LessonStatistics.empty(later.blocks);
      if (found.get("t")?.data[0] !== 0) { // before the first lesson G is 0
        before.gram = later.gram.slice();
        before.addGram(new Matrix(...shape, Float64Array.from(data)), -sign);
      }
      found.set("gram", fiveBytes(before.gram));
      found.delete(name);
    }
    return found;
  },
};

// G = F^T F with as few rows of F as possible, by a pivoted Cholesky factorisation; null if there is no such F.
function lowRankFactor(packed, dim, largest) {
  const at = packedPosition(dim);
  const element = (i, j) => packed[i >= j ? at(i, j) : at(j, i)];
  const tolerance = Float64Array.from({ length: dim }, (_, k) => CHANGE_PRECISION * largest[at(k, k)] + 1e-300);
  const rest = Float64Array.from({ length: dim }, (_, k) => element(k, k));
  const factor = [];
  for (;;) {
    if (rest.some((x, k) => x < -BELOW_ZERO * tolerance[k])) return null;
    let pivot = 0;
    rest.forEach((x, k) => (pivot = x / tolerance[k] > rest[pivot] / tolerance[pivot] ? k : pivot));
    if (rest[pivot] <= tolerance[pivot]) return factor;
    if (factor.length === MOST_CHANGED) return null;
    const root = Math.sqrt(rest[pivot]);
    const row = Float64Array.from({ length: dim }, (_, k) => element(pivot, k));
    for (const above of factor) add(row, above, -above[pivot]);
    for (let k = 0; k < dim; k++) {
      row[k] /= root;
      rest[k] -= row[k] * row[k];
    }
    rest[pivot] = 0;
    factor.push(row);
  }
}

const written = new WeakMap(); // the bytes of each G that was saved: states do not change, and are saved twice

// The upper five bytes of each number, least significant first; the others are 0 after `shorten`.
export function fiveBytes(numbers) {
  if (!written.has(numbers)) {
    const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
    const found = new Uint8Array(5 * numbers.length);
    for (let from = 3, to = 0; to < found.length; from += 8, to += 5) {
      found[to] = bytes[from];
      found[to + 1] = bytes[from + 1];
      found[to + 2] = bytes[from + 2];
      found[to + 3] = bytes[from + 3];
      found[to + 4] = bytes[from + 4];
    }
    written.set(numbers, array("uint8", [numbers.length, 5], found));
  }
  return written.get(numbers);
}

function fromFiveBytes(name, { data }) {
  const numbers = new Float64Array(data.length / 5);
  const bytes = new Uint8Array(numbers.buffer);
  for (let k = 0; k < numbers.length; k++) for (let j = 0; j < 5; j++) bytes[8 * k + 3 + j] = data[5 * k + j];
  check(every(numbers, Number.isFinite), name, "contains NaN or infinity");
  return numbers;
}

// ---- The sample of prima ----

const sample = {
  // Only the slots that hold a lesson, class by class; `key` ends with the last class that has one.
  toFile(own) {
    const { key, data } = keysOf(own);
    const there = [...data.keys()].filter((slot) => data[slot] > 0n);
    const vectors = (name) => chosenRows(array("float32", [own.rows * LESSONS_KEPT, own.dim], own[name]), there);
    return new Map([["key", key], ["mean", vectors("mean")], ["frame", vectors("frame")],
      ["centre", array("float32", [own.dim], own.centre)],
      ["spread", array("float32", [own.blocks.length, own.blocks.length], own.spread)]]);
  },

  fromFile(prefix, arrays, empty) {
    const { shape: [rows], data: key } = taken(arrays, prefix, "key", "int64", [null, LESSONS_KEPT]);
    const classes = Array.from({ length: rows }, (_, row) => key.subarray(row * LESSONS_KEPT, (row + 1) * LESSONS_KEPT));
    check(classes.every((own) => own.some((one) => one > 0n)), prefix + "key", "has a class without a lesson");
    const there = [...key.keys()].filter((slot) => key[slot] > 0n);
    const vectors = (name) => {
      const { data } = taken(arrays, prefix, name, "float32", [there.length, empty.dim]);
      const found = new Float32Array(key.length * empty.dim);
      there.forEach((slot, k) => found.set(data.subarray(k * empty.dim, (k + 1) * empty.dim), slot * empty.dim));
      return found;
    };
    const centre = taken(arrays, prefix, "centre", "float32", [empty.dim]).data;
    const spread = taken(arrays, prefix, "spread", "float32", [empty.blocks.length, empty.blocks.length]).data;
    return new LessonSample({ key, mean: vectors("mean"), frame: vectors("frame"), centre, spread }, empty.blocks);
  },

  rowsOf(own) {
    const { key, rows } = keysOf(own);
    const vectors = (name) => array("float32", [rows, LESSONS_KEPT, own.dim], own[name].subarray(0, rows * LESSONS_KEPT * own.dim));
    return new Map([["key", key], ["mean", vectors("mean")], ["frame", vectors("frame")]]);
  },
  length: ({ rows }) => rows,

  check({ key, spread, rows }, prefix, known) {
    check(rows >= known, prefix + "key", `has ${rows} rows for ${known} classes`);
    check(every(spread, (x) => Math.abs(x) <= 1), prefix + "spread", "is larger than any covariance of cosines");
    check(every(key, (one) => one >= 0n), prefix + "key", "contains a negative key");
    const follows = (one, slot) => slot % LESSONS_KEPT === 0 || one === 0n || (key[slot - 1] > 0n && one >= key[slot - 1]);
    check(key.every(follows), prefix + "key", "is not in ascending order");
    check(every(key.subarray(known * LESSONS_KEPT), (one) => one === 0n), prefix + "key", "has lessons of classes not there");
  },

  checkFrames() {},
  beside: (own, later, arrays) => rowsBeside(sample.rowsOf(own), sample.rowsOf(later), arrays),

  earlier(later, prefix, stored) {
    if (!stored.has("rows")) return stored;
    const found = rowsEarlier(sample.rowsOf(later), prefix, stored);
    const [key, mean, frame] = LessonSample.rowNames.map((name) => found.get(name).data);
    const made = sample.toFile(new LessonSample({ ...later, key, mean, frame }, later.blocks));
    for (const name of LessonSample.rowNames) found.set(name, made.get(name));
    return found;
  },
};

// The keys without the empty rows at their end.
function keysOf({ key }) {
  let end = key.length;
  while (end && !key[end - 1]) end -= 1;
  const rows = Math.ceil(end / LESSONS_KEPT);
  const data = key.subarray(0, rows * LESSONS_KEPT);
  return { rows, data, key: array("int64", [rows, LESSONS_KEPT], data) };
}

// ---- The sums of NCM ----

const classSums = {
  toFile: ({ n, s, q }) => new Map([["n", vector(n)], ["s", table(s)], ["q", vector(q)]]),

  fromFile(prefix, arrays, empty) {
    const n = taken(arrays, prefix, "n", "float64", [null]);
    const s = taken(arrays, prefix, "s", "float64", [n.shape[0], empty.dim]);
    return new ClassSums({ n: n.data, s: readTable(s), q: taken(arrays, prefix, "q", "float64", [n.shape[0]]).data });
  },

  rowsOf: ({ n, s, q }) => new Map([["n", vector(n)], ["s", table(s)], ["q", vector(q)]]),
  length: ({ n }) => n.length,

  check({ n, s, q, dim }, prefix, known, taught) {
    checkCounts(prefix + "n", n, known, taught);
    checkSums(prefix + "s", s, n);
    const squares = squaresOfMeans(n, s);
    checkSquares(prefix + "q", q, q.map((_, c) => sum(squares.row(c))), sum(n) * dim);
  },

  checkFrames({ n }, prefix, taught) {
    const same = [...taught].every(([row, frames]) => n[row] === frames);
    check(same, prefix + "n", "differs from the numbers of frames in the manifest");
  },

  beside: (own, later, arrays) => arrays,
  earlier: (later, prefix, stored) => stored,
};

// s_c^2 / n_c of each class
const squaresOfMeans = (n, s) => s.mapRows((row, c) => row.map((x) => (x / Math.sqrt(Math.max(n[c], 1))) ** 2));

function checkCounts(name, n, known, taught) {
  check(n.length >= known, name, `has ${n.length} rows for ${known} classes`);
  const whole = every(n, (x) => x >= 0 && x <= MAX_COUNT && Number.isInteger(x));
  check(whole, name, "contains invalid counts (expected integers from 0 to 2^53)");
  check(taught.every((row) => n[row] > 0), name, "counts no frame of a class that was taught");
  check(every(n.subarray(known), (x) => x === 0), name, "counts frames of classes that are not there");
}

function checkSums(name, s, n) {
  const fits = n.every((count, c) => every(s.row(c), (x) => Math.abs(x) <= count * MAX_FEATURE));
  check(fits, name, "is larger than any sum of so many features");
}

function checkSquares(name, found, least, frames) {
  const slack = ROUNDING * (least.reduce((most, x) => Math.max(most, x), 0) + frames);
  const enough = every(least, (x) => x === 0) || found.every((x, k) => x >= least[k] - slack);
  check(enough, name, "is not a sum over frames: it is less than the sums of its classes require");
  const upper = Math.max(frames, 1) * MAX_FEATURE ** 2;
  check(every(found, (x) => x <= upper), name, "is larger than any sum over frames");
}

// ---- A head ----

const KINDS = new Map([[LessonStatistics, statistics], [LessonSample, sample], [ClassSums, classSums]]);
const kindOf = (group) => KINDS.get(group.constructor);

// The arrays of a head as they go into a file, by name.
export function headArrays(head) {
  const found = new Map();
  for (const [prefix, group] of Object.entries(head.groups)) {
    for (const [name, own] of kindOf(group).toFile(group)) found.set(`${prefix}.${name}`, own);
  }
  return found;
}

// Takes the arrays of an untrusted file into an empty head: those of its groups are removed from `arrays`. `taught` has the number
// of frames of each taught class, by column.
export function restoreHead(head, arrays, known, taught) {
  for (const [group, own, prefix] of ownArrays(head, arrays)) {
    const kind = kindOf(group);
    const names = new Set(kind.toFile(group).keys());
    const odd = [...own.keys()].filter((name) => !names.has(name));
    check(!odd.length, prefix.slice(0, -1), `has besides: ${odd.join(", ")}`);
    const found = kind.fromFile(prefix, own, group);
    check(kind.length(found) >= known, prefix.slice(0, -1), `has ${kind.length(found)} rows for ${known} classes`);
    Object.assign(group, found);
  }
  for (const [name, group] of Object.entries(head.groups)) kindOf(group).check(group, `${name}.`, known, [...taught.keys()]);
  for (const [name, group] of Object.entries(head.groups)) kindOf(group).checkFrames(group, `${name}.`, taught);
}

// What a file needs besides the arrays of the later head to restore an earlier one, of which `whole` are all arrays.
export function storedBeside(head, later, whole, laterArrays) {
  const different = new Map([...whole].filter(([name, own]) => !sameBits(own, laterArrays.get(name))));
  const found = different;
  for (const [group, own, prefix] of ownArrays(head, found)) {
    const other = later.groups[prefix.slice(0, -1)];
    for (const [name, stored] of kindOf(group).beside(group, other, own)) found.set(prefix + name, stored);
  }
  return found;
}

// Restores the arrays that `storedBeside` has compressed.
export function restoredBeside(later, stored) {
  const found = new Map(stored);
  for (const [group, own, prefix] of ownArrays(later, found)) {
    for (const [name, whole] of kindOf(group).earlier(group, prefix, own)) found.set(prefix + name, whole);
  }
  return found;
}

// Splits arrays by the group that they belong to, and removes them: [group, arrays by own names, prefix] of each.
function ownArrays(head, arrays) {
  return Object.entries(head.groups).map(([name, group]) => {
    const prefix = `${name}.`;
    const mine = [...arrays].filter(([full]) => full.startsWith(prefix));
    for (const [full] of mine) arrays.delete(full);
    return [group, new Map(mine.map(([full, own]) => [full.slice(prefix.length), own])), prefix];
  });
}

// Refuses arrays with NaN or infinity, and variances below 0.
export function checkFinite(arrays) {
  for (const [name, { dtype, data }] of arrays) {
    const finite = dtype === "float16" ? (x) => (x & 0x7c00) !== 0x7c00 : Number.isFinite;
    if (dtype.startsWith("float")) check(every(data, finite), name, "contains NaN or infinity");
    if (!/\.(running_var|sigma)$/.test(name)) continue;
    const notBelow = dtype === "float16" ? (x) => !(x & 0x8000) || x === 0x8000 : (x) => x >= 0;
    check(every(data, notBelow), name, "contains numbers below 0");
  }
}
