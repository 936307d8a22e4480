// Helpers that every part of the page uses. Text from users and from the service is only ever set as text.

import { TEXTS } from "./texts.js";

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A word for a known object: the shares of all taught objects add up to 1 even for a stranger, so they are no number to show.
export function sureness({ confidence }) {
  if (confidence >= 0.9) return TEXTS.sure;
  return confidence >= 0.6 ? TEXTS.likely : TEXTS.perhaps;
}

export const percent = (share) => `${Math.round(100 * share)} %`;

// A button that does nothing for now. It is not `disabled`, because that would take the focus away from the keyboard.
export const setOff = (button, off) => button.setAttribute("aria-disabled", String(off));
export const isOff = (button) => button.getAttribute("aria-disabled") === "true";

export const press = (button, pressed) => button.setAttribute("aria-pressed", String(pressed));
export const isPressed = (button) => button.getAttribute("aria-pressed") === "true";

export function hint(text, kind = "") {
  $("hint").textContent = text;
  $("hint").dataset.kind = kind;
}

// The name that is being learned. The verdict says so at once, not only when the next frame is answered.
export let learning = "";
let onLearning = () => {};
export const whenLearning = (listener) => (onLearning = listener);
export function setLearning(name) {
  learning = name;
  onLearning();
}

let hideToast;
export function toast(text, undo) {
  $("toast-text").textContent = text;
  $("toast-undo").hidden = !undo;
  $("toast-undo").onclick = () => {
    clearToast();
    undo();
  };
  $("toast").hidden = false;
  clearTimeout(hideToast);
  hideToast = setTimeout(clearToast, 6000);
}

export const clearToast = () => ($("toast").hidden = true);

export function banner(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

// For screen readers: only what stays the same for a moment is announced, or they would never stop talking.
let announced = "", next = "", pending;
export function announce(text) {
  if (text === next) return;
  next = text;
  clearTimeout(pending);
  pending = setTimeout(() => {
    if (text !== announced) $("announce").textContent = announced = text;
  }, 900);
}

// Resolves to null (cancelled), to the text that was entered, to true, or to "other" for a second way to say yes.
export function dialog(title, text, value, yes = TEXTS.ok, other = "") {
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-text").hidden = !text;
  $("ask-value").hidden = value === undefined;
  $("ask-value").value = value ?? "";
  $("ask-yes").textContent = yes;
  $("ask-other").textContent = other;
  $("ask-other").hidden = !other;
  const box = $("ask");
  box.returnValue = "no";
  box.querySelector("form").onkeydown = (event) => {
    if (event.key === "Enter" && event.target === $("ask-value")) {
      event.preventDefault(); // the first button of a form is its default one, and that is Cancel
      box.close("yes");
    }
  };
  box.showModal();
  if (value !== undefined) $("ask-value").select();
  return new Promise((resolve) => {
    box.onclose = () => {
      if (box.returnValue === "other") return resolve("other");
      if (box.returnValue !== "yes") return resolve(null);
      resolve(value === undefined ? true : $("ask-value").value);
    };
  });
}
