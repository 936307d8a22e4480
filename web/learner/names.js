// The names of objects: the rule of Python's storage/names.py.

import { quoted, Refusal, WRONG_INPUT } from "./errors.js";

export const MAX_LABEL = 200;
export const UNKNOWN = "unknown"; // what every interface calls something that looks like nothing that was taught
const BLANKS = "[^\\S\\ufeff]|[\\x1c-\\x1f\\x85]";
const OUTER_BLANKS = new RegExp(`^(?:${BLANKS})+|(?:${BLANKS})+$`, "gu");
const REFUSED = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0]/u; // two names must not look the same
const JOINERS = "\u200c\u200d"; // of Persian, of Indian scripts and of emoji: between their letters
const VARIANTS = "\ufe0e\ufe0f"; // text or emoji: after symbols

// Returns a name in the form in which it is kept; `known` names are accepted as they are.
export function checkedName(label, known = []) {
  if (known.includes(label)) return label;
  const name = typeof label === "string" ? label.normalize("NFC").replace(OUTER_BLANKS, "") : "";
  const letters = [...name];
  if (letters.some((_, place) => isRefused(letters, place)) || letters.length < 1 || letters.length > MAX_LABEL) {
    throw new Refusal(`a name must be a text of 1 to ${MAX_LABEL} characters without control characters ` +
      `and invisible ones; got ${quoted(String(label)).slice(0, 80)}`, WRONG_INPUT);
  }
  if (name.toLowerCase() === UNKNOWN) {
    throw new Refusal(`${quoted(name)} is what strangers are called, so it cannot be the name of an object: choose ` +
      'another one; lessons that show the empty background are called "nothing"', WRONG_INPUT);
  }
  return name;
}

function isRefused(letters, place) {
  const [before, letter, after] = [letters[place - 1], letters[place], letters[place + 1]];
  const isAscii = (one) => one.codePointAt(0) < 128;
  if (JOINERS.includes(letter)) return before === undefined || after === undefined || isAscii(before) || isAscii(after);
  if (VARIANTS.includes(letter)) return before === undefined || /[\p{L}\s]/u.test(before);
  return REFUSED.test(letter);
}
