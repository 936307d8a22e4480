// The source of frames: a camera, a video file, or images. Only the centre square leaves this module.

import { $, toast } from "./view.js";

const MAX_SIDE = 480; // pixels of the square that is sent; the service resizes it to model size
const QUALITY = 0.9;
const square = new OffscreenCanvas(1, 1);
let images = [];
let current = 0;
let devices = [];
let device = 0;
export let kind = "none"; // camera, video, images
export let file = null;

const REASONS = {
  NotAllowedError: "This page may not use the camera.\nAllow it in the browser (the icon next to the address), then try again. Or open a video or images.",
  NotFoundError: "No camera was found.\nConnect one and try again, or open a video or images.",
  NotReadableError: "The camera is in use by another program.\nClose that program, then try again.",
};

function cover(text) {
  $("cover").hidden = !text;
  $("cover-text").textContent = text ?? "";
}

export async function useCamera() {
  stop();
  if (!navigator.mediaDevices) {
    cover("Browsers allow the camera only on https pages and on localhost.\nOpen this page on the machine itself, or start the service with --tls. Videos and images work without a camera.");
    return;
  }
  const wanted = devices.length ? { deviceId: { exact: devices[device % devices.length].deviceId } } : { facingMode: "environment" };
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: { ...wanted, width: { ideal: 640 }, height: { ideal: 480 } } });
    $("video").srcObject = stream;
    await $("video").play();
    const track = stream.getVideoTracks()[0];
    track.onended = () => cover("The camera was disconnected.");
    $("stage").classList.toggle("mirrored", track.getSettings().facingMode === "user");
    kind = "camera";
    cover();
    devices = (await navigator.mediaDevices.enumerateDevices()).filter((one) => one.kind === "videoinput");
    $("switch").hidden = devices.length < 2;
  } catch (error) {
    cover(REASONS[error.name] ?? `The camera could not be started (${error.name}).\nTry again, or open a video or images.`);
  }
  shape();
}

export function switchCamera() {
  device += 1;
  useCamera();
}

export async function useFiles(files) {
  const videos = files.filter((one) => one.type.startsWith("video/"));
  const pictures = files.filter((one) => one.type.startsWith("image/"));
  if (!videos.length && !pictures.length) return toast("That is neither a video nor an image.");
  stop();
  cover();
  if (videos.length) {
    const video = $("video");
    video.src = URL.createObjectURL(videos[0]);
    video.loop = true;
    try {
      await video.play();
    } catch {
      cover("This browser cannot play that video.\n“Teach all of it” may still work: the service decodes it itself.");
    }
    kind = "video";
    file = videos[0];
  } else {
    const opened = await Promise.allSettled(pictures.map((one) => createImageBitmap(one)));
    images = opened.filter((one) => one.status === "fulfilled").map((one) => one.value);
    if (!images.length) return cover("None of these images can be opened.");
    kind = "images";
    file = pictures;
    current = 0;
    show();
  }
  $("camera").hidden = $("whole").hidden = false;
  $("whole").textContent = kind === "video" ? "Teach the whole video" : `Teach ${images.length === 1 ? "this image" : `all ${images.length} images`}`;
  shape();
}

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
    track.onended = null;
    track.stop();
  }
  if (video.src) URL.revokeObjectURL(video.src);
  video.srcObject = null;
  video.removeAttribute("src");
  video.hidden = false;
  $("picture").hidden = $("camera").hidden = $("whole").hidden = true;
  $("stage").classList.remove("mirrored");
  $("verdict").dataset.state = "none"; // it was about another picture
  for (const image of images) image.close();
  images = [];
  file = null;
  kind = "none";
}

// The stage has the shape of the picture, so that the guide shows exactly the square that is sent.
function shape() {
  $("stage").dataset.ready = ready();
  if (!ready()) return;
  const [, width, height] = source();
  $("stage").style.setProperty("--ratio", `${width} / ${height}`);
  $("stage").style.setProperty("--narrow", width / height);
  $("stage").classList.toggle("tall", height > width);
}
$("video").addEventListener("loadeddata", shape);
$("video").addEventListener("resize", shape);

function source() {
  if (kind === "images") return [images[current], images[current].width, images[current].height];
  const video = $("video");
  return [video, video.videoWidth, video.videoHeight];
}

export const ready = () => kind === "images" || (kind !== "none" && $("video").readyState >= 2);

export async function captureFrame() {
  const [picture, width, height] = source();
  const side = Math.min(width, height);
  const sent = Math.min(side, MAX_SIDE);
  if (square.width !== sent) square.width = square.height = sent;
  const context = square.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, (width - side) >> 1, (height - side) >> 1, side, side, 0, 0, sent, sent);
  return square.convertToBlob({ type: "image/jpeg", quality: QUALITY });
}

export function thumbnail(side) {
  const small = document.createElement("canvas");
  small.width = small.height = side;
  small.getContext("2d").drawImage(square, 0, 0, side, side);
  return small;
}
