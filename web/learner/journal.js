// The last lessons and changes, kept so that one lesson can be taken out of the middle: Python's serve/journal.py. A lesson is here
// as the features that it was learned from, in memory only.

import { Refusal } from "./errors.js";

const MOST_ENTRIES = 12;
const MOST_BYTES = 64 * 2 ** 20;

// An entry is { label, features, lesson, id } for a lesson, { label, renamed } for a renaming, and { label } for a forgetting.
export class Journal {
  constructor(base, entries = []) {
    Object.assign(this, { base, entries });
  }

  get bytes() {
    return this.entries.reduce((total, { features }) => total + bytesOf(features), 0);
  }

  // The lessons that can be removed, under the present names of their objects.
  lessons() {
    let found = [];
    for (const entry of this.entries) {
      const { label, renamed } = entry;
      if (entry.features) found.push(entry);
      else if (renamed === undefined) found = found.filter((one) => one.label !== label);
      else found = found.map((one) => (one.label === label ? { ...one, label: renamed } : one));
    }
    return found;
  }

  // The same with room for one more entry: the oldest are made, and move into the base.
  withRoom(entry) {
    let { base, entries } = this;
    while (entries.length >= MOST_ENTRIES || (entries.length && new Journal(base, entries).bytes + bytesOf(entry.features) > MOST_BYTES)) {
      base = base.copy();
      make(base, entries[0]);
      base = base.withoutUndo();
      entries = entries.slice(1);
    }
    return new Journal(base, entries);
  }

  followedBy(entry) {
    return new Journal(this.base, [...this.entries, entry]);
  }

  without(id) {
    if (!this.lessons().some((one) => one.id === id)) {
      throw new Refusal("this lesson can no longer be removed by itself: forget the object, and teach it again");
    }
    return new Journal(this.base, this.entries.filter((one) => one.id !== id));
  }

  // The base after all lessons and changes, with nothing to undo.
  replayed(threshold) {
    const learner = this.base.copy();
    learner.threshold = threshold;
    for (const entry of this.entries) make(learner, entry);
    return learner.withoutUndo();
  }
}

const bytesOf = (features = []) => features.reduce((total, z) => total + z.byteLength, 0);

// Makes a change again; it is left out if the only lesson of its object was removed.
function make(learner, { label, renamed, features, lesson }) {
  if (features) learner.learn(features, label, lesson);
  else if (learner.labels.includes(label)) renamed === undefined ? learner.forget(label) : learner.rename(label, renamed);
}
