// One lesson over a WebSocket of its own. Frames are sent while the button is held, so that only the learning is left at the end.

import { socket } from "./api.js";
import { TEXTS } from "./texts.js";

const IN_FLIGHT = 8; // frames that the service may not have confirmed yet; with more it is busy, and frames are left out

export class Lesson {
  constructor(label, onProgress) {
    this.sent = this.confirmed = 0;
    this.onProgress = onProgress;
    this.socket = socket("/api/teach");
    this.opened = new Promise((resolve) => (this.socket.onopen = resolve));
    this.opened.then(() => this.socket.send(JSON.stringify({ label })));
    this.done = new Promise((resolve, reject) => {
      this.socket.onmessage = ({ data }) => this.receive(JSON.parse(data), resolve, reject);
      this.socket.onclose = () => reject(new Error(TEXTS.connectionLost));
    });
    this.done.catch(() => {}); // end() reports the error
  }

  receive(message, resolve, reject) {
    if (message.error) reject(new Error(message.error));
    else if (message.lesson?.state === "done") resolve(message.lesson);
    else if (message.lesson?.state === "failed") reject(new Error(message.lesson.error));
    else if (message.lesson) this.onProgress(message.lesson);
    else this.confirmed = message.frames;
  }

  add(frame) {
    if (this.socket.readyState !== WebSocket.OPEN || this.sent - this.confirmed >= IN_FLIGHT) return false;
    this.socket.send(frame);
    this.sent += 1;
    return true;
  }

  get open() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  end() {
    this.socket.send(JSON.stringify({ end: true }));
    return this.done;
  }

  cancel() {
    this.socket.onclose = null;
    this.socket.close();
  }
}
