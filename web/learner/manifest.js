// The manifest of a saved learner, checked field by field as Python's storage/manifest.py does: a file may come from anybody.

import { Real } from "./canonical.js";
import { Refusal, WRONG_INPUT } from "./errors.js";
import { MAX_LABEL } from "./names.js";

export const FORMAT = 1;
const MAX_TESTS = 16; // of one object; more than any version keeps
const MAX_TEST_FRAMES = 64;
export const MAX_COUNT = 2 ** 53; // counts are below it: integers in float64 are exact up to it
const MAX_SIZE = 512; // pixels, the side of the pictures that a file may ask for

// Each check returns the value, or throws a sentence about it.
const fail = (message) => {
  throw new Error(message);
};
const integer = (low, high) => (value) =>
  (typeof value === "number" || typeof value === "bigint") && value >= low && value < high ? value : fail(`must be an integer from ${low} to ${high}`);
const count = integer(0, MAX_COUNT);
const anyInteger = integer(-(2n ** 63n), 2n ** 63n);
const text = (least, most) => (value) => {
  const isText = typeof value === "string" && !/\p{Cs}/u.test(value);
  return isText && [...value].length >= least && [...value].length <= most ? value : fail(`must be a text of ${least} to ${most} characters`);
};
const real = (low, high) => (value) => {
  const number = value instanceof Real ? value.value : value;
  return typeof number === "number" && number >= low && number <= high ? number : fail(`must be a number from ${low} to ${high}`);
};
const list = (item, most = Infinity) => (value, where) => {
  if (!Array.isArray(value) || value.length > most) fail(`must be a list of at most ${most}`);
  return value.map((one, k) => checked(item, one, `${where}.${k}`));
};
const three = (item) => (value, where) => (Array.isArray(value) && value.length === 3 ? list(item)(value, where) : fail("must be three numbers"));
const oneOf = (...values) => (value) => (values.includes(value) ? value : fail(`must be one of ${values.join(", ")}`));
const option = (value) => {
  if (typeof value === "string") return text(0, Infinity)(value);
  if (value instanceof Real) return Number.isFinite(value.value) ? value : fail("must be finite");
  return value === null || typeof value === "boolean" ? value : anyInteger(value);
};
const options = (value, where) => {
  if (!(value instanceof Map)) fail("must be an object");
  return new Map([...value].map(([name, one]) => [name, checked(option, one, `${where}.${name}`)]));
};

// An object with these fields and no others; those in `defaults` may be missing.
const record = (fields, defaults = {}) => (value, where) => {
  if (!(value instanceof Map)) fail("must be an object");
  for (const name of value.keys()) if (!(name in fields)) throw new Wrong(`${where}.${name}`, "is not a field");
  return Object.fromEntries(Object.entries(fields).map(([name, check]) => {
    if (!value.has(name) && !(name in defaults)) throw new Wrong(`${where}.${name}`, "is missing");
    return [name, value.has(name) ? checked(check, value.get(name), `${where}.${name}`) : defaults[name]];
  }));
};

class Wrong extends Error {
  constructor(where, message) {
    super(message);
    this.where = where;
  }
}

function checked(check, value, where) {
  try {
    return check(value, where);
  } catch (error) {
    throw error instanceof Wrong ? error : new Wrong(where, error.message);
  }
}

const answerCount = (value, where) => {
  const found = record({ id: count, frames: integer(1, MAX_TEST_FRAMES + 1), known: count })(value, where);
  return found.known <= found.frames ? found : fail(`${found.known} of ${found.frames} frames are known`);
};
const classRecord = record(
  { id: count, name: text(1, MAX_LABEL), frames: count, held_out: list(list(answerCount, MAX_TEST_FRAMES), MAX_TESTS) },
  { held_out: [] },
);
const stateFields = { classes: list(classRecord), next_id: count, lessons: list(text(0, 200)) };
const undoRecord = (value, where) =>
  value === null ? null : checkedState(record({ ...stateFields, tensors: list(text(0, 1000)) })(value, where));
const manifestRecord = record({
  ...stateFields,
  format: count,
  strategy: record({ name: text(0, 100), seed: anyInteger, options }),
  backbone: record({ name: text(0, 100), size: integer(1, 2049), mean: three(real(-1e6, 1e6)), std: three(real(1e-6, 1e6)), options }),
  threshold: real(0, 1),
  undo: undoRecord,
  engine: oneOf("torch", "onnx"),
}, { engine: "torch" });

function checkedState(state) {
  const ids = state.classes.map((one) => one.id);
  const names = state.classes.map((one) => one.name);
  if (new Set(ids).size < ids.length || new Set(names).size < ids.length) fail("an id or a name of a class occurs twice");
  if (state.next_id <= Math.max(-1, ...ids)) fail("next_id is in use already");
  return state;
}

// Returns the manifest as plain objects; options stay Maps with their values as they were read.
export function parseManifest(raw, name) {
  const version = raw.get("format");
  if (!Number.isInteger(version) || version < 1) {
    throw new Refusal(`${name} is not a learner: its manifest has no format number`, WRONG_INPUT);
  }
  if (version > FORMAT) {
    throw new Refusal(`${name} has format ${version}, and this page reads up to ${FORMAT}: take a newer page`, WRONG_INPUT);
  }
  let manifest;
  try {
    manifest = checkedState(checked(manifestRecord, raw, ""));
  } catch (error) {
    throw new Refusal(`${name} has an invalid manifest field ${(error.where ?? "").slice(1)}: ${error.message}`, WRONG_INPUT);
  }
  if (manifest.backbone.size > MAX_SIZE) {
    const side = manifest.backbone.size;
    throw new Refusal(`${name} asks for images of ${side} x ${side} pixels, and the limit for files is ${MAX_SIZE}`, WRONG_INPUT);
  }
  return manifest;
}

// The manifest to be written. The numbers that Python keeps as floats become `Real`.
export function manifestToWrite({ strategy, backbone, threshold, undo, state }) {
  const reals = (numbers) => numbers.map((x) => new Real(x));
  return {
    format: FORMAT,
    strategy,
    backbone: { ...backbone, mean: reals(backbone.mean), std: reals(backbone.std) },
    engine: "onnx",
    threshold: new Real(threshold),
    undo,
    ...state,
  };
}
