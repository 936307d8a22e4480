// NCM: the nearest class mean, with the familiarity of Python's heads/open_set.py.

import { Matrix, add, dot, minus, sum } from "./linear.js";
import { largest } from "./prima.js";

const LOGIT_AT_MEAN = 10; // the logit by which a class leads the average at its own mean
const FLOOR = 1e-6; // fraction of the second moment added to a variance, so that it is never near 0

// n_c = sum 1,  s_c = sum z,  q_c = sum |z|^2  over the frames of class c (`SufficientStatistics` without G).
export class ClassSums {
  static rowNames = ["n", "s", "q"];

  constructor({ n, s, q }) {
    Object.assign(this, { n, s, q, dim: s.columns });
  }

  static empty(dim) {
    return new ClassSums({ n: new Float64Array(0), s: new Matrix(0, dim), q: new Float64Array(0) });
  }

  copy() {
    return new ClassSums({ n: this.n.slice(), s: new Matrix(this.s.rows, this.dim, this.s.data.slice()), q: this.q.slice() });
  }

  means(known) {
    return new Matrix(known, this.dim).mapRows((_, c) => this.s.row(c).map((x) => x / this.n[c]));
  }

  add(row, frames) {
    this.n[row] += frames.rows;
    for (let i = 0; i < frames.rows; i++) {
      add(this.s.row(row), frames.row(i));
      this.q[row] += dot(frames.row(i), frames.row(i));
    }
  }

  merge(other, rows) {
    rows.forEach((row, theirs) => {
      this.n[row] += other.n[theirs];
      this.q[row] += other.q[theirs];
      add(this.s.row(row), other.s.row(theirs));
    });
  }

  expand(rows) {
    if (rows <= this.n.length) return;
    const grown = (array, length) => {
      const found = new Float64Array(length);
      found.set(array);
      return found;
    };
    this.n = grown(this.n, rows);
    this.q = grown(this.q, rows);
    this.s = new Matrix(rows, this.dim, grown(this.s.data, rows * this.dim));
  }

  drop(row) {
    const without = (array, width) => {
      const found = new Float64Array(array.length);
      found.set(array.subarray(0, row * width));
      found.set(array.subarray((row + 1) * width), row * width);
      return found;
    };
    this.n = without(this.n, 1);
    this.q = without(this.q, 1);
    this.s = new Matrix(this.s.rows, this.dim, without(this.s.data, this.dim));
  }
}

// scores = mu z - |mu|^2 / 2,  mu_c = s_c / n_c
export class NCMHead {
  ranksStrangers = false;

  constructor(statistics) {
    Object.assign(this, { statistics, groups: { moments: statistics }, derived: null });
  }

  static empty(dim) {
    return new NCMHead(ClassSums.empty(dim));
  }

  copy() {
    return new NCMHead(this.statistics.copy());
  }

  untaught() {
    return NCMHead.empty(this.statistics.dim);
  }

  learn(frames, column) {
    this.statistics.add(column, frames);
    this.derived = null;
  }

  expand(classes) {
    this.statistics.expand(classes);
    this.derived = null;
  }

  forget(column) {
    this.statistics.drop(column);
    this.derived = null;
  }

  merge(other, columns) {
    this.statistics.merge(other.statistics, columns);
    this.derived = null;
  }

  solution(classes) {
    this.derived ??= this.solve(classes);
    return this.derived;
  }

  solve(classes) {
    const mu = this.statistics.means(classes);
    const b = Float64Array.from({ length: classes }, (_, c) => -dot(mu.row(c), mu.row(c)) / 2);
    const m = mu.mean();
    const v = mu.mapRows((row) => minus(row, m));
    const gains = Float64Array.from({ length: classes }, (_, c) => dot(v.row(c), v.row(c)));
    const mean = (x) => sum(x) / x.length;
    const lead = mean(gains.map(Math.abs)) + 1e-30;
    const { n, q } = this.statistics;
    const frames = sum(n.subarray(0, classes));
    const scatter = Array.from(b, (half, c) => q[c] + 2 * half * n[c]); // q_c - |s_c|^2 / n_c
    const spread = Math.max(sum(scatter), 0) / frames;
    const usual = mean(gains) + spread + FLOOR * mean(b.map((half) => -2 * half));
    return { w: mu, b, m, v, gain: gains.map((gain) => Math.max(gain, lead / 10)), lead, usual };
  }

  // The scores of frames, and their familiarity: margin sqrt(E h / h(z)),  h(z) = |z - m|^2
  judgeFeatures(z, classes) {
    const { w, b, m, v, gain, lead, usual } = this.solution(classes);
    const rows = Array.from({ length: z.rows }, (_, i) => z.row(i));
    const scores = rows.map((row) => Float64Array.from(b, (offset, c) => dot(w.row(c), row) + offset));
    const familiarity = rows.map((row, i) => {
      const best = scores[i].indexOf(largest(scores[i]));
      const offset = minus(row, m);
      const margin = classes > 1 ? dot(offset, v.row(best)) / gain[best] : 1;
      return margin * Math.sqrt(usual / Math.max(dot(offset, offset), usual * 1e-6 + 1e-30));
    });
    return { scores, temperature: classes > 1 ? lead / LOGIT_AT_MEAN : 1, familiarity };
  }

  correlation() {
    return 1;
  }
}
