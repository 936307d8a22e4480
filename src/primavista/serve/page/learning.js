// The name of the object that is being learned. The verdict shows it at once, not only when the next frame is answered.

export let learning = ""; // empty while nothing is learned
let onLearning = () => {};

export const whenLearning = (listener) => (onLearning = listener);

export function setLearning(name) {
  learning = name;
  onLearning();
}
