// SHA-256 of the browser, and SHAKE-256, from which the random signs of the keys of lessons come.

const RATE = 136; // bytes of a block of SHAKE-256
const ROUNDS = 24;
const MASK = (1n << 64n) - 1n;
const STEPS = keccakSteps();
const signs = new Map();

// The SHA-256 of some parts one after the other, in hexadecimal digits.
export async function sha256(parts) {
  const digest = await crypto.subtle.digest("SHA-256", joined(parts));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The bytes of some arrays, one after the other.
export function joined(parts) {
  const found = new Uint8Array(parts.reduce((length, part) => length + part.byteLength, 0));
  let at = 0;
  for (const part of parts) {
    found.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), at);
    at += part.byteLength;
  }
  return found;
}

// +-1 / sqrt(D), the direction of the keys of lessons: the bits of SHAKE-256 of "lessons".
export function randomSigns(dim) {
  if (!signs.has(dim)) {
    const drawn = shake256(new TextEncoder().encode("lessons"), Math.floor(dim / 8) + 1);
    const bit = (k) => (drawn[k >> 3] >> (7 - (k & 7))) & 1;
    signs.set(dim, Float64Array.from({ length: dim }, (_, k) => (2 * bit(k) - 1) / Math.sqrt(dim)));
  }
  return signs.get(dim);
}

// SHAKE-256 (FIPS 202) of a message shorter than a block.
export function shake256(message, length) {
  const block = new Uint8Array(RATE);
  block.set(message);
  block[message.length] = 0x1f;
  block[RATE - 1] |= 0x80;
  const state = new BigUint64Array(25);
  state.set(new BigUint64Array(block.buffer));
  const found = new Uint8Array(length);
  for (let at = 0; at < length; at += RATE) {
    keccak(state);
    found.set(new Uint8Array(state.buffer, 0, Math.min(RATE, length - at)), at);
  }
  return found;
}

function keccak(a) {
  const { constants, turns } = STEPS;
  for (let round = 0; round < ROUNDS; round++) {
    const c = Array.from({ length: 5 }, (_, x) => a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20]);
    for (let x = 0; x < 5; x++) {
      const d = c[(x + 4) % 5] ^ turned(c[(x + 1) % 5], 1n);
      for (let y = 0; y < 25; y += 5) a[x + y] ^= d;
    }
    const b = new BigUint64Array(25);
    for (let x = 0; x < 5; x++) {
      for (let y = 0; y < 5; y++) b[y + 5 * ((2 * x + 3 * y) % 5)] = turned(a[x + 5 * y], turns[x + 5 * y]);
    }
    for (let y = 0; y < 25; y += 5) {
      for (let x = 0; x < 5; x++) a[x + y] = b[x + y] ^ (~b[((x + 1) % 5) + y] & MASK & b[((x + 2) % 5) + y]);
    }
    a[0] ^= constants[round];
  }
}

const turned = (word, by) => ((word << by) | (word >> (64n - by))) & MASK;

// The constants of the rounds and the rotations of the words, as FIPS 202 defines them.
function keccakSteps() {
  const turns = new Array(25).fill(0n);
  let [x, y] = [1, 0];
  for (let t = 0; t < 24; t++) {
    turns[x + 5 * y] = BigInt(((t + 1) * (t + 2)) / 2) % 64n;
    [x, y] = [y, (2 * x + 3 * y) % 5];
  }
  let register = 1;
  const nextBit = () => {
    const bit = register & 1;
    register = (register << 1) ^ (register & 0x80 ? 0x171 : 0);
    return bit;
  };
  const constants = Array.from({ length: ROUNDS }, () => {
    let word = 0n;
    for (let j = 0; j < 7; j++) if (nextBit()) word |= 1n << BigInt(2 ** j - 1);
    return word;
  });
  return { constants, turns };
}
