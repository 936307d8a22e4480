// Matrices in float64, and the two computations that take time: products and the solution of X A = B.
//
// Both are made of one kernel in WebAssembly (kernel.wat), which is about four times as fast as a loop in JavaScript. A matrix
// that the kernel reads has rows of an even number of numbers, the last one 0 if need be.

export const KERNEL =
  "AGFzbQEAAAABLAVgAXsBfGADf3x7AGAFf3x/f38AYAh/f3x/f39/fwBgCn9/fH9/f39/f38AAwYFAAECAwQFAwEAAQcXAgZtZW1vcnkCAAphZGRQcm9kdWN0" +
  "AAQK1wUFDQAgAP0hACAA/SEBoAsUACAAIAArAwAgASACEACioDkDAAtIAgF/AXsgAiAEaiEFAkADQCACIAVPDQEgBiAC/QAEACAD/QAEAP3yAf3wASEGIAJB" +
  "EGohAiADQRBqIQMMAAsLIAAgASAGEAEL4wICBX8LeyADIAdqIQggAyAEaiEJIAkgBGohCiAKIARqIQsgBSAGaiEMAkADQCADIAhPDQEgBf0ABAAhDSAM/QAE" +
  "ACEOIAP9AAQAIQ8gECAPIA398gH98AEhECARIA8gDv3yAf3wASERIAn9AAQAIQ8gEiAPIA398gH98AEhEiATIA8gDv3yAf3wASETIAr9AAQAIQ8gFCAPIA39" +
  "8gH98AEhFCAVIA8gDv3yAf3wASEVIAv9AAQAIQ8gFiAPIA398gH98AEhFiAXIA8gDv3yAf3wASEXIANBEGohAyAJQRBqIQkgCkEQaiEKIAtBEGohCyAFQRBq" +
  "IQUgDEEQaiEMDAALCyAAIAIgEBABIABBCGogAiAREAEgACABaiEAIAAgAiASEAEgAEEIaiACIBMQASAAIAFqIQAgACACIBQQASAAQQhqIAIgFRABIAAgAWoh" +
  "ACAAIAIgFhABIABBCGogAiAXEAELgwIBBX8CQANAIAogBU8NAUEEIQ4gCkEEaiAFSwRAQQEhDgsgBiEMIAAhDUEAIQsCQANAIAsgCE8NASAOQQRGIAtBAmog" +
  "CE1xBEAgDSABIAIgAyAEIAwgByAJEAMgC0ECaiELIA1BEGohDSAMIAdBAXRqIQwFIA0gAiADIAwgCRACIA5BBEYEQCANIAFqIAIgAyAEaiAMIAkQAiANIAFB" +
  "AmxqIAIgAyAEQQJsaiAMIAkQAiANIAFBA2xqIAIgAyAEQQNsaiAMIAkQAgsgC0EBaiELIA1BCGohDSAMIAdqIQwLDAALCyAKIA5qIQogAyAEIA5saiEDIAAg" +
  "ASAObGohAAwACwsL";
const BLOCK = 64; // columns of A that `solveRows` eliminates at a time

const bytes = Uint8Array.from(atob(KERNEL), (letter) => letter.charCodeAt(0));
const kernel = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;

// A matrix, row by row.
export class Matrix {
  constructor(rows, columns, data = new Float64Array(rows * columns)) {
    Object.assign(this, { rows, columns, data });
  }

  // The numbers of one row, not a copy.
  row(i) {
    return this.data.subarray(i * this.columns, (i + 1) * this.columns);
  }

  // A copy of some columns of all rows.
  part({ start, stop }) {
    const found = new Matrix(this.rows, stop - start);
    for (let i = 0; i < this.rows; i++) found.row(i).set(this.row(i).subarray(start, stop));
    return found;
  }

  // A copy of some rows.
  rowsAt(indices) {
    const found = new Matrix(indices.length, this.columns);
    indices.forEach((i, k) => found.row(k).set(this.row(i)));
    return found;
  }

  transposed() {
    const found = new Matrix(this.columns, this.rows);
    for (let i = 0; i < this.rows; i++) {
      for (let j = 0; j < this.columns; j++) found.data[j * this.rows + i] = this.data[i * this.columns + j];
    }
    return found;
  }

  // The mean of all rows.
  mean() {
    const found = new Float64Array(this.columns);
    for (let i = 0; i < this.rows; i++) add(found, this.row(i));
    return found.map((x) => x / this.rows);
  }

  // A new matrix of f(row, i) for each row.
  mapRows(f) {
    const found = new Matrix(this.rows, this.columns);
    for (let i = 0; i < this.rows; i++) found.row(i).set(f(this.row(i), i));
    return found;
  }
}

// x <- x + factor y
export function add(x, y, factor = 1) {
  for (let k = 0; k < x.length; k++) x[k] += factor * y[k];
}

export function minus(x, y) {
  const found = new Float64Array(x.length);
  for (let k = 0; k < x.length; k++) found[k] = x[k] - y[k];
  return found;
}

export function times(x, factor) {
  const found = new Float64Array(x.length);
  for (let k = 0; k < x.length; k++) found[k] = x[k] * factor;
  return found;
}

export function dot(x, y) {
  let sum = 0;
  for (let k = 0; k < x.length; k++) sum += x[k] * y[k];
  return sum;
}

export function sum(x) {
  let total = 0;
  for (let k = 0; k < x.length; k++) total += x[k];
  return total;
}

export const even = (length) => length + (length % 2);

// Part of the memory of the kernel: a matrix whose rows have an even number of numbers.
class KernelMatrix {
  constructor(rows, columns, offset) {
    Object.assign(this, { rows, columns, stride: even(columns), offset });
  }

  get data() {
    return new Float64Array(kernel.memory.buffer, this.offset, this.rows * this.stride);
  }

  at(row, column) {
    return this.offset + 8 * (row * this.stride + column);
  }

  take(matrix) {
    const { data } = this;
    data.fill(0);
    for (let i = 0; i < matrix.rows; i++) data.set(matrix.row(i), i * this.stride);
    return this;
  }

  copy() {
    const { data } = this;
    const found = new Matrix(this.rows, this.columns);
    for (let i = 0; i < this.rows; i++) found.row(i).set(data.subarray(i * this.stride, i * this.stride + this.columns));
    return found;
  }
}

// Returns matrices of these shapes in the memory of the kernel; they are valid until the next call.
function reserve(...shapes) {
  const found = [];
  let end = 0;
  for (const [rows, columns] of shapes) {
    found.push(new KernelMatrix(rows, columns, end));
    end += 8 * rows * even(columns);
  }
  const missing = end - kernel.memory.buffer.byteLength;
  if (missing > 0) kernel.memory.grow(Math.ceil(missing / 65536));
  return found;
}

// C <- C + alpha A B^T for parts of matrices of the kernel: { of, row, column, rows }, with `length` columns of A and B.
function addProduct(c, alpha, a, b, length) {
  const { of: C, row, column } = c;
  kernel.addProduct(C.at(row, column), 8 * C.stride, alpha,
    a.of.at(a.row, a.column), 8 * a.of.stride, a.rows, b.of.at(b.row, b.column), 8 * b.of.stride, b.rows, 8 * even(length));
}

const all = (of) => ({ of, row: 0, column: 0, rows: of.rows });

// A B^T
export function timesTransposed(a, b) {
  const [A, B, C] = reserve([a.rows, a.columns], [b.rows, b.columns], [a.rows, b.rows]);
  C.data.fill(0);
  addProduct(all(C), 1, all(A.take(a)), all(B.take(b)), a.columns);
  return C.copy();
}

// Calls `use(start, rows)` with the rows of the lower triangle of A A^T, a few at a time: row i has the columns 0 to i at least.
export function forSquare(a, use) {
  const [A, C] = reserve([a.rows, a.columns], [Math.min(BLOCK, a.rows), a.rows]);
  A.take(a);
  for (let start = 0; start < a.rows; start += BLOCK) {
    const rows = Math.min(BLOCK, a.rows - start);
    C.data.fill(0);
    addProduct(all(C), 1, { of: A, row: start, column: 0, rows }, { of: A, row: 0, column: 0, rows: start + rows }, a.columns);
    use(start, new Matrix(rows, C.stride, C.data.subarray(0, rows * C.stride)));
  }
}

// Solves X (G + U V^T + shift I) = B for a positive definite sum.
//
// `fill(a, stride)` writes the lower triangle of G, n x n; U and V have n rows; `shift(trace)` is asked with the trace of
// G + U V^T. Returns X, or throws if the sum is not positive definite.
export function solveShifted(n, fill, u, v, shift, b) {
  const [A, U, V, B, T, I] = reserve(
    [n, n], [n, u.columns], [n, v.columns], [b.rows, n], [Math.max(n, b.rows), BLOCK], [BLOCK, BLOCK]);
  A.data.fill(0);
  fill(A.data, A.stride);
  U.take(u);
  V.take(v);
  for (let row = 0; row < n; row += BLOCK) { // the lower triangle suffices
    const rows = Math.min(BLOCK, n - row);
    addProduct({ of: A, row, column: 0 }, 1, { of: U, row, column: 0, rows }, { of: V, row: 0, column: 0, rows: row + rows }, u.columns);
  }
  const a = A.data;
  let trace = 0;
  for (let i = 0; i < n; i++) trace += a[i * A.stride + i];
  const added = shift(trace);
  for (let i = 0; i < n; i++) a[i * A.stride + i] += added;
  solveRows(A, B.take(b), T, I);
  return B.copy();
}

// Solves X A = B for A = L L^T, block by block. B becomes X, A becomes L with L^T above its diagonal.
function solveRows(A, B, T, I) {
  const n = A.rows;
  const a = A.data;
  const b = B.data;
  const inverses = [];
  for (let start = 0; start < n; start += BLOCK) { // A becomes L and B becomes Y = B inv(L)^T
    const width = Math.min(BLOCK, n - start);
    const stop = start + width;
    const own = { of: A, row: start, column: 0, rows: width };
    if (start) {
      addProduct({ of: A, row: start, column: start }, -1, { of: A, row: start, column: 0, rows: n - start }, own, start);
      addProduct({ of: B, row: 0, column: start }, -1, all(B), own, start);
    }
    const inverse = invertedFactor(a, A.stride, start, width);
    inverses.push(inverse);
    timesInverse(A, stop, start, width, inverse, T, I);
    timesInverse(B, 0, start, width, inverse, T, I);
    for (let i = start; i < stop; i++) for (let j = i + 1; j < stop; j++) a[i * A.stride + j] = 0;
    for (let i = stop; i < n; i++) for (let j = start; j < stop; j++) a[j * A.stride + i] = a[i * A.stride + j];
  }
  for (let k = inverses.length - 1; k >= 0; k--) { // X = Y inv(L)
    const start = k * BLOCK;
    const width = Math.min(BLOCK, n - start);
    const stop = start + width;
    if (stop < n) {
      const above = { of: A, row: start, column: stop, rows: width };
      addProduct({ of: B, row: 0, column: start }, -1, { of: B, row: 0, column: stop, rows: B.rows }, above, n - stop);
    }
    timesInverse(B, 0, start, width, inverses[k].transposed(), T, I);
  }
  return b;
}

// M[row:, start : start + width] <- M[row:, start : start + width] inverse^T
function timesInverse(M, row, start, width, inverse, T, I) {
  const rows = M.rows - row;
  if (!rows) return;
  const square = new KernelMatrix(width, width, I.offset).take(inverse);
  const product = new KernelMatrix(rows, width, T.offset);
  product.data.fill(0);
  const { data } = M;
  // the product reads an even number of columns: what follows an odd last block is the padding of the matrix, which is 0
  addProduct(all(product), 1, { of: M, row, column: start, rows }, all(square), width);
  const { data: found } = product;
  for (let i = 0; i < rows; i++) {
    data.set(found.subarray(i * product.stride, i * product.stride + width), (row + i) * M.stride + start);
  }
}

// inv(L) of a block on the diagonal of A, which becomes L: Cholesky's factor of the block.
function invertedFactor(a, stride, start, width) {
  const at = (i, j) => (start + i) * stride + start + j;
  const inverse = new Matrix(width, width);
  const { data } = inverse;
  for (let j = 0; j < width; j++) {
    for (let i = j; i < width; i++) {
      let rest = a[at(i, j)];
      for (let k = 0; k < j; k++) rest -= a[at(i, k)] * a[at(j, k)];
      if (i === j && !(rest > 0)) throw new NotPositiveDefinite();
      a[at(i, j)] = i === j ? Math.sqrt(rest) : rest / a[at(j, j)];
    }
  }
  for (let j = 0; j < width; j++) {
    data[j * width + j] = 1 / a[at(j, j)];
    for (let i = j + 1; i < width; i++) {
      let rest = 0;
      for (let k = j; k < i; k++) rest -= a[at(i, k)] * data[k * width + j];
      data[i * width + j] = rest / a[at(i, i)];
    }
  }
  return inverse;
}

export class NotPositiveDefinite extends Error {
  constructor() {
    super("Matrix is not positive definite");
  }
}

// Solves A x = b for a small matrix A, by elimination with pivots.
export function solveSmall(a, b) {
  const n = a.rows;
  const m = a.data.slice();
  const x = Float64Array.from(b);
  for (let k = 0; k < n; k++) {
    let pivot = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(m[i * n + k]) > Math.abs(m[pivot * n + k])) pivot = i;
    for (let j = 0; j < n; j++) [m[k * n + j], m[pivot * n + j]] = [m[pivot * n + j], m[k * n + j]];
    [x[k], x[pivot]] = [x[pivot], x[k]];
    for (let i = k + 1; i < n; i++) {
      const factor = m[i * n + k] / m[k * n + k];
      for (let j = k; j < n; j++) m[i * n + j] -= factor * m[k * n + j];
      x[i] -= factor * x[k];
    }
  }
  for (let k = n - 1; k >= 0; k--) {
    for (let j = k + 1; j < n; j++) x[k] -= m[k * n + j] * x[j];
    x[k] /= m[k * n + k];
  }
  return x;
}
