// Finds the object that is held: the square around the region that moves, from the differences of small grey pictures.

const WIDTH = 64;
const DECAY = 0.9; // per picture: about a second of motion counts
const NOISE = 14; // levels, of 255, by which the noise of a camera may change a pixel
const LEAST_MOTION = 0.004; // share of the picture that must move
const SHARE = 0.06; // of the motion that may lie outside the region, on each side
const MARGIN = 1.25; // side of the square, in sides of the region
const EASE = 0.15; // share of the way to the new square that one picture covers

export class Motion {
  constructor() {
    this.canvas = new OffscreenCanvas(WIDTH, WIDTH);
    this.before = this.energy = this.square = null;
  }

  // Returns {x, y, side} in pixels of the picture, or null until something has moved.
  follow(picture, width, height) {
    const rows = Math.max(8, Math.round((WIDTH * height) / width));
    if (this.canvas.height !== rows || !this.energy) {
      this.canvas.height = rows;
      this.energy = new Float32Array(WIDTH * rows);
      this.before = this.square = null;
    }
    const context = this.canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0, WIDTH, rows);
    const { data } = context.getImageData(0, 0, WIDTH, rows);
    const grey = new Float32Array(WIDTH * rows);
    for (let k = 0; k < grey.length; k += 1) grey[k] = (data[4 * k] + data[4 * k + 1] + data[4 * k + 2]) / 3;
    let moving = 0;
    if (this.before) {
      for (let k = 0; k < grey.length; k += 1) {
        const change = Math.abs(grey[k] - this.before[k]) > NOISE ? 1 : 0;
        moving += change;
        this.energy[k] = DECAY * this.energy[k] + change;
      }
    }
    this.before = grey;
    if (moving >= LEAST_MOTION * grey.length) this.approach(this.region(rows), width, height, rows);
    return this.square;
  }

  // The columns and rows that contain all motion except for a small share on each side.
  region(rows) {
    const across = new Float32Array(WIDTH), down = new Float32Array(rows);
    let total = 0;
    this.energy.forEach((value, k) => {
      across[k % WIDTH] += value;
      down[Math.floor(k / WIDTH)] += value;
      total += value;
    });
    const [left, right] = between(across, SHARE * total);
    const [top, bottom] = between(down, SHARE * total);
    return { left, right, top, bottom };
  }

  approach({ left, right, top, bottom }, width, height, rows) {
    const cell = [width / WIDTH, height / rows];
    const short = Math.min(width, height);
    const wanted = MARGIN * Math.max((right - left) * cell[0], (bottom - top) * cell[1]);
    const side = Math.min(Math.max(wanted, 0.3 * short), short);
    const x = Math.min(Math.max(((left + right) / 2) * cell[0] - side / 2, 0), width - side);
    const y = Math.min(Math.max(((top + bottom) / 2) * cell[1] - side / 2, 0), height - side);
    const old = this.square ?? { x, y, side };
    const mix = (from, to) => from + EASE * (to - from);
    this.square = { x: mix(old.x, x), y: mix(old.y, y), side: mix(old.side, side) };
  }
}

function between(sums, outside) {
  let first = 0, last = sums.length;
  for (let rest = outside; first < last && rest >= sums[first]; first += 1) rest -= sums[first];
  for (let rest = outside; last > first + 1 && rest >= sums[last - 1]; last -= 1) rest -= sums[last - 1];
  return [first, last];
}
