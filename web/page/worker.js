// Calls of the worker, in which the learner is.

export class LearnerWorker {
  // `onGone` is called if the worker has failed; its calls are refused then.
  constructor(script, onGone) {
    this.calls = new Map();
    this.next = 0;
    this.onGone = onGone;
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    this.worker = new Worker(url); // of a blob: it has the content security policy of this page
    URL.revokeObjectURL(url);
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => this.end(event.message);
  }

  call(name, args, { transfer = [], onProgress = () => {} } = {}) {
    if (!this.worker) return Promise.reject(new Error("the learner has stopped"));
    this.next += 1;
    this.worker.postMessage({ id: this.next, call: name, args }, transfer);
    return new Promise((resolve, reject) => this.calls.set(this.next, { resolve, reject, onProgress }));
  }

  receive({ id, result, error, status, progress }) {
    const waiting = this.calls.get(id);
    if (!waiting) return;
    if (progress) return waiting.onProgress(progress);
    this.calls.delete(id);
    if (error === undefined) waiting.resolve(result);
    else waiting.reject(Object.assign(new Error(error), { status }));
  }

  end(reason = "the learner has stopped") {
    if (!this.worker) return;
    this.worker.terminate();
    this.worker = null;
    for (const { reject } of this.calls.values()) reject(new Error(reason));
    this.calls.clear();
    this.onGone();
  }
}
