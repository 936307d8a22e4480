// Recognition: the next frame is sent when the last one is answered. If the service goes away, reconnect until it is back.

import { socket } from "./api.js";
import * as camera from "./camera.js";
import { model } from "./objects.js";

const MIN_INTERVAL = 1000 / 25; // milliseconds between two frames
const MAX_WAIT = 5000; // milliseconds between two attempts to connect
const IDLE = 1001; // the service closes a socket that is silent for long, which is not an error

export class Stream {
  constructor({ remember, onResult, onError, onNotice, onState }) {
    Object.assign(this, { remember, onResult, onError, onNotice, onState, paused: false, live: false, wait: 500, wishes: {} });
    this.connect();
  }

  connect() {
    this.socket = socket(`/api/stream?remember=${this.remember}`);
    this.socket.onopen = () => {
      this.wait = 500;
      this.live = true;
      this.subject = "";
      this.onState("live");
      for (const [name, on] of Object.entries(this.wishes)) if (on) this.command({ [name]: on });
      this.next();
    };
    this.socket.onmessage = ({ data }) => {
      const said = JSON.parse(data);
      if (said.frame === undefined) return this.onNotice(said);
      this.answered(said);
      setTimeout(() => this.next(), Math.max(0, this.sent + MIN_INTERVAL - performance.now()));
    };
    this.socket.onclose = ({ code }) => {
      this.live = false;
      if (code !== IDLE) this.onState("gone");
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(2 * this.wait, MAX_WAIT);
    };
  }

  answered(said) {
    if (said.error) this.subject = ""; // the frame has no answer yet
    const isAboutThisSource = this.source === camera.sourceId() && camera.ready();
    if (this.paused || !isAboutThisSource) return;
    if (said.error) this.onError(said.error);
    else this.onResult(said);
  }

  async next() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.paused || document.hidden || !camera.ready()) return void setTimeout(() => this.next(), 100);
    const { locate } = this.wishes;
    // the answer would be the same as long as none of these has changed
    const subject = `${camera.viewId()} ${Boolean(locate)} ${model.version}`;
    if (this.subject === subject) return void setTimeout(() => this.next(), 20);
    this.subject = subject;
    this.source = camera.sourceId();
    const frame = await (locate ? camera.captureWhole() : camera.captureFrame());
    this.sent = performance.now();
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(frame);
  }

  command(message) {
    if (this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  // A wish (`ask`, `locate`) holds for this page: it is sent again after a new connection, unless it is false.
  wish(name, on) {
    this.wishes[name] = on;
    this.command({ [name]: on });
  }
}
