// The learner behind the page: here the service, over HTTP and WebSockets. The page without a server has a module with the same
// exports, which asks a worker (web/page/backend.js).

import { ask, form, setToken, socket } from "./api.js";
import { TEXTS } from "./texts.js";
import { dialog } from "./view.js";

export { Lesson } from "./lesson.js";

const MAX_SIDE = 480; // pixels of the square that is sent; the service resizes it to model size
const QUALITY = 0.9;
const IDLE = 1001; // the service closes a socket that is silent for long, which is not an error
const PATHS = { load: "/api/model/file" }; // of changes whose path is not their name
const LOCAL = ["localhost", "127.0.0.1", "[::1]"];

export const canMerge = false;
export const canDecode = true; // videos that the browser cannot play
export const place = () => (LOCAL.includes(location.hostname) ? TEXTS.thisMachine : location.hostname);

// Asks for the token if the service requires one; `refresh` fetches the model.
export async function enter(refresh, text = TEXTS.tokenText) {
  try {
    await refresh();
  } catch (error) {
    if (error.status !== 401) return;
    const token = await dialog(TEXTS.tokenTitle, text, "", TEXTS.enter);
    if (token) setToken(token.trim());
    await enter(refresh, token ? TEXTS.tokenWrong : TEXTS.tokenText);
  }
}

export const model = () => ask("/api/model");

// Makes a change (rename, forget, remove, threshold, undo, load) and resolves to the new state of the model.
export function change(kind, fields) {
  const body = kind === "load" ? { body: form(fields) } : { json: fields };
  return ask(PATHS[kind] ?? `/api/${kind}`, { method: "POST", ...body });
}

export const check = (label, frames) => ask("/api/check", { body: form({ label, frames }) });

// Teaches a video or images, which the service decodes itself.
export async function teachFiles(label, kind, file, again, onProgress) {
  const fields = kind === "video" ? { video: file } : { frames: file };
  let job = await ask(`/api/lessons?again=${again}`, { body: form({ label, ...fields }) });
  while (job.state === "queued" || job.state === "running") {
    onProgress(job);
    job = await ask(`/api/lessons/${job.id}?wait=0.3`);
  }
  if (job.state === "failed") throw new Error(job.error);
  return job;
}

export const modelFile = () => ask("/api/model/file", { blob: true });
export const exported = (format) => ask(`/api/export?format=${format}`, { blob: true });
export const cameraFrame = () => ask("/api/camera/frame", { blob: true });

// The stream does not say why it refused a frame. `/api/locate` does: with 409 if this model cannot find objects.
export const refusesToLocate = (frame) => ask("/api/locate", { body: form({ frame }) }).then(() => false, (error) => error.status === 409);

export const contextOptions = {}; // of a canvas that `frameOf` reads

// The side to which the square of a picture is resized before `frameOf` makes a frame of it.
export const frameSide = (side) => Math.max(1, Math.min(Math.round(side), MAX_SIDE));
export const frameOf = (canvas) => canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });

// A stream of frames to recognise, and of commands. `onClose` is told if it was only silent for long.
export class Connection {
  constructor(remember, { onOpen, onMessage, onClose }) {
    this.socket = socket(`/api/stream?remember=${remember}`);
    this.socket.onopen = onOpen;
    this.socket.onmessage = ({ data }) => onMessage(JSON.parse(data));
    this.socket.onclose = ({ code }) => onClose(code === IDLE);
  }

  get open() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  send(frame) {
    this.socket.send(frame);
  }

  command(message) {
    this.socket.send(JSON.stringify(message));
  }
}
