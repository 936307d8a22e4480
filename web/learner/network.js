// The network through ONNX Runtime in WebAssembly, and the places at which its maps are read: Python's backbones/onnx.py,
// backbones/places.py and backbones/reference.py.

import { canonical, parse, Real, realText } from "./canonical.js";
import { Refusal, WRONG_INPUT } from "./errors.js";
import { withWeights } from "./graph.js";
import { joined, sha256 } from "./hashes.js";
import { readSafetensors, sameBits, toFloat32 } from "./learner_file.js";
import { unsortedArrays } from "./packed_model.js";

const SHIPPED = "mobilenet_v1";
const SHIPPED_OPTIONS = new Map([["eps", new Real(0.001)], ["padding", "same"]]);
const MAPS_READ = [12, 10, 8, 6]; // the blocks of MobileNet v1 whose maps are read, the last one first
const BLOCKS = 13;
// What prima reads besides the features of the network: its depth in sixths of all blocks, the share of each side, and whether the
// quarters of this middle are compared.
const PLACES = [[6, 1 / 2, false], [6, 1 / 3, false], [5, 1 / 3, false], [4, 1 / 3, false], [4, 1 / 2, true], [3, 1 / 3, false]];
// The prior weight of each place: 1 at the end of the network, halved for every sixth before it.
const PRIORS = [1, ...PLACES.map(([depth]) => 2 ** (depth - 6))];
const ROOT_SOFTENING = Math.fround(1e-3); // below this value, the root becomes a straight line through 0
const LEAST_SIZE = 64; // smaller frames leave no map of more than one pixel at the end of MobileNet v1
export const BACKBONE = "backbone."; // prefix of the arrays of the network in files
const BODY = "body.";
export const GRAPH_ARRAYS = ["onnx/graph", "onnx/facts"]; // a graph that a file brings, as bytes

// What an untaught learner of the package has; `size` is the side of its frames.
export const shippedSpec = (size) => ({ name: SHIPPED, size, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5], options: SHIPPED_OPTIONS });

// The weights of the package (mobilenet_v1_objects_fp16.safetensors, packed) under their names in files.
export function shippedWeights(bytes) {
  return new Map([...unsortedArrays(bytes)].map(([name, own]) => [BACKBONE + BODY + name, own]));
}

export class Network {
  // `arrays` are the weights by their names in files; `shipped` has `graph` (the model of the package), `weights` (its weights)
  // and `references` (generic_references.safetensors); `ort` is ONNX Runtime.
  static async open(ort, shipped, spec, arrays, graph, places) {
    const made = new Network(spec, arrays, graph ? readFacts(graph) : shippedFacts(shipped, spec, arrays, places));
    const numbers = new Map([...arrays].map(([name, own]) => [name.slice(BACKBONE.length), toFloat32(own)]));
    const weights = new Map();
    for (const [name, own] of Object.entries(made.facts.weights)) {
      if (!numbers.has(own)) throw new Refusal(`the graph of the file needs ${own}, which is not there`, WRONG_INPUT);
      weights.set(name, numbers.get(own));
    }
    if (!graph) for (const [name, own] of normalisation(spec)) weights.set(name, own);
    const model = withWeights(graph ? graph.model : shipped.graph, weights);
    try {
      made.session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
    } catch (error) {
      throw new Refusal(`ONNX Runtime cannot compute this network: ${error.message}`, WRONG_INPUT);
    }
    made.Tensor = ort.Tensor;
    made.graph = graph;
    made.reference = await shippedReference(shipped, made, numbers);
    return made;
  }

  constructor(spec, arrays, facts) {
    Object.assign(this, { spec, arrays, facts, sizes: facts.sizes, priors: facts.priors });
  }

  // The features of one frame, RGB of the size of the network: float32, the places one after the other.
  async features(frame) {
    const { size } = this.spec;
    const frames = new this.Tensor("uint8", frame, [1, size, size, 3]);
    const found = await this.session.run({ frames });
    const maps = this.session.outputNames.map((name) => found[name]);
    const { places, root } = this.facts;
    const z = places ? readPlaces(maps, places) : Float32Array.from(maps[0].data);
    for (const map of maps) map.dispose();
    if (root) takeRoot(z);
    if (!z.every(Number.isFinite)) {
      throw new Refusal("the backbone gives NaN or infinity for a frame: leave that frame out, or fix the backbone", WRONG_INPUT);
    }
    return z;
  }

  // The arrays of the graph for a file, unless it is the one of the package.
  graphArrays() {
    return this.graph ? this.graph.arrays : new Map();
  }

  // True if another network computes the same features, so that sums can be added.
  equals(other) {
    if (this === other) return true;
    const same = [...this.arrays].every(([name, own]) => sameBits(own, other.arrays.get(name)));
    return same && this.arrays.size === other.arrays.size && canonical(factsOf(this)) === canonical(factsOf(other));
  }
}

const factsOf = ({ spec, facts }) => ({ ...spec, mean: spec.mean.map(String), std: spec.std.map(String), sizes: [...facts.sizes] });

// How the model of the package is read.
function shippedFacts(shipped, spec, arrays, places) {
  if (spec.name !== SHIPPED || canonical(spec.options) !== canonical(SHIPPED_OPTIONS)) {
    throw new Refusal(`this page has the network ${SHIPPED}, not ${spec.name} of this file: write it with primavista export --format portable`, WRONG_INPUT);
  }
  if (places && spec.size < LEAST_SIZE) throw new Refusal(`the frames have at least ${LEAST_SIZE} pixels; got size=${spec.size}`, WRONG_INPUT);
  for (const name of new Set([...shipped.weights.keys(), ...arrays.keys()])) {
    const [expected, found] = [shipped.weights, arrays].map((own) => String(own.get(name)?.shape));
    if (expected !== found) throw new Refusal(`its backbone needs ${name.slice(BACKBONE.length)} of shape ${expected}`, WRONG_INPUT);
  }
  const outputs = (block) => arrays.get(`${BACKBONE}${BODY}blocks.${block}.1.bn.bias`).shape[0];
  const read = (places ? PLACES : []).map(([depth, ...middle]) => ({ block: Math.ceil((BLOCKS * depth) / 6) - 1, middle }));
  const all = [{ block: MAPS_READ[0], middle: [1, false] }, ...read];
  const names = [...arrays.keys()].map((name) => name.slice(BACKBONE.length));
  return {
    weights: Object.fromEntries(names.map((name) => [name.slice(BODY.length), name])),
    places: all.map(({ block, middle }) => [MAPS_READ.indexOf(block), ...middle]),
    root: places,
    sizes: all.map(({ block }) => outputs(block)),
    priors: places ? PRIORS : [1],
  };
}

// The graph that a file holds beside its weights, from the arrays GRAPH_ARRAYS.
export function graphOf(arrays) {
  if (!arrays.has(GRAPH_ARRAYS[0])) return null;
  const [model, facts] = GRAPH_ARRAYS.map((name) => arrays.get(name)?.data);
  return { model, facts, arrays: new Map(GRAPH_ARRAYS.map((name) => [name, arrays.get(name)])) };
}

function readFacts({ facts }) {
  const number = (x) => (x instanceof Real ? x.value : x);
  try {
    const told = parse(new TextDecoder().decode(facts));
    const places = told.get("places")?.map((place) => place.map(number)) ?? null;
    if (places?.some((place) => place.length !== 3)) throw new Error("a place has a map, a share and whether quarters are compared");
    return {
      weights: Object.fromEntries(told.get("weights")),
      places,
      root: places !== null && Boolean(told.get("root")),
      sizes: told.get("sizes").map(number),
      priors: told.get("priors").map(number),
    };
  } catch (error) {
    throw new Refusal(`the graph of the file is damaged: ${error.message}`, WRONG_INPUT);
  }
}

// The constants of (x / 255 - mean) / std = scale x + shift, in float32.
function normalisation({ mean, std }) {
  const [means, deviations] = [Float32Array.from(mean), Float32Array.from(std)];
  const scale = deviations.map((x) => 1 / Math.fround(255 * x));
  return [["scale", scale], ["shift", deviations.map((x, k) => -means[k] / x)]];
}

// The means of maps over the middle of the frame, one place after the other. Where quarters are compared, the channels 0, 4, 8, ...
// have the mean, and the others the right half minus the left one, the lower half minus the upper one, or one diagonal minus the other.
function readPlaces(maps, places) {
  const parts = places.map(([map, share, quarters]) => {
    const { dims: [, channels, height, width], data } = maps[map];
    const [down, across] = [height, width].map((side) => (quarters ? [meanWeights, differenceWeights] : [meanWeights]).map((of) => of(side, share)));
    const patterns = down.flatMap((rows) => across.map((columns) => [rows, columns]));
    return Float32Array.from({ length: channels }, (_, channel) => {
      const [rows, columns] = patterns[channel % patterns.length];
      let total = 0;
      for (let y = 0; y < height; y++) {
        if (!rows[y]) continue;
        const from = (channel * height + y) * width;
        for (let x = 0; x < width; x++) total += rows[y] * columns[x] * data[from + x];
      }
      return total;
    });
  });
  return new Float32Array(joined(parts).buffer);
}

// The weights of the mean over the middle of a side.
const meanWeights = (side, share) => intervalWeights(side / 2, (share * side) / 2, side);

// Half of the weights of the second half of the middle minus those of the first.
function differenceWeights(side, share) {
  const reach = (share * side) / 4;
  const [first, second] = [-reach, reach].map((moved) => intervalWeights(side / 2 + moved, reach, side));
  return second.map((weight, k) => (weight - first[k]) / 2);
}

// The weights of the mean over an interval of a side; border pixels count in part.
function intervalWeights(centre, reach, side) {
  const [low, high] = [centre - reach, centre + reach].map((end) => Math.min(Math.max(end, 0), side));
  const inside = Array.from({ length: side }, (_, at) => Math.max(Math.min(at + 1, high) - Math.max(at, low), 0));
  const total = inside.reduce((sum, x) => sum + x, 0);
  return Float32Array.from(inside, (x) => x / total);
}

// x / sqrt(|x| + 0.001), in place
function takeRoot(z) {
  for (let k = 0; k < z.length; k++) z[k] /= Math.fround(Math.sqrt(Math.fround(Math.abs(z[k]) + ROOT_SOFTENING)));
}

// The shipped centre and spread of generic frames of this network; null if the package does not have them.
async function shippedReference({ references }, { spec, sizes }, numbers) {
  const found = readSafetensors(references);
  const repr = (numbers) => `(${numbers.map(realText).join(", ")})`;
  const lengths = `(${sizes.join(", ")}${sizes.length === 1 ? "," : ""})`;
  const places = PLACES.map(([depth, share, quarters]) => `(${depth}, ${realText(share)}, ${quarters ? "True" : "False"})`);
  const parts = [text(`(${repr(spec.mean)}, ${repr(spec.std)}, ${lengths}, (${places.join(", ")}))`)];
  for (const name of [...numbers.keys()].sort()) parts.push(text(name), numbers.get(name));
  const key = `${spec.size}/${(await sha256(parts)).slice(0, 32)}`;
  if (!found.has(`${key}/centre`)) return null;
  return { centre: found.get(`${key}/centre`).data, spread: found.get(`${key}/spread`).data };
}

const text = (string) => new TextEncoder().encode(string);
