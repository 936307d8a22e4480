// Puts the parts together: the camera, the predictions, the list of objects, and what to do if something is missing.

import { setToken } from "./api.js";
import * as camera from "./camera.js";
import * as objects from "./objects.js";
import { Stream } from "./stream.js";
import * as teach from "./teach.js";
import { $, announce, banner, dialog, sureness } from "./view.js";

const NOTHING = "nothing";
let refreshing = false;

async function onResult(result) {
  if (result.version !== objects.model.version && !refreshing) {
    refreshing = true; // taught by this page or by another client
    await objects.refresh().catch(() => {});
    refreshing = false;
  }
  const recent = result.recent ?? result; // what the last second shows; a service of an older version does not say
  objects.bars(recent);
  const { verdict, name, share } = describe(recent);
  $("verdict").dataset.state = verdict;
  $("verdict-name").textContent = name;
  $("verdict-share").textContent = share;
  announce(name);
}

function describe(result) {
  if (teach.learning) return { verdict: "unknown", name: `Learning ${teach.learning}`, share: "" };
  const taught = result.scores.filter((one) => one.label !== NOTHING);
  if (!taught.length) return { verdict: "none", name: "", share: "" };
  const near = result.label !== NOTHING && (result.familiarity ?? 1) >= 0.5; // nearer than most strangers
  if (!result.known) return { verdict: "unknown", name: "Unknown", share: near ? `most like ${result.label}` : "" };
  return { verdict: "known", name: result.label, share: sureness(result) };
}

function onState(state) {
  $("link").dataset.state = state;
  $("link-text").textContent = state === "live" ? "Live" : "Not connected";
  banner(state === "gone" ? "The service is not answering. Trying again; nothing that was learned is lost." : "");
  if (state === "live") objects.refresh().catch(() => {});
  else $("verdict").dataset.state = "none";
}

async function enter() {
  try {
    await objects.refresh();
  } catch (error) {
    if (error.status !== 401) return;
    const token = await dialog("This service requires a token", "It was printed in the terminal when the service was started.", "", "Enter");
    if (token) setToken(token.trim());
    await enter();
  }
}

function acceptDrops() {
  let depth = 0;
  const over = (by) => ($("drop").hidden = (depth += by) <= 0);
  addEventListener("dragenter", () => over(1));
  addEventListener("dragleave", () => over(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    over(-depth);
    camera.useFiles([...event.dataTransfer.files]);
  });
}

async function start() {
  $("where").textContent = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname) ? "this machine" : location.hostname;
  objects.setUp();
  acceptDrops();
  $("open").onclick = () => $("files").click();
  $("files").onchange = () => {
    camera.useFiles([...$("files").files]);
    $("files").value = "";
  };
  $("camera").onclick = $("cover-button").onclick = () => camera.useCamera();
  $("switch").onclick = () => camera.switchCamera();
  await enter();
  teach.setUp(new Stream({ onResult, onState }));
  await camera.useCamera();
}

start();
