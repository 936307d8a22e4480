// A refusal: says what is wrong and what to do. Nothing has changed then.

export const WRONG_INPUT = 422;
export const WRONG_STATE = 409;

export class Refusal extends Error {
  constructor(message, status = WRONG_STATE) {
    super(message);
    this.status = status;
  }
}

// A text as Python's repr writes it, for messages.
export function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`);
  return `${quote}${escaped}${quote}`;
}
