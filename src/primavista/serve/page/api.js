// Requests to the service: the token, error messages, WebSockets.

import { TEXTS } from "./texts.js";

const KEY = "primavista-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname); // the address and the history must not show the token
}

export const token = () => sessionStorage.getItem(KEY);
export const setToken = (text) => sessionStorage.setItem(KEY, text);

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let body = options.body;
  if (options.json) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(options.json);
  }
  let response;
  try {
    response = await fetch(path, { method: options.method ?? (body ? "POST" : "GET"), headers, body });
  } catch {
    throw new Failure(TEXTS.serviceNotAnswering, 0);
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Failure(answer.detail ?? TEXTS.serviceAnswered(response.status), response.status);
  }
  return options.blob ? response.blob() : response.json();
}

export function form(fields) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one instanceof Blob) data.append(name, one, "frame");
      else data.append(name, one);
    }
  }
  return data;
}

export function socket(path) {
  const protocols = ["primavista"];
  if (token()) {
    const coded = btoa(token()).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    protocols.push(`bearer.${coded}`); // browsers cannot send headers with a WebSocket
  }
  return new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`, protocols);
}
