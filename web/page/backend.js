// The learner behind the page: here a worker of the page itself. The exports are those of serve/page/backend.js.

import { banner, dialog } from "../../src/primavista/serve/page/view.js";
import { centreSquare } from "../learner/frames.js";
import { assets, isInside } from "./assets.js";
import { Clips } from "./clips.js";
import { TEXTS } from "./texts.js";
import { LearnerWorker } from "./worker.js";

const PARTS = ["worker", "runtime", "network", "graph", "references"];
const IN_FLIGHT = 8; // frames of a lesson whose features are not computed yet; with more, frames are left out
const MAX_FILE = 2 ** 28; // bytes of a model
const MAX_SIDE = 480; // pixels of the square of the camera
const CONTROL_WAIT = 5000; // milliseconds in which the service worker must take the page over
const VIDEO_STEP = 0.1; // seconds between two frames of a video that is taught
const OTHER_TAB = 423; // the statuses of refusals
const DAMAGED = 409;
let worker = null;
let opening = null; // resolves to the model when the learner is ready
let current = null; // the model
let connection = null;

export const canMerge = true;
export const canDecode = false;
export const place = () => TEXTS.thisDevice;
export const [exported, refusesToLocate, cameraFrame] = [null, null, null]; // the page does not offer what needs these

const call = (name, args = [], options = {}) => worker.call(name, args, options);
const { dataset } = document.documentElement; // says which model is in the page, if any

// A page that is a folder works without a network from the second visit on. The large parts come through its service worker, which
// keeps them; if there is none, as on an address without https, they come as they do from any page.
async function workOffline() {
  if (!document.querySelector("link[rel=manifest]") || !navigator.serviceWorker) return;
  const taken = new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve));
  try {
    const registration = await navigator.serviceWorker.register("service_worker.js");
    if (registration.active) return;
    await Promise.race([taken, new Promise((resolve) => setTimeout(resolve, CONTROL_WAIT))]);
  } catch {
    // the page works without it
  }
}

// Beside a page that is a folder the licences are a file; in a page that is one file they are a part of it.
async function linkLicences() {
  if (!isInside("licences")) return;
  const { licences } = await assets(["licences"]);
  document.getElementById("licences").href = URL.createObjectURL(new Blob([licences], { type: "text/plain" }));
}

async function open(fresh) {
  await workOffline();
  await linkLicences();
  const names = [...PARTS, ...(dataset.model ? ["model"] : [])];
  const found = await assets(names, (share) => banner(share < 1 ? TEXTS.loading(share) : ""));
  banner("");
  worker = new LearnerWorker(found.worker, () => {
    opening = null;
    connection?.lost();
  });
  const { runtime: wasm, network, graph, references, model: packed = null } = found;
  const state = location.pathname.replace(/index\.html$/, "");
  current = await call("open", [{ wasm, network, graph, references, packed, name: dataset.model || "objects.pv", state, fresh }]);
  return current;
}

function start(fresh = false) {
  opening ??= open(fresh).catch((error) => {
    opening = null;
    worker?.end();
    throw error;
  });
  return opening;
}

// Starts the learner. It asks what to do if another tab has it, or if what is kept in this browser cannot be read.
export async function enter(refresh, fresh = false) {
  try {
    await start(fresh);
  } catch (error) {
    const damaged = error.status === DAMAGED && !fresh;
    const [title, text] = error.status === OTHER_TAB ? [TEXTS.otherTabTitle, TEXTS.otherTab] : [damaged ? TEXTS.damagedTitle : TEXTS.cannotStart, error.message];
    const chosen = await dialog(title, text, undefined, TEXTS.tryAgain, damaged ? TEXTS.startAgain : "");
    return enter(refresh, chosen === "other");
  }
  await refresh();
}

export async function model() {
  await start();
  current = await call("model");
  return current;
}

export async function change(kind, { file, ...fields }) {
  if (file?.size > MAX_FILE) throw new Error(TEXTS.tooLarge(file.name));
  const read = file ? { file: await file.arrayBuffer(), name: file.name } : {};
  current = await call("change", [kind, { ...fields, ...read }]);
  return current;
}

export const check = (label, frames) => call("check", [label, frames]);
export const modelFile = async () => new Blob([await call("file")], { type: "application/octet-stream" });

// Asks the browser not to clear what was learned when it needs room; it may refuse.
async function kept(job) {
  await navigator.storage.persist?.().catch(() => {});
  return job;
}

const canvas = new OffscreenCanvas(1, 1);

function frameOfPicture(picture, width, height) {
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d", contextOptions).drawImage(picture, 0, 0);
  return frameOf(canvas);
}

async function framesOfImages(files) {
  const frames = [];
  for (const file of files.slice(0, current.max_frames)) {
    const image = await createImageBitmap(file);
    frames.push(frameOfPicture(image, image.width, image.height));
    image.close();
  }
  return frames;
}

async function framesOfVideo(file) {
  const video = Object.assign(document.createElement("video"), { muted: true, src: URL.createObjectURL(file) });
  const happened = (name) => new Promise((resolve, reject) => Object.assign(video, { [`on${name}`]: resolve, onerror: () => reject(new Error(TEXTS.notPlayable)) }));
  await happened("loadeddata");
  const count = Math.min(Math.max(1, Math.floor((video.duration || 0) / VIDEO_STEP)), current.max_frames);
  const frames = [];
  for (let k = 0; k < count; k += 1) {
    const seeked = happened("seeked");
    video.currentTime = (k * video.duration) / count;
    await seeked;
    frames.push(frameOfPicture(video, video.videoWidth, video.videoHeight));
  }
  URL.revokeObjectURL(video.src);
  return frames;
}

export async function teachFiles(label, kind, file, again, onProgress) {
  const frames = await (kind === "video" ? framesOfVideo(file) : framesOfImages(file));
  return kept(await call("teach", [label, frames, again], { onProgress }));
}

export const contextOptions = { willReadFrequently: true }; // of a canvas that `frameOf` reads

// A frame is the square at the size of the network, as RGB, resized as Python does it.
export const frameSide = (side) => Math.max(1, Math.min(Math.round(side), MAX_SIDE));
export const frameOf = (picture) => centreSquare(picture.getContext("2d", contextOptions).getImageData(0, 0, picture.width, picture.height), current.size);

// One lesson. Features are computed while the button is held, so that only the learning is left at the end.
export class Lesson {
  constructor(label, onProgress) {
    this.onProgress = onProgress;
    this.waiting = 0;
    this.failure = null;
    this.id = call("lesson", [label]);
    this.id.catch((error) => (this.failure = error)); // end() reports it
  }

  add(frame) {
    if (this.failure || this.waiting >= IN_FLIGHT) return false;
    this.waiting += 1;
    this.id
      .then((id) => call("add", [id, frame], { transfer: [frame.buffer] }))
      .then(() => (this.waiting -= 1))
      .catch((error) => (this.failure = error));
    return true;
  }

  get open() {
    return Boolean(worker.worker);
  }

  async end() {
    const id = await this.id;
    if (this.failure) throw this.failure;
    return kept(await call("learn", [id, false], { onProgress: this.onProgress }));
  }

  cancel() {
    this.id.then((id) => call("cancel", [id])).catch(() => {});
  }
}

// The frames to recognise, and the commands of serve/socket_routes.py.
export class Connection {
  constructor(remember, { onOpen, onMessage, onClose }) {
    this.open = false;
    this.onMessage = onMessage;
    this.onClose = onClose;
    this.number = 0;
    connection = this;
    start().then(
      (opened) => {
        this.clips = new Clips({ seconds: remember, size: opened.size, nothing: opened.nothing, predict: (frames) => call("predict", [frames]) });
        this.open = true;
        onOpen();
      },
      () => onClose(false),
    );
  }

  lost() {
    if (!this.open) return;
    this.open = false;
    this.onClose(false);
  }

  async send(frame) {
    this.number += 1;
    try {
      const answer = await call("recognise", [frame]);
      this.clips.add(frame, answer.recent, answer.version);
      this.onMessage({ frame: this.number, ...answer });
      for (const notice of await this.clips.notices()) this.onMessage(notice);
    } catch (error) {
      if (this.open) this.onMessage({ frame: this.number, error: error.message });
    }
  }

  async command(message) {
    try {
      this.onMessage(await this.obeyed(message));
    } catch (error) {
      this.onMessage({ error: error.message });
    }
  }

  async obeyed({ clip, ask, drop, teach, label }) {
    if (clip) return this.clips.clip();
    if (drop) return this.clips.take(drop) && { dropped: drop };
    if (teach) return { lesson: await kept(await call("teach", [label, this.clips.take(teach), false])) };
    if (ask !== undefined) this.clips.asks = ask;
    return { ask: this.clips.asks };
  }
}
