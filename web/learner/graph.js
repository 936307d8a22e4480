// Puts weights into an ONNX model that leaves them out. ONNX Runtime for the web takes a model as one array of bytes, so the
// declarations of the weights in it (`initializer` of GraphProto) are replaced by declarations with numbers.

import { joined } from "./hashes.js";

const GRAPH = 7; // field of ModelProto
const INITIALIZER = 5; // field of GraphProto
const [DIMS, TYPE, NAME, RAW_DATA] = [1, 2, 8, 9]; // fields of TensorProto
const FLOAT = 1;
const [VARINT, BYTES] = [0, 2]; // kinds of fields

// The model with these weights: Float32Arrays by their names in the graph. Weights that it does not declare are left out.
export function withWeights(model, weights) {
  return rewritten(model, GRAPH, (graph) => rewritten(graph, INITIALIZER, (tensor) => {
    const fields = [...read(tensor)];
    const name = new TextDecoder().decode(fields.find(({ field }) => field === NAME)?.value);
    const numbers = weights.get(name);
    const isDeclaration = !fields.some(({ field }) => field === RAW_DATA);
    if (!numbers || !isDeclaration) return tensor;
    const dims = fields.filter(({ field }) => field === DIMS).map(({ bytes }) => bytes);
    const raw = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
    return joined([...dims, varint(8 * TYPE + VARINT), varint(FLOAT), message(NAME, new TextEncoder().encode(name)), message(RAW_DATA, raw)]);
  }));
}

// A message in which the fields of this number are replaced.
function rewritten(bytes, number, replace) {
  return joined([...read(bytes)].map(({ field, bytes: whole, value }) => (field === number ? message(field, replace(value)) : whole)));
}

// The fields of a message: the number, the bytes with the key, and the value of a field of bytes.
function* read(bytes) {
  let at = 0;
  const number = () => {
    let [found, shift] = [0, 0];
    for (;;) {
      if (at >= bytes.length) throw new RangeError("the graph is damaged");
      const byte = bytes[at++];
      found += (byte & 127) * 2 ** shift;
      if (byte < 128) return found;
      shift += 7;
    }
  };
  while (at < bytes.length) {
    const start = at;
    const key = number();
    const kind = key % 8;
    let value;
    if (kind === VARINT) {
      number();
    } else if (kind === BYTES) {
      const length = number();
      value = bytes.subarray(at, at + length);
      at += length;
    } else {
      at += kind === 1 ? 8 : 4;
    }
    if (at > bytes.length) throw new RangeError("the graph is damaged");
    yield { field: Math.floor(key / 8), bytes: bytes.subarray(start, at), value };
  }
}

const message = (field, value) => joined([varint(8 * field + BYTES), varint(value.length), value]);

function varint(number) {
  const found = [];
  for (; number >= 128; number = Math.floor(number / 128)) found.push((number % 128) + 128);
  return Uint8Array.from([...found, number]);
}
