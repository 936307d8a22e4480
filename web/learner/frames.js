// Frames at the size of the network, as Python's media/images.py makes them: the centre square, resized by Pillow's antialiased
// bilinear filter, to the last bit. Also the identity of a lesson (media/frames.py).

import { sha256 } from "./hashes.js";

const PRECISION = 22; // bits of the weights of the filter
const IDENTIFYING_FRAMES = 8;

// RGB, uint8, size x size x 3, of a picture { width, height, data } with RGBA data.
export function centreSquare({ width, height, data }, size) {
  const side = Math.min(width, height);
  const [left, top] = [Math.floor((width - side) / 2), Math.floor((height - side) / 2)];
  const square = new Uint8Array(side * side * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const from = 4 * ((top + y) * width + left + x);
      for (let colour = 0; colour < 3; colour++) square[3 * (y * side + x) + colour] = data[from + colour];
    }
  }
  if (side === size) return square;
  const weights = triangles(side, size);
  return resizedDown(resizedAcross(square, side, size, weights), side, size, weights);
}

// RGB of a frame that has the size of the network, RGBA or RGB.
export function rgb(frame, size) {
  const channels = frame.length / (size * size);
  if (channels === 3) return new Uint8Array(frame.buffer, frame.byteOffset, frame.length);
  if (channels !== 4) throw new RangeError(`a frame has ${size} x ${size} pixels, RGBA; got ${frame.length} bytes`);
  const found = new Uint8Array(size * size * 3);
  for (let pixel = 0; pixel < size * size; pixel++) {
    for (let colour = 0; colour < 3; colour++) found[3 * pixel + colour] = frame[4 * pixel + colour];
  }
  return found;
}

// The first input and the integer weights of each output: triangles as wide as the reduction, at least one pixel.
function triangles(side, size) {
  const scale = side / size;
  const support = Math.max(scale, 1);
  return Array.from({ length: size }, (_, out) => {
    const centre = (out + 0.5) * scale;
    const start = Math.max(Math.trunc(centre - support + 0.5), 0);
    const stop = Math.min(Math.trunc(centre + support + 0.5), side);
    const heights = Array.from({ length: stop - start }, (_, k) => Math.max(1 - Math.abs((start + k - centre + 0.5) * (1 / support)), 0));
    const share = 1 / heights.reduce((sum, height) => sum + height, 0);
    return { start, weights: heights.map((height) => Math.trunc(0.5 + height * share * 2 ** PRECISION)) };
  });
}

function resizedAcross(square, side, size, filter) {
  const found = new Uint8Array(side * size * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < size; x++) weigh(found, 3 * (y * size + x), square, 3 * y * side, 3, filter[x]);
  }
  return found;
}

function resizedDown(rows, side, size, filter) {
  const found = new Uint8Array(size * size * 3);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) weigh(found, 3 * (y * size + x), rows, 3 * x, 3 * size, filter[y]);
  }
  return found;
}

// Writes the weighted sum of pixels that are `step` apart.
function weigh(found, at, pixels, from, step, { start, weights }) {
  for (let colour = 0; colour < 3; colour++) {
    let sum = 2 ** (PRECISION - 1);
    for (let k = 0; k < weights.length; k++) sum += pixels[from + (start + k) * step + colour] * weights[k];
    found[at + colour] = Math.min(sum >> PRECISION, 255);
  }
}

// SHA-256 of the number of frames and of eight of them, evenly spread: 32 hexadecimal digits, the same as in Python.
export async function lessonId(count, frameAt) {
  const chosen = identifyingFrames(count).map(frameAt);
  return (await sha256([new TextEncoder().encode(String(count)), ...chosen])).slice(0, 32);
}

export function identifyingFrames(count) {
  const steps = Math.min(IDENTIFYING_FRAMES, count);
  return [...new Set(Array.from({ length: steps }, (_, k) => Math.floor((k * (count - 1)) / Math.max(steps - 1, 1))))];
}
