// Decompresses LZMA, which makes ONNX Runtime 1.4 MB smaller than gzip does and which no browser offers. The names are those of the
// LZMA specification (Igor Pavlov, 2015); the header must give the length.

const STATES = 12;
const MOST_POSITIONS = 16; // 2 ** the largest pb
const [LOW, MID, HIGH] = [8, 8, 256]; // symbols of the three parts of a length
const LENGTHS = 2 + MOST_POSITIONS * (LOW + MID) + HIGH; // probabilities of a length decoder
const ALIGN_BITS = 4;
const FULL_DISTANCES = 128; // distances with probabilities of their own

export const isLzma = (bytes) => bytes[0] === 0x5d; // lc = 3, lp = 0, pb = 2, as all compressors choose

export function unlzma(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const [lc, lp, pb] = [bytes[0] % 9, Math.floor(bytes[0] / 9) % 5, Math.floor(bytes[0] / 45)];
  const out = new Uint8Array(Number(view.getBigUint64(5, true)));

  let end = 0;
  const take = (count) => (end += count) - count;
  const [isMatch, isRep, isRepG0, isRepG1, isRepG2, isRep0Long] = [STATES * MOST_POSITIONS, STATES, STATES, STATES, STATES, STATES * MOST_POSITIONS].map(take);
  const [slots, align, special, lengths, repLengths, literals] = [4 * 64, 2 ** ALIGN_BITS, FULL_DISTANCES, LENGTHS, LENGTHS, 0x300 << (lc + lp)].map(take);
  const probabilities = new Uint16Array(end).fill(1024);

  const coder = Uint32Array.of(0xffffffff, view.getUint32(14)); // range, code
  let next = 18;

  const normalise = () => {
    if (coder[0] >= 2 ** 24) return;
    coder[0] <<= 8;
    coder[1] = (coder[1] << 8) | bytes[next++];
  };
  const bit = (at) => {
    const p = probabilities[at];
    const bound = (coder[0] >>> 11) * p;
    const is = coder[1] >= bound ? 1 : 0;
    if (is) {
      coder[0] -= bound;
      coder[1] -= bound;
      probabilities[at] = p - (p >> 5);
    } else {
      coder[0] = bound;
      probabilities[at] = p + ((2048 - p) >> 5);
    }
    normalise();
    return is;
  };
  const tree = (at, bits) => {
    let m = 1;
    for (let k = 0; k < bits; k++) m = 2 * m + bit(at + m);
    return m - 2 ** bits;
  };
  const reverseTree = (at, bits) => {
    let [m, found] = [1, 0];
    for (let k = 0; k < bits; k++) {
      const one = bit(at + m);
      m = 2 * m + one;
      found += one << k;
    }
    return found;
  };
  const direct = (bits) => {
    let found = 0;
    for (let k = 0; k < bits; k++) {
      coder[0] >>>= 1;
      const is = coder[1] >= coder[0] ? 1 : 0;
      if (is) coder[1] -= coder[0];
      found = 2 * found + is;
      normalise();
    }
    return found;
  };
  const length = (at, position) => {
    if (!bit(at)) return 2 + tree(at + 2 + position * LOW, 3);
    if (!bit(at + 1)) return 2 + LOW + tree(at + 2 + MOST_POSITIONS * LOW + position * MID, 3);
    return 2 + LOW + MID + tree(at + 2 + MOST_POSITIONS * (LOW + MID), 8);
  };
  const distance = (count) => {
    const slot = tree(slots + 64 * Math.min(count - 2, 3), 6);
    if (slot < 4) return slot;
    const bits = (slot >> 1) - 1;
    const start = (2 + (slot & 1)) * 2 ** bits;
    if (slot < 14) return start + reverseTree(special + start - slot, bits);
    return start + direct(bits - ALIGN_BITS) * 2 ** ALIGN_BITS + reverseTree(align, ALIGN_BITS);
  };

  let [at, state, rep0, rep1, rep2, rep3] = [0, 0, 0, 0, 0, 0];
  const literal = () => {
    const before = at ? out[at - 1] : 0;
    const own = literals + 0x300 * (((at & ((1 << lp) - 1)) << lc) + (before >> (8 - lc)));
    let symbol = 1;
    if (state >= 7) {
      let match = out[at - rep0 - 1];
      while (symbol < 256) {
        const expected = (match >> 7) & 1;
        match <<= 1;
        const found = bit(own + ((1 + expected) << 8) + symbol);
        symbol = 2 * symbol + found;
        if (found !== expected) break;
      }
    }
    while (symbol < 256) symbol = 2 * symbol + bit(own + symbol);
    out[at++] = symbol;
    state = state < 4 ? 0 : state - (state < 10 ? 3 : 6);
  };
  while (at < out.length) {
    const position = at & ((1 << pb) - 1);
    const place = state * MOST_POSITIONS + position;
    if (!bit(isMatch + place)) {
      literal();
      continue;
    }
    let count = 1;
    if (!bit(isRep + state)) {
      [rep3, rep2, rep1] = [rep2, rep1, rep0];
      count = length(lengths, position);
      rep0 = distance(count);
      state = state < 7 ? 7 : 10;
    } else {
      const isOther = bit(isRepG0 + state);
      const isShort = !isOther && !bit(isRep0Long + place); // one byte
      if (isOther && !bit(isRepG1 + state)) [rep0, rep1] = [rep1, rep0];
      else if (isOther && !bit(isRepG2 + state)) [rep0, rep1, rep2] = [rep2, rep0, rep1];
      else if (isOther) [rep0, rep1, rep2, rep3] = [rep3, rep0, rep1, rep2];
      if (!isShort) count = length(repLengths, position);
      state = state < 7 ? (isShort ? 9 : 8) : 11;
    }
    if (rep0 >= at) throw new Error("the compressed data are damaged");
    for (let k = 0; k < count; k++, at++) out[at] = out[at - rep0 - 1];
  }
  return out;
}
