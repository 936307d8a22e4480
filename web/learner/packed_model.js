// The network and a model as they are in the page: their bytes are in another order, and a model is rounded and without its network.
// Python's web/packed_model.py packs them.

import { fiveBytes } from "./head_file.js";
import { readSafetensors } from "./learner_file.js";
import { packedPosition, packedSize } from "./prima.js";

const GRAM = "moments.gram";
const GRAM_BITS = 14;

// A safetensors file in which each array has the first bytes of all numbers, then the second ones, and so on.
export function unsortedArrays(bytes) {
  const found = readSafetensors(bytes);
  for (const own of found.values()) own.data = unsorted(own.data.constructor, own.data);
  return found;
}

function unsorted(Kind, { buffer }) {
  const sorted = new Uint8Array(buffer);
  const width = Kind.BYTES_PER_ELEMENT;
  const count = sorted.length / width;
  const found = new Uint8Array(sorted.length);
  for (let k = 0; k < width; k++) for (let i = 0; i < count; i++) found[i * width + k] = sorted[k * count + i];
  return new Kind(found.buffer);
}

// The bytes of the file of a packed model; `network` has the arrays that were left out.
export function unpacked(bytes, network) {
  const parts = readSafetensors(bytes);
  const header = parts.get("header").data;
  const { __metadata__, ...arrays } = JSON.parse(new TextDecoder().decode(header.subarray(8)));
  const places = Object.entries(arrays).map(([name, { dtype, data_offsets: [start, stop] }]) => ({ name, dtype, start, stop }));
  const file = new Uint8Array(header.length + Math.max(...places.map(({ stop }) => stop)));
  file.set(header);
  for (const { name, dtype, start } of places) {
    const { buffer } = numbersOf(name, dtype, parts, network);
    file.set(new Uint8Array(buffer), header.length + start);
  }
  return file;
}

function numbersOf(name, dtype, parts, network) {
  if (name === GRAM) return gramOf((part) => parts.get(`${GRAM}/${part}`).data);
  if (!parts.has(`${name}/steps`)) return parts.has(name) ? unsorted(parts.get(name).data.constructor, parts.get(name).data) : network.get(name).data;
  const [step] = parts.get(`${name}/step`).data;
  const Kind = dtype === "F32" ? Float32Array : Float64Array;
  return Kind.from(unsorted(Int32Array, parts.get(`${name}/steps`).data), (steps) => steps * step);
}

// G_ij is a whole number of steps 2^(floor((e_i + e_j) / 2) - GRAM_BITS).
function gramOf(part) {
  const steps = unsorted(Int16Array, part("steps"));
  const exponents = Int32Array.from(part("exponents"), Number);
  const gram = new Float64Array(steps.length);
  let [start, first] = [0, 0];
  for (const dim of Array.from(part("blocks"), Number)) {
    const at = packedPosition(dim);
    for (let i = 0; i < dim; i++) {
      for (let j = 0; j <= i; j++) {
        const place = start + at(i, j);
        gram[place] = steps[place] * 2 ** (((exponents[first + i] + exponents[first + j]) >> 1) - GRAM_BITS);
      }
    }
    start += packedSize(dim);
    first += dim;
  }
  return fiveBytes(gram).data;
}
