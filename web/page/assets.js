// The parts of the page that are no scripts: the worker, the runtime, the network, the model. Each is compressed (gzip), in a file
// beside a page that is a folder, and as base64 in an element of a page that is one file.

const decompressed = (stream) => new Response(stream.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();

function decoded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
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
export async function assets(names, onProgress) {
  const total = Number(document.documentElement.dataset.bytes);
  let come = 0;
  const progress = (bytes) => onProgress(Math.min((come += bytes) / total, 1));
  const found = names.map(async (name) => {
    const inside = document.getElementById(`asset-${name}`);
    return [name, await decompressed(inside ? new Blob([decoded(inside.textContent)]).stream() : await fetched(name, progress))];
  });
  return Object.fromEntries(await Promise.all(found));
}
