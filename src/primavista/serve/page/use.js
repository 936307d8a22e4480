// Use of the model: save it, load another one, export it, and copy a program that uses it.

import { ask, form } from "./api.js";
import * as objects from "./objects.js";
import { TEXTS } from "./texts.js";
import { $, dialog, isOff, make, setOff, toast } from "./view.js";

async function download(button, path, name) {
  if (isOff(button)) return;
  const text = button.textContent;
  setOff(button, true);
  button.textContent = TEXTS.exporting;
  try {
    const link = make("a", { href: URL.createObjectURL(await ask(path, { blob: true })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) {
    $("using").close();
    toast(error.message);
  }
  button.textContent = text;
  setOff(button, false);
}

async function load(file) {
  $("using").close();
  const { model } = objects;
  const text = model.objects.length ? TEXTS.loadText(TEXTS.objectsCount(model.objects.length), model.name) : "";
  if (!(await dialog(TEXTS.loadTitle(file.name), text, undefined, TEXTS.loadShort))) return;
  if (await objects.change("/api/model/file", { body: form({ file }) }, "")) toast(TEXTS.loaded(file.name, TEXTS.objectsCount(objects.model.objects.length)), objects.undo);
}

async function copy() {
  const range = document.createRange();
  range.selectNodeContents($("snippet"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  await navigator.clipboard?.writeText($("snippet").textContent).catch(() => {});
  $("copy").textContent = TEXTS.copied;
  setTimeout(() => ($("copy").textContent = TEXTS.copy), 2000);
}

export function setUp() {
  const stem = () => objects.model.name.replace(/\.[^.]*$/, "");
  $("use").onclick = () => {
    $("snippet").textContent = TEXTS.snippet(objects.model.name);
    $("using").showModal();
  };
  $("save").onclick = () => download($("save"), "/api/model/file", objects.model.name);
  $("export-onnx").onclick = () => download($("export-onnx"), "/api/export?format=onnx", `${stem()}.onnx`);
  $("export-edge").onclick = () => download($("export-edge"), "/api/export?format=portable", `${stem()}.portable.pv`);
  $("copy").onclick = copy;
  $("load").onclick = () => $("load-file").click();
  $("load-file").onchange = async () => {
    const [file] = $("load-file").files;
    $("load-file").value = "";
    if (file) await load(file);
  };
}
