// Makes a series of calls of the page's learner, as the page makes them through its worker.
//
//     node page.mjs < { weights..., frames, size, calls: [{ call, args, save }] } > [result, ...]
//
// In the arguments, { frame: k } stands for a frame of the file `frames` (RGB), { frames: [k, ...] } for several, and { bytes: path }
// for a file, { of: k } for the id in the result of call k. `save` names a file for a result of bytes. A refusal becomes { refused, status }.

import { readFileSync, writeFileSync } from "node:fs";
import * as ort from "../../web/node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs";
import { PageLearner } from "../../web/learner/page_learner.js";

const given = JSON.parse(readFileSync(0, "utf8"));
const bytes = (path) => new Uint8Array(readFileSync(path)).buffer;
const pixels = given.frames ? new Uint8Array(bytes(given.frames)) : null;
const length = given.size ** 2 * 3;
const frame = (k) => pixels.slice(k * length, (k + 1) * length);

function read(value) {
  if (value?.frame !== undefined) return frame(value.frame);
  if (value?.frames !== undefined) return value.frames.map(frame);
  if (value?.bytes !== undefined) return bytes(value.bytes);
  if (value?.of !== undefined) return results[value.of].id;
  if (value && typeof value === "object" && !Array.isArray(value)) {
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, read(one)]));
  }
  return value;
}

const { wasm, network, graph, references } = given;
const shipped = Object.fromEntries(Object.entries({ wasm, network, graph, references }).map(([name, path]) => [name, bytes(path)]));
const results = [];
let clock = 0;
const learner = new PageLearner(ort, () => (clock += given.seconds ?? 0.1));
for (const { call, args = [], save } of given.calls) {
  try {
    const all = call === "open" ? [{ ...shipped, ...read(args[0] ?? {}) }] : args.map(read);
    const result = await learner[call](...(call === "teach" ? [() => {}] : []), ...all);
    if (save) writeFileSync(save, new Uint8Array(result));
    results.push(save ? null : result);
  } catch (error) {
    if (!error.status) throw error;
    results.push({ refused: error.message, status: error.status });
  }
}
console.log(JSON.stringify(results));
