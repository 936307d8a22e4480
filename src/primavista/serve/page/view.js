// Helpers that every part of the page uses. Text from users and from the service is only ever set as text.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A word for a known object: the shares of all taught objects add up to 1 even for a stranger, so they are no number to show.
export function sureness({ confidence }) {
  if (confidence >= 0.9) return "sure";
  return confidence >= 0.6 ? "likely" : "perhaps";
}

export const percent = (share) => `${Math.round(100 * share)} %`;
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export function hint(text, kind = "") {
  $("hint").textContent = text;
  $("hint").dataset.kind = kind;
}

let hideToast;
export function toast(text, undo) {
  $("toast-text").textContent = text;
  $("toast-undo").hidden = !undo;
  $("toast-undo").onclick = () => {
    $("toast").hidden = true;
    undo();
  };
  $("toast").hidden = false;
  clearTimeout(hideToast);
  hideToast = setTimeout(() => ($("toast").hidden = true), 6000);
}

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

export function dialog(title, text, value, yes = "OK") {
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-text").hidden = !text;
  $("ask-value").hidden = value === undefined;
  $("ask-value").value = value ?? "";
  $("ask-yes").textContent = yes;
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
    box.onclose = () => resolve(box.returnValue === "yes" ? (value === undefined ? true : $("ask-value").value) : null);
  });
}
