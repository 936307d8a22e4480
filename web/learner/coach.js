// The coach: how held-out lessons were answered, and what to teach next. The rules are those of Python's learner/coach.py.
//
// A test is how one lesson of one object was answered before it was learned: [{ id, frames, known }, ...] by ascending id of the
// answers. `tests` is a Map from the class id of an object to its last tests, oldest first.

export const NOTHING = "nothing"; // the name of lessons that show the background
const TEST_FRAMES = 10; // of each object of a lesson, evenly spaced
const TESTS = 3; // of each object, the last ones
const ENOUGH = 0.8; // the share of held-out frames that must be right
const CONFUSED = 0.2; // the share of held-out frames of two objects that were taken for the other one
const SEEN_AS_KNOWN = 0.5; // the share of held-out frames that must be known
const ORDER = ["second object", "confused", "another side", "another place", "once more", "good enough"];

// The positions of the frames of a lesson that are predicted before it is learned. The object must be known, and another one.
export function framesToTest(count, isKnown, knownObjects) {
  if (!isKnown || knownObjects < 2) return [];
  const tested = Math.min(TEST_FRAMES, count);
  return Array.from({ length: tested }, (_, k) => Math.floor(((2 * k + 1) * count) / (2 * tested)));
}

// The test of a lesson: `answers` and `known` of each held-out frame.
export function countAnswers(answers, known) {
  const counts = new Map();
  answers.forEach((id, k) => {
    const one = counts.get(id) ?? { id, frames: 0, known: 0 };
    counts.set(id, { id, frames: one.frames + 1, known: one.known + Number(known[k]) });
  });
  return sorted([...counts.values()]);
}

const sorted = (test) => test.sort((one, two) => one.id - two.id);

// Appends tests to the earlier ones of each object; the last three of each are kept.
export function withTests(before, added) {
  const ids = [...new Set([...before.keys(), ...added.keys()])].sort((one, two) => one - two);
  return new Map(ids.map((id) => [id, [...(before.get(id) ?? []), ...(added.get(id) ?? [])].slice(-TESTS)]));
}

// Gives other class ids to all objects, and leaves out those that have none.
export function withIds(tests, ids) {
  const kept = new Map();
  for (const [id, ofObject] of tests) {
    const own = ofObject.map((test) => sorted(test.filter((one) => ids.has(one.id)).map((one) => ({ ...one, id: ids.get(one.id) }))));
    if (ids.has(id) && own.some((test) => test.length)) kept.set(ids.get(id), own.filter((test) => test.length));
  }
  return new Map([...kept].sort(([one], [two]) => one - two));
}

// The tests that a manifest holds. Answers that name another id are left out: that object may have been forgotten.
export function fromRecords(records) {
  return withTests(new Map(), withIds(records, new Map([...records.keys()].map((id) => [id, id]))));
}

// One advice per confused pair and per other object, urgent ones first. `names` is a Map from class ids to names.
export function advise(tests, names) {
  const told = [...names.keys()].map((id) => counted(id, tests.get(id) ?? []));
  if (names.size === 1) return [advice("second object", told, names)];
  const pairs = told.flatMap((one, k) => told.slice(k + 1).map((two) => [one, two])).filter((pair) => confusion(...pair) >= CONFUSED);
  pairs.sort((one, two) => confusion(...two) - confusion(...one));
  const inPairs = new Set(pairs.flat().map((one) => one.id));
  const found = pairs.map((pair) => advice("confused", pair, names));
  for (const one of told) if (!inPairs.has(one.id)) found.push(advice(kind(one), [one], names));
  return found.sort((one, two) => ORDER.indexOf(one.kind) - ORDER.indexOf(two.kind));
}

// The sums over all tests of one object: frames by answer, and how many were known.
function counted(id, tests) {
  const answers = new Map();
  let [frames, known] = [0, 0];
  for (const one of tests.flat()) {
    answers.set(one.id, (answers.get(one.id) ?? 0) + one.frames);
    frames += one.frames;
    known += one.known;
  }
  return { id, lessons: tests.length, answers, frames, known, right: answers.get(id) ?? 0 };
}

function confusion(a, b) {
  const frames = a.frames + b.frames;
  return frames ? ((a.answers.get(b.id) ?? 0) + (b.answers.get(a.id) ?? 0)) / frames : 0;
}

function kind({ frames, right, known }) {
  if (!frames) return "once more";
  if (right < ENOUGH * frames) return "another side";
  return known < SEEN_AS_KNOWN * frames ? "another place" : "good enough";
}

function advice(kind, about, names) {
  const total = (name) => about.reduce((sum, one) => sum + one[name], 0);
  const labels = about.map((one) => names.get(one.id));
  const [frames, right, known] = ["frames", "right", "known"].map(total);
  const takenFor = new Map();
  for (const one of about) {
    for (const [id, count] of one.answers) {
      if (id !== one.id) takenFor.set(names.get(id), (takenFor.get(names.get(id)) ?? 0) + count);
    }
  }
  const told = `${right} of ${frames} new frames`;
  const said = labels.map((label) => (label === NOTHING ? "the empty background" : label));
  const [first, last] = [said[0], said.at(-1)];
  const texts = {
    "second object": `teach a second object: with ${first} alone every answer is right`,
    confused: `${first} and ${last} are confused: show both once more`,
    "another side": `show ${first} from another side: only ${told} were recognised`,
    "another place": `show ${first} in another place: it is often called unknown`,
    "once more": `show ${first} once more, somewhere else`,
    "good enough": `${first} is good enough: ${told} were recognised`,
  };
  const most = [...takenFor].sort(([, one], [, two]) => two - one);
  return { labels, kind, text: texts[kind], lessons: total("lessons"), frames, right, known, taken_for: Object.fromEntries(most) };
}
