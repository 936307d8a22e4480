// The file of a learner: safetensors with a checked JSON manifest, in the bytes that Python's storage/learner_file.py writes.
//
// An array is { dtype, shape, data }, with numpy's name of its type; float16 is kept as its bits (Uint16Array).

import { byName, canonical, parse } from "./canonical.js";
import { Refusal, WRONG_INPUT } from "./errors.js";
import { joined, sha256 } from "./hashes.js";

const KEY = "primavista"; // the one metadata key
const MAX_HEADER = 16 * 2 ** 20;
// The types of arrays in files, in the order in which they are stored: safetensors' name, numpy's name, the array.
const TYPES = [
  ["I64", "int64", BigInt64Array],
  ["F64", "float64", Float64Array],
  ["F32", "float32", Float32Array],
  ["F16", "float16", Uint16Array],
  ["U8", "uint8", Uint8Array],
];

export const array = (dtype, shape, data) => ({ dtype, shape, data });
export const size = (shape) => shape.reduce((product, length) => product * length, 1);

export function sameBits(a, b) {
  if (!b || a.dtype !== b.dtype || a.data.length !== b.data.length || String(a.shape) !== String(b.shape)) return false;
  return equalBytes(...[a, b].map(({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength)));
}

export function equalBytes(a, b) {
  if (a.length !== b.length) return false;
  for (let k = 0; k < a.length; k++) if (a[k] !== b[k]) return false;
  return true;
}

// The bytes of a file; equal arrays (by name, a Map) and manifests give equal bytes.
export async function encode(arrays, manifest) {
  const text = canonical({ manifest, sha256: await digest(arrays, manifest) });
  const order = ([, { dtype }]) => TYPES.findIndex(([, name]) => name === dtype);
  const sorted = [...arrays].sort((one, two) => order(one) - order(two) || byName(one, two));
  let end = 0;
  const fields = sorted.map(([name, { dtype, shape, data }]) => {
    const start = end;
    end += data.byteLength;
    const [type] = TYPES.find(([, numpy]) => numpy === dtype);
    return `${JSON.stringify(name)}:{"dtype":"${type}","shape":[${shape}],"data_offsets":[${start},${end}]}`;
  });
  const header = new TextEncoder().encode(`{"__metadata__":{"${KEY}":${JSON.stringify(text)}},${fields.join(",")}}`);
  const padded = new Uint8Array(Math.ceil(header.length / 8) * 8).fill(32);
  padded.set(header);
  const length = new BigUint64Array([BigInt(padded.length)]);
  return joined([length, padded, ...sorted.map(([, { data }]) => data)]);
}

// The arrays and the manifest of a file, after its checksum was verified. `name` is what messages call the file.
export async function decode(bytes, name) {
  const { text, header, start } = readHeader(bytes, name);
  const { manifest, checksum } = text;
  let arrays;
  try {
    arrays = readArrays(header, bytes, start);
  } catch (error) {
    throw new Refusal(`${name} is damaged (${error.message}): restore it from a copy`, WRONG_INPUT);
  }
  if ((await digest(arrays, manifest)) !== checksum) {
    throw new Refusal(`${name} is damaged or was altered: its contents do not match its checksum. Restore it from a copy`, WRONG_INPUT);
  }
  return { arrays, manifest };
}

// Arrays of a plain safetensors file, such as weights.
export function readSafetensors(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  return readArrays(JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))), bytes, 8 + length);
}

async function digest(arrays, manifest) {
  const text = (value) => new TextEncoder().encode(canonical(value));
  const parts = [text(manifest)];
  for (const [name, { dtype, shape, data }] of [...arrays].sort(byName)) parts.push(text([name, dtype, shape]), data);
  return sha256(parts);
}

function readHeader(bytes, name) {
  const foreign = () => new Refusal(`${name} is not a primavista file. Files are made by Learner.save`, WRONG_INPUT);
  const cutOff = (how) => new Refusal(`${name} ${how}. Restore it from a copy`, WRONG_INPUT);
  if (!bytes.length) throw foreign();
  if (bytes.length < 8) throw cutOff(`has only ${bytes.length} bytes: it was cut off`);
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  if (length > MAX_HEADER) throw foreign();
  if (length > bytes.length - 8) throw cutOff("was cut off, or is not a primavista file");
  try {
    const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, 8 + length)));
    const inner = parse(header.__metadata__[KEY]);
    const [manifest, checksum] = [inner.get("manifest"), inner.get("sha256")];
    if (!(manifest instanceof Map) || typeof checksum !== "string") throw foreign();
    return { text: { manifest, checksum }, header, start: 8 + length };
  } catch {
    throw foreign();
  }
}

function readArrays(header, bytes, start) {
  const found = new Map();
  const places = [];
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [, numpy, Kind] = TYPES.find(([type]) => type === dtype) ?? [];
    if (!Kind) throw new Error(`${name} has the type ${dtype}`);
    const isCount = (x) => Number.isSafeInteger(x) && x >= 0;
    if (![shape, offsets].every((list) => Array.isArray(list) && list.every(isCount)) || offsets.length !== 2) {
      throw new Error(`${name} has no shape or no place`);
    }
    const [from, to] = offsets;
    if (to - from !== size(shape) * Kind.BYTES_PER_ELEMENT) throw new Error(`${name} has another size than its shape says`);
    places.push([from, to, name, numpy, Kind, shape]);
  }
  places.sort(([a, b], [c, d]) => a - c || b - d);
  let end = 0;
  for (const [from, to, name, numpy, Kind, shape] of places) {
    if (from !== end || start + to > bytes.length) throw new Error(`${name} is not where it should be`);
    end = to;
    found.set(name, array(numpy, shape, new Kind(bytes.slice(start + from, start + to).buffer)));
  }
  if (start + end !== bytes.length) throw new Error("there are more bytes than arrays");
  return found;
}

// The numbers of an array in float32, whatever its type of float.
export function toFloat32({ dtype, data }) {
  if (dtype === "float32") return data;
  if (dtype !== "float16") return Float32Array.from(data, Number);
  HALVES ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => halfValue(bits));
  const found = new Float32Array(data.length);
  for (let k = 0; k < data.length; k++) found[k] = HALVES[data[k]];
  return found;
}

let HALVES; // the value of each float16, by its bits

function halfValue(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}
