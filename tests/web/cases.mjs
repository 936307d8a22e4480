// Runs one computation of the page's learner for a test in Python: node cases.mjs NAME < arguments.json > result.json
// Typed arrays become lists. A refusal becomes { refused: message }.

import { readFileSync } from "node:fs";
import * as coach from "../../web/learner/coach.js";
import { centreSquare } from "../../web/learner/frames.js";
import { KERNEL, Matrix, solveShifted, timesTransposed } from "../../web/learner/linear.js";
import * as prima from "../../web/learner/prima.js";

const matrix = (rows) => new Matrix(rows.length, rows[0]?.length ?? 0, Float64Array.from(rows.flat()));
const listed = (m) => Array.from({ length: m.rows }, (_, i) => Array.from(m.row(i)));

// A head that was taught lessons in this order: { blocks, priors, centre, spread, lessons: [{ column, frames }], forget }
function taught({ blocks, priors, centre, spread, lessons, classes, forget = [] }) {
  const head = prima.LessonHead.empty(blocks, priors);
  head.sample.takeReference({ centre: Float32Array.from(centre), spread: Float32Array.from(spread.flat()) });
  head.expand(classes);
  for (const { column, frames } of lessons) head.learn(matrix(frames), column);
  for (const column of forget) head.forget(column);
  return head;
}

function described(head, { classes, forget = [], shown }) {
  const known = classes - forget.length;
  const { statistics, sample } = head;
  const fits = head.fits(known);
  const judged = head.judge(fits);
  const { w, b, familiarity } = head.solution(known);
  const { scores, familiarity: found } = head.judgeFeatures(matrix(shown), known);
  return {
    n: statistics.n, s: listed(statistics.s), t: statistics.t, gram: statistics.gram,
    key: Array.from(sample.key, String), mean: sample.mean, frame: sample.frame,
    left_out: fits.map((fit) => listed(fit.leftOut)), beta: judged.beta, trust: judged.trust, strange: listed(judged.strange),
    w: listed(w), b, scores, familiarity: found, correlation: familiarity.correlation,
    usual: familiarity.strangers.usual, spread: familiarity.strangers.spread, freedom: familiarity.strangers.freedom,
  };
}

const CASES = {
  learn: (given) => described(taught(given), given),
  merge: ({ one, other, columns, shown, classes }) => {
    const head = taught(one);
    head.expand(classes);
    head.merge(taught(other), columns);
    return described(head, { classes, shown });
  },
  kernel: async () => {
    const { default: wabt } = await import("../../web/node_modules/wabt/index.js");
    const text = readFileSync(new URL("../../web/learner/kernel.wat", import.meta.url), "utf8");
    const { buffer } = (await wabt()).parseWat("kernel.wat", text, { simd: true }).toBinary({});
    return { made: Buffer.from(buffer).toString("base64"), held: KERNEL };
  },
  products: ({ a, b }) => listed(timesTransposed(matrix(a), matrix(b))),
  solved: ({ g, u, v, shift, b }) => {
    const fill = (into, stride) => g.forEach((row, i) => into.set(row.slice(0, i + 1), i * stride));
    return listed(solveShifted(g.length, fill, matrix(u), matrix(v), () => shift, matrix(b)));
  },
  coach: ({ tests, names }) => {
    const held = tests.reduce((before, [id, test]) => coach.withTests(before, new Map([[id, [test]]])), new Map());
    return { held: [...held], advice: coach.advise(held, new Map(names)) };
  },
  square: ({ size, ...picture }) => centreSquare(picture, size),
};

const given = JSON.parse(readFileSync(0, "utf8"));
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
console.log(JSON.stringify(await CASES[process.argv[2]](given), plain));
