// JSON as Python's json module reads and writes it, so that both compute the same checksum of a manifest. Python tells 1 from 1.0:
// a number with a point or an exponent becomes a `Real`, any other a number, or a BigInt if it is large.

const DEPTH = 100; // of nested lists and objects
const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)|(true|false|null))/y;

export class Real {
  constructor(value) {
    this.value = value;
  }
}

// Reads a JSON text; throws SyntaxError.
export function parse(text) {
  let at = 0;

  function next() {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) throw new SyntaxError(`unexpected text at ${at}`);
    at = TOKEN.lastIndex;
    return found;
  }

  function value([, sign, string, number, word], depth) {
    if (depth > DEPTH) throw new SyntaxError("too deeply nested");
    if (string !== undefined) return JSON.parse(string);
    if (number !== undefined) return parsedNumber(number);
    if (word !== undefined) return JSON.parse(word);
    if (sign === "[") return list(depth + 1);
    if (sign === "{") return object(depth + 1);
    throw new SyntaxError(`unexpected ${sign}`);
  }

  function list(depth) {
    const found = [];
    for (let token = next(); ; token = next()) {
      if (token[1] === "]" && !found.length) return found;
      found.push(value(token, depth));
      if (followedBy("]")) return found;
    }
  }

  function object(depth) {
    const found = new Map();
    for (let token = next(); ; token = next()) {
      if (token[1] === "}" && !found.size) return found;
      if (token[2] === undefined || next()[1] !== ":") throw new SyntaxError("a name and a colon are missing");
      found.set(JSON.parse(token[2]), value(next(), depth));
      if (followedBy("}")) return found;
    }
  }

  function followedBy(end) {
    const [, sign] = next();
    if (sign !== end && sign !== ",") throw new SyntaxError(`expected , or ${end}`);
    return sign === end;
  }

  const found = value(next(), 0);
  if (text.slice(at).trim()) throw new SyntaxError("there is more text");
  return found;
}

function parsedNumber(text) {
  if (/[.eE]/.test(text)) return new Real(Number(text));
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}

// Writes JSON with sorted keys and without blanks, in ASCII. Objects are Maps or plain objects.
export function canonical(value) {
  if (value instanceof Real) return realText(value.value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "bigint") return String(value);
  if (typeof value === "string") return ascii(JSON.stringify(value));
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const fields = value instanceof Map ? [...value] : Object.entries(value);
  return `{${fields.sort(byName).map(([name, field]) => `${canonical(name)}:${canonical(field)}`).join(",")}}`;
}

export const byName = ([one], [two]) => (one < two ? -1 : Number(one > two));

const ascii = (text) => text.replace(/[\u007f-\uffff]/g, (letter) =>
  letter === "\u007f" ? letter : `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);

// A float as Python writes it: 1.0, 0.001, 1e-05, 1e+16.
export function realText(value) {
  if (!Number.isFinite(value)) throw new SyntaxError(`${value} is not a number`);
  if (Object.is(value, -0)) return "-0.0";
  const [digits, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (value === 0 || (power >= -4 && power < 16)) {
    const text = String(value);
    return text.includes(".") ? text : `${text}.0`;
  }
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}
