// A button that is held: by mouse, finger or pen, or by the space bar or Enter.

import { isOff } from "./view.js";

export function holdable(button, begin, end) {
  let held = false;

  const press = () => {
    if (held || isOff(button)) return;
    held = true;
    button.classList.add("held");
    begin();
  };
  const release = () => {
    if (!held) return;
    held = false;
    button.classList.remove("held");
    end();
  };

  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    button.setPointerCapture(event.pointerId);
    press();
  });
  button.addEventListener("pointerup", release);
  button.addEventListener("pointercancel", release);
  button.addEventListener("lostpointercapture", release);
  button.addEventListener("keydown", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    if (!event.repeat) press();
  });
  button.addEventListener("keyup", (event) => {
    if (event.key === " " || event.key === "Enter") release();
  });
  button.addEventListener("blur", release);
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  return release;
}
