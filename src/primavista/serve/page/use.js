// Use of the model: save it, load another one, export it, and copy a program that uses it.

import * as backend from "./backend.js";
import * as objects from "./objects.js";
import { TEXTS } from "./texts.js";
import { $, dialog, isOff, make, setOff, toast } from "./view.js";

// `get` resolves to the file, a blob.
async function download(button, get, name) {
  if (isOff(button)) return;
  const text = button.textContent;
  setOff(button, true);
  button.textContent = TEXTS.exporting;
  try {
    const link = make("a", { href: URL.createObjectURL(await get()), download: name });
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
  const has = model.objects.length > 0;
  const text = has ? TEXTS.loadText(TEXTS.objectsCount(model.objects.length), model.name) : "";
  const chosen = await dialog(TEXTS.loadTitle(file.name), text, undefined, TEXTS.loadShort, has && backend.canMerge ? TEXTS.merge : "");
  if (!chosen) return;
  if (!(await objects.change(chosen === "other" ? "merge" : "load", { file }, ""))) return;
  const count = TEXTS.objectsCount(objects.model.objects.length);
  toast(chosen === "other" ? TEXTS.merged(file.name, count) : TEXTS.loaded(file.name, count), objects.undo);
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
  $("export").hidden = !backend.exported;
  $("save").onclick = () => download($("save"), backend.modelFile, objects.model.name);
  $("export-onnx").onclick = () => download($("export-onnx"), () => backend.exported("onnx"), `${stem()}.onnx`);
  $("export-edge").onclick = () => download($("export-edge"), () => backend.exported("portable"), `${stem()}.portable.pv`);
  $("copy").onclick = copy;
  $("load").onclick = () => $("load-file").click();
  $("load-file").onchange = async () => {
    const [file] = $("load-file").files;
    $("load-file").value = "";
    if (file) await load(file);
  };
}
