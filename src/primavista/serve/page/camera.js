// The source of frames: the camera of this device, the camera of the service, a video file, or images.
// Other modules get the square in the guide; while objects are searched for, they get the whole picture.

import * as backend from "./backend.js";
import { Motion } from "./motion.js";
import { TEXTS } from "./texts.js";
import { $, isOff, isPressed, press, toast } from "./view.js";

const WHOLE_SIDE = 640; // pixels of the longer side of a whole picture
const LEAST_BOX = 0.08; // share of the shorter side; a smaller box counts as a click
const FOLLOW_INTERVAL = 100; // milliseconds
const SERVICE_INTERVAL = 100; // milliseconds between two requests for a frame of the service's camera
const LOST_INTERVAL = 1000; // milliseconds between two requests while that camera gives none
const TELLS_FRAMES = "requestVideoFrameCallback" in HTMLVideoElement.prototype;
const square = new OffscreenCanvas(1, 1);
const whole = new OffscreenCanvas(1, 1);
const motion = new Motion();
let chosen = null; // the square that the user chose, in pixels of the picture; null stands for the centre
let sources = 0; // sources so far
let shaped = -1; // the source whose shape the stage has
let again = useCamera; // the action of the main button of the cover
let images = [];
let current = 0;
let devices = [];
let device = 0;
let silent = false; // true while the camera gives no pictures
let presented = 0; // frames that the video has shown, counted if the browser tells of them
let serviceHasCamera = false;
let serviceFrame = new Uint8Array(); // the newest frame of the service's camera, encoded
let serviceFrames = 0; // different frames of that camera so far
export let kind = "none"; // camera (of this device), service (its camera), video or images
export let file = null;

const REASONS = {
  NotAllowedError: TEXTS.cameraDenied,
  NotFoundError: TEXTS.cameraMissing,
  NotReadableError: TEXTS.cameraBusy,
};

let onCover = () => {};
export const onReady = (listener) => (onCover = listener);

// Covers the picture with a text, or uncovers it. The main button has an action that can help, if there is one.
function cover(text, action = useCamera, name = TEXTS.tryAgain) {
  again = action;
  $("cover").hidden = !text;
  $("cover-text").textContent = text ?? "";
  $("cover-button").hidden = !action;
  $("cover-button").textContent = name;
  showSources();
  onCover();
}

// The identity of the source: each source has another one.
export const sourceId = () => sources;

// The identity of the frame that is shown: each new frame has another one. A still image counts as a new frame every time.
export function frameId() {
  const frame = { service: serviceFrames, images: performance.now() }[kind] ?? (TELLS_FRAMES ? presented : $("video").getVideoPlaybackQuality().totalVideoFrames);
  return `${sources}:${frame}`;
}

// The identity of what `captureFrame` would return: the frame and the square in it.
export const viewId = () => `${frameId()} ${chosen ? [chosen.x, chosen.y, chosen.side] : ""}`;

const teachWhole = () => $("whole").click();

function countFrames() {
  presented += 1;
  $("video").requestVideoFrameCallback(countFrames);
}

export async function useCamera() {
  stop();
  const mine = sources;
  if (!navigator.mediaDevices) {
    cover(TEXTS.cameraNeedsTls, null);
    return;
  }
  const wanted = devices.length ? { deviceId: { exact: devices[device % devices.length].deviceId } } : { facingMode: "environment" };
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: { ...wanted, width: { ideal: 640 }, height: { ideal: 480 } } });
    if (sources !== mine) return stream.getTracks().forEach((track) => track.stop()); // another source was chosen meanwhile
    $("video").srcObject = stream;
    await $("video").play();
    const track = stream.getVideoTracks()[0];
    track.onended = () => {
      stop(); // the video keeps its last frame, which would be recognised for ever
      cover(TEXTS.cameraGone);
    };
    track.onmute = () => hush(true);
    track.onunmute = () => hush(false);
    $("stage").classList.toggle("mirrored", track.getSettings().facingMode === "user");
    kind = "camera";
    cover();
    devices = (await navigator.mediaDevices.enumerateDevices()).filter((one) => one.kind === "videoinput");
    $("switch").hidden = devices.length < 2;
  } catch (error) {
    cover(REASONS[error.name] ?? TEXTS.cameraFailed(error.name));
  }
  shape();
}

// The camera gives no pictures for a while. The video keeps the last one, which must be neither recognised nor taught.
function hush(on) {
  silent = on;
  cover(on ? TEXTS.cameraSilent : undefined);
  shape();
}

export function switchCamera() {
  device += 1;
  useCamera();
}

// Shows the newest frame of the service's camera, again and again, until another source is chosen.
export async function useServiceCamera() {
  stop();
  kind = "service";
  showSources();
  const mine = sources;
  while (sources === mine) {
    const began = performance.now();
    const wait = document.hidden || (await showServiceFrame(() => sources === mine)) ? SERVICE_INTERVAL : LOST_INTERVAL;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, began + wait - performance.now())));
  }
}

// Returns false if the camera gives no frame; `wanted` tells if this camera is still the source.
async function showServiceFrame(wanted) {
  let reason = "";
  try {
    const coded = await backend.cameraFrame();
    const bytes = new Uint8Array(await coded.arrayBuffer());
    const image = images.length && isSame(bytes, serviceFrame) ? null : await createImageBitmap(coded);
    if (!wanted()) return true;
    if (image) showNew(image, bytes);
  } catch (error) {
    if (!wanted()) return true;
    images = [];
    $("picture").hidden = true;
    reason = error.message;
  }
  if ($("cover-text").textContent !== reason) cover(reason, useServiceCamera);
  shape();
  return !reason;
}

// A camera that is slower than our requests gives the same frame several times.
const isSame = (one, two) => one.length === two.length && one.every((byte, k) => byte === two[k]);

function showNew(image, bytes) {
  for (const old of images) old.close();
  images = [image];
  current = 0;
  serviceFrame = bytes;
  serviceFrames += 1;
  show();
}

// The buttons that lead to another source.
function showSources() {
  $("camera").hidden = kind === "camera" || (kind === "none" && (again === useCamera || !navigator.mediaDevices));
  $("service-camera").hidden = !serviceHasCamera || kind === "service";
  $("whole").hidden = (kind !== "video" && kind !== "images") || again === teachWhole;
}

export function setServiceCamera(name) {
  serviceHasCamera = Boolean(name);
  $("camera").textContent = serviceHasCamera ? TEXTS.thisCamera : TEXTS.backToCamera;
  showSources();
}

export async function useFiles(files) {
  const videos = files.filter((one) => one.type.startsWith("video/"));
  const pictures = files.filter((one) => one.type.startsWith("image/") || isHeic(one));
  if (!videos.length && !pictures.length) return toast(TEXTS.notMedia);
  stop();
  cover();
  const mine = sources;
  if (videos.length) {
    const video = $("video");
    video.src = URL.createObjectURL(videos[0]);
    video.loop = true;
    const plays = await video.play().then(() => true, () => false);
    if (sources !== mine) return; // another source was chosen meanwhile
    kind = "video";
    if (!plays) cover(TEXTS.notPlayable, backend.canDecode ? teachWhole : null, TEXTS.teachVideo);
    file = videos[0];
  } else {
    const opened = await Promise.allSettled(pictures.map((one) => createImageBitmap(one)));
    if (sources !== mine) return;
    images = opened.filter((one) => one.status === "fulfilled").map((one) => one.value);
    const left = pictures.filter((_, k) => opened[k].status === "rejected");
    current = 0;
    if (!images.length) return cover(pictures.every(isHeic) ? TEXTS.notHeic : TEXTS.notImages, null);
    if (left.length) toast(TEXTS.leftOut(left.map((one) => one.name)));
    kind = "images";
    file = pictures.filter((one) => !left.includes(one));
    show();
  }
  showSources();
  $("whole").textContent = kind === "video" ? TEXTS.teachVideo : TEXTS.teachImages(images.length);
  shape();
}

// Most browsers cannot open the images of an iPhone, and some do not even know their type.
const isHeic = (one) => /\.(hei[cf]|hif)$/i.test(one.name);

function show() {
  const picture = $("picture");
  const image = images[current];
  picture.width = image.width;
  picture.height = image.height;
  picture.getContext("2d").drawImage(image, 0, 0);
  picture.hidden = false;
  $("video").hidden = true;
}

setInterval(() => {
  if (kind !== "images" || images.length < 2) return;
  current = (current + 1) % images.length;
  show();
  shape();
}, 700);

function stop() {
  const video = $("video");
  for (const track of video.srcObject?.getTracks() ?? []) {
    track.onended = track.onmute = track.onunmute = null;
    track.stop();
  }
  if (video.src) URL.revokeObjectURL(video.src);
  video.srcObject = null;
  video.removeAttribute("src");
  video.hidden = false;
  $("picture").hidden = true;
  $("stage").classList.remove("mirrored");
  sources += 1; // answers about the source before are ignored
  chosen = null;
  silent = false;
  for (const image of images) image.close();
  images = [];
  file = null;
  kind = "none";
  showSources();
}

// The stage has the shape of the picture, so that the guide shows exactly the square that is sent.
function shape() {
  if ($("stage").dataset.ready !== `${ready()}` || shaped !== sources) {
    shaped = sources;
    $("stage").dataset.ready = ready();
    onCover();
  }
  if (!ready()) return;
  const [, width, height] = source();
  $("stage").style.setProperty("--ratio", `${width} / ${height}`);
  showGuide();
}
$("video").addEventListener("loadeddata", shape);
$("video").addEventListener("resize", shape);

function source() {
  if (images.length) return [images[current], images[current].width, images[current].height];
  const video = $("video");
  return [video, video.videoWidth, video.videoHeight];
}

export const ready = () => images.length > 0 || (kind !== "none" && !silent && $("video").readyState >= 2);

// The square that counts, in pixels of the picture.
function area() {
  const [, width, height] = source();
  const side = Math.min(width, height);
  return chosen ?? { x: (width - side) >> 1, y: (height - side) >> 1, side };
}

// Puts an element at a place, given as shares of the picture. On a mirrored stage the left side is on the right.
export function place(element, left, top, width, height) {
  const from = $("stage").classList.contains("mirrored") ? 1 - left - width : left;
  for (const [name, share] of Object.entries({ left: from, top, width, height })) element.style.setProperty(name, `${100 * share}%`);
}

function showGuide() {
  const [, width, height] = source();
  const { x, y, side } = area();
  place($("guide"), x / width, y / height, side / width, side / height);
  $("recentre").hidden = !chosen || isPressed($("follow"));
}

export function recentre() {
  chosen = null;
  press($("follow"), false);
  showGuide();
}

export function follow(on) {
  press($("follow"), on);
  if (on) motion.energy = null;
  else if (ready()) recentre();
}

setInterval(() => {
  if (!isPressed($("follow")) || !ready() || document.hidden) return;
  chosen = motion.follow(...source());
  showGuide();
}, FOLLOW_INTERVAL);

// Lets the user draw a box on the stage. From then on the square around that box counts.
function drawable() {
  const stage = $("stage");
  let from = null;
  const at = (event) => {
    const { left, top, width, height } = stage.getBoundingClientRect();
    const across = Math.min(Math.max((event.clientX - left) / width, 0), 1);
    return [stage.classList.contains("mirrored") ? 1 - across : across, Math.min(Math.max((event.clientY - top) / height, 0), 1)];
  };
  const draw = (event) => {
    if (!from || !ready()) return;
    const [, width, height] = source();
    const to = at(event);
    const size = [Math.abs(to[0] - from[0]) * width, Math.abs(to[1] - from[1]) * height];
    const short = Math.min(width, height);
    if (Math.max(...size) < LEAST_BOX * short) return;
    const side = Math.min(Math.max(...size), short);
    const middle = [((from[0] + to[0]) / 2) * width, ((from[1] + to[1]) / 2) * height];
    press($("follow"), false);
    chosen = { x: Math.min(Math.max(middle[0] - side / 2, 0), width - side), y: Math.min(Math.max(middle[1] - side / 2, 0), height - side), side };
    showGuide();
  };
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button") || !$("cover").hidden) return;
    from = at(event);
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", draw);
  for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) stage.addEventListener(name, () => (from = null));
}

export async function captureFrame() {
  const [picture] = source();
  const { x, y, side } = area();
  const sent = backend.frameSide(side);
  if (square.width !== sent) square.width = square.height = sent;
  const context = square.getContext("2d", backend.contextOptions);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, x, y, side, side, 0, 0, sent, sent);
  return backend.frameOf(square);
}

export async function captureWhole() {
  const [picture, width, height] = source();
  const scale = Math.min(1, WHOLE_SIDE / Math.max(width, height));
  whole.width = Math.round(scale * width);
  whole.height = Math.round(scale * height);
  const context = whole.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, whole.width, whole.height);
  return backend.frameOf(whole);
}

export function thumbnail(side) {
  const small = document.createElement("canvas");
  small.width = small.height = side;
  small.getContext("2d").drawImage(square, 0, 0, side, side);
  return small;
}

export function setUp() {
  if (TELLS_FRAMES) countFrames();
  drawable();
  $("follow").onclick = () => isOff($("follow")) || follow(!isPressed($("follow")));
  $("recentre").onclick = recentre;
  $("switch").onclick = switchCamera;
  $("camera").onclick = useCamera;
  $("service-camera").onclick = useServiceCamera;
  $("cover-button").onclick = () => again();
  $("open").onclick = $("cover-open").onclick = () => $("files").click();
  $("files").onchange = () => {
    useFiles([...$("files").files]);
    $("files").value = "";
  };
}
