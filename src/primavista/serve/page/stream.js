// Recognition: the next frame is sent when the last one is answered. If the service goes away, reconnect until it is back.

import { socket } from "./api.js";
import * as camera from "./camera.js";

const MIN_INTERVAL = 1000 / 25; // milliseconds between two frames
const MAX_WAIT = 5000; // milliseconds between two attempts to connect
const IDLE = 1001; // the service closes a socket that is silent for long, which is not an error

export class Stream {
  constructor({ onResult, onState }) {
    Object.assign(this, { onResult, onState, paused: false, wait: 500 });
    this.connect();
  }

  connect() {
    this.socket = socket("/api/stream");
    this.socket.onopen = () => {
      this.wait = 500;
      this.onState("live");
      this.next();
    };
    this.socket.onmessage = ({ data }) => {
      const result = JSON.parse(data);
      if (!this.paused && !result.error) this.onResult(result);
      setTimeout(() => this.next(), Math.max(0, this.sent + MIN_INTERVAL - performance.now()));
    };
    this.socket.onclose = ({ code }) => {
      if (code !== IDLE) this.onState("gone");
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(2 * this.wait, MAX_WAIT);
    };
  }

  async next() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.paused || document.hidden || !camera.ready()) return void setTimeout(() => this.next(), 100);
    const frame = await camera.captureFrame();
    this.sent = performance.now();
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(frame);
  }
}
