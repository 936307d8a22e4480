// Helpers that every part of the page uses; they keep no state of the page. Text from users and from the service is only set as text, never as HTML.

import { TEXTS } from "./texts.js";

const AIMED_BEFORE = 500; // milliseconds

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// The confidence in words. The number would mislead: the shares of all taught objects add up to 1 even for a stranger.
export function sureness({ confidence }) {
  if (confidence >= 0.9) return TEXTS.sure;
  return confidence >= 0.6 ? TEXTS.fairlySure : TEXTS.perhaps;
}

export const percent = (share) => `${Math.round(100 * share)} %`;

// A button can be off for a while. It is not `disabled` then, because a disabled button loses the focus of the keyboard.
export const setOff = (button, off) => button.setAttribute("aria-disabled", String(off));
export const isOff = (button) => button.getAttribute("aria-disabled") === "true";

export const press = (button, pressed) => button.setAttribute("aria-pressed", String(pressed));
export const isPressed = (button) => button.getAttribute("aria-pressed") === "true";

// Lets an element ignore clicks for a moment after it has appeared: they were aimed at what was there before.
// Returns the function to call when it appears. A press of a key is never early: it goes to what has the focus.
export function ignoreEarlyClicks(element) {
  let appeared = 0;
  const early = ({ detail, timeStamp }) => detail > 0 && timeStamp - appeared < AIMED_BEFORE;
  element.addEventListener("click", (event) => early(event) && event.stopPropagation(), true);
  return () => (appeared = performance.now());
}

export function hint(text, kind = "") {
  $("hint").textContent = text;
  $("hint").dataset.kind = kind;
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

// Tells screen readers a text, once it has stayed the same for a moment: otherwise they would never stop talking.
let announced = "", next = "", pending;
export function announce(text) {
  if (text === next) return;
  next = text;
  clearTimeout(pending);
  pending = setTimeout(() => {
    if (text !== announced) $("announce").textContent = announced = text;
  }, 900);
}

// Asks the user. Resolves to null (cancelled), "other" (the second button), or yes: the entered text, or true if there is no field.
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
      event.preventDefault(); // Enter would press the first button of the form, which is Cancel
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
