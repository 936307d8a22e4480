// Recognition: the next frame is sent when the last one is answered. If the service goes away, reconnect until it is back.

import { socket } from "./api.js";
import * as camera from "./camera.js";

const MIN_INTERVAL = 1000 / 25; // milliseconds between two frames
const MAX_WAIT = 5000; // milliseconds between two attempts to connect
const IDLE = 1001; // the service closes a socket that is silent for long, which is not an error

export class Stream {
  constructor({ remember, onResult, onNotice, onState }) {
    Object.assign(this, { remember, onResult, onNotice, onState, paused: false, live: false, wait: 500, wishes: {} });
    this.connect();
  }

  connect() {
    this.socket = socket(`/api/stream?remember=${this.remember}`);
    this.socket.onopen = () => {
      this.wait = 500;
      this.live = true;
      this.onState("live");
      for (const [name, on] of Object.entries(this.wishes)) if (on) this.command({ [name]: true });
      this.next();
    };
    this.socket.onmessage = ({ data }) => {
      const said = JSON.parse(data);
      if (said.frame === undefined) return this.onNotice(said);
      if (said.error && this.wishes.locate) this.onNotice({ unlocated: said.error });
      // what was sent before the picture changed is not about this picture
      if (!this.paused && !said.error && this.source === camera.number() && camera.ready()) this.onResult(said);
      setTimeout(() => this.next(), Math.max(0, this.sent + MIN_INTERVAL - performance.now()));
    };
    this.socket.onclose = ({ code }) => {
      this.live = false;
      if (code !== IDLE) this.onState("gone");
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(2 * this.wait, MAX_WAIT);
    };
  }

  async next() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.paused || document.hidden || !camera.ready()) return void setTimeout(() => this.next(), 100);
    if (this.seen === camera.frame()) return void setTimeout(() => this.next(), 20);
    this.seen = camera.frame();
    this.source = camera.number();
    this.whole = Boolean(this.wishes.locate);
    const frame = await (this.whole ? camera.captureWhole() : camera.captureFrame());
    this.sent = performance.now();
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(frame);
  }

  command(message) {
    if (this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  // A wish (`ask`, `locate`) holds for this page: it is said again after a new connection.
  wish(name, on) {
    this.wishes[name] = on;
    this.command({ [name]: on });
  }
}
