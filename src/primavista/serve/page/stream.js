// Recognition: the next frame is sent when the last one is answered. If the service goes away, reconnect until it is back.

import { Connection } from "./backend.js";
import * as camera from "./camera.js";
import { model } from "./objects.js";
import { TEXTS } from "./texts.js";

const MIN_INTERVAL = 1000 / 25; // milliseconds between two frames
const MAX_AGE = 1000; // milliseconds from sending a frame to an answer that is shown
const MAX_WAIT = 5000; // milliseconds between two attempts to connect

export class Stream {
  constructor({ remember, onResult, onError, onNotice, onState }) {
    Object.assign(this, { remember, onResult, onError, onNotice, onState, paused: false, live: false, wait: 500, wishes: {} });
    this.connect();
  }

  connect() {
    this.connection = new Connection(this.remember, {
      onOpen: () => this.opened(),
      onMessage: (said) => this.receive(said),
      onClose: (wasIdle) => this.closed(wasIdle),
    });
  }

  opened() {
    this.wait = 500;
    this.live = true;
    this.subject = "";
    this.onState("live");
    for (const [name, on] of Object.entries(this.wishes)) if (on) this.command({ [name]: on });
    this.next();
  }

  receive(said) {
    if (said.frame === undefined) return this.onNotice(said);
    clearTimeout(this.late);
    if (!this.isLate()) this.answered(said);
    setTimeout(() => this.next(), Math.max(0, this.sent + MIN_INTERVAL - performance.now()));
  }

  closed(wasIdle) {
    this.live = false;
    if (!wasIdle) this.onState("gone");
    setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(2 * this.wait, MAX_WAIT);
  }

  answered(said) {
    if (said.error) this.subject = ""; // the frame has no answer yet
    const isAboutThisSource = this.source === camera.sourceId() && camera.ready();
    if (this.paused || !isAboutThisSource) return;
    if (said.error) this.onError(said.error);
    else this.onResult(said);
  }

  // Says instead of an answer that it takes too long, unless the picture is still the same.
  isLate() {
    const late = performance.now() - this.sent > MAX_AGE && this.view !== camera.viewId();
    if (late) this.answered({ error: TEXTS.late });
    return late;
  }

  async next() {
    if (!this.connection.open) return;
    if (this.paused || document.hidden || !camera.ready()) return void setTimeout(() => this.next(), 100);
    const { locate } = this.wishes;
    // the answer would be the same as long as none of these has changed
    const subject = `${camera.viewId()} ${Boolean(locate)} ${model.version}`;
    if (this.subject === subject) return void setTimeout(() => this.next(), 20);
    this.subject = subject;
    this.source = camera.sourceId();
    this.view = camera.viewId();
    const frame = await (locate ? camera.captureWhole() : camera.captureFrame());
    this.sent = performance.now();
    this.late = setTimeout(() => this.isLate(), MAX_AGE + 1);
    if (this.connection.open) this.connection.send(frame);
  }

  command(message) {
    if (!this.connection.open) return false;
    this.connection.command(message);
    return true;
  }

  // A wish (`ask`, `locate`) holds for this page: it is sent again after a new connection, unless it is false.
  wish(name, on) {
    this.wishes[name] = on;
    this.command({ [name]: on });
  }
}
