// The parts of the page that are no scripts: the worker, the runtime, the network, the model. They are compressed: in files beside a
// page that is a folder (gzip), and as text in elements of a page that is one file (gzip, or LZMA, which the worker decompresses).

const [ESCAPE, ESCAPED_BIT] = [0xe000, 0x4000]; // as in web/pack.py

const decompressed = (stream) => new Response(stream.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
const isGzip = (bytes) => bytes[0] === 0x1f && bytes[1] === 0x8b;

// The bytes in an element. Each character is two of them; one after ESCAPE has a bit changed.
function bytesIn({ textContent: text, dataset }) {
  const found = new Uint16Array(Math.ceil(dataset.bytes / 2));
  for (let [k, at] = [0, 0]; k < text.length; k++, at++) {
    const unit = text.charCodeAt(k);
    found[at] = unit === ESCAPE ? text.charCodeAt(++k) ^ ESCAPED_BIT : unit;
  }
  return new Uint8Array(found.buffer).slice(0, dataset.bytes);
}

const element = (name) => document.getElementById(`asset-${name}`);
export const isInside = (name) => element(name) !== null;

function partInside(name) {
  const bytes = bytesIn(element(name));
  return isGzip(bytes) ? decompressed(new Blob([bytes]).stream()) : bytes.buffer;
}

// `onBytes` is told how many bytes have come since the last time.
async function fetched(name, onBytes) {
  const response = await fetch(`${name}.bin`);
  if (!response.ok) throw new Error(`${name}.bin: ${response.status}`);
  const counted = new TransformStream({
    transform: (chunk, controller) => {
      onBytes(chunk.byteLength);
      controller.enqueue(chunk);
    },
  });
  return response.body.pipeThrough(counted);
}

// Returns the bytes of all these parts, by name. `onProgress` is told the share that is there, if it must be fetched.
export async function assets(names, onProgress = () => {}) {
  const total = Number(document.documentElement.dataset.bytes);
  let come = 0;
  const progress = (bytes) => onProgress(Math.min((come += bytes) / total, 1));
  const found = names.map(async (name) => {
    return [name, isInside(name) ? await partInside(name) : await decompressed(await fetched(name, progress))];
  });
  return Object.fromEntries(await Promise.all(found));
}
