// The worker of the page: it answers calls { id, call, args } in the order in which they come, with { id, result } or
// { id, error, status }, and reports { id, progress } in between.

import * as ort from "onnxruntime-web/wasm";

import { Refusal } from "./errors.js";
import { PageLearner } from "./page_learner.js";

const CALLS = ["open", "model", "recognise", "predict", "lesson", "add", "learn", "cancel", "teach", "check", "change", "file"];
const FAILED = 500;
const learner = new PageLearner(ort);
let last = Promise.resolve();

self.onmessage = ({ data }) => {
  last = last.then(() => answer(data));
};

async function answer({ id, call, args = [] }) {
  try {
    if (!CALLS.includes(call)) throw new Refusal(`there is no call ${call}`);
    const report = (progress) => self.postMessage({ id, progress });
    const result = await learner[call](...(call === "teach" ? [report] : []), ...args);
    self.postMessage({ id, result }, result instanceof ArrayBuffer ? [result] : []);
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    self.postMessage({ id, error: error.message, status: error.status ?? FAILED });
  }
}
