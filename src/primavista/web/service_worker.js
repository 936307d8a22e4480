// Keeps the files of the page, so that it works without a network after the first visit. `primavista page` writes the two lists
// and the version above this line. The small files come at once, the large ones when the page first asks for them.

const PREFIX = `primavista ${registration.scope} `; // several pages may be on one host
const CACHE = PREFIX + VERSION;
const kept = new Set([...SMALL, ...LARGE].map((name) => new URL(name, registration.scope).href));

async function install() {
  const cache = await caches.open(CACHE);
  await cache.addAll(SMALL.map((name) => new Request(name, { cache: "no-cache" })));
}

async function activate() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith(PREFIX) && name !== CACHE).map((name) => caches.delete(name)));
  await clients.claim();
}

async function answer(event) {
  const cache = await caches.open(CACHE);
  const found = await cache.match(event.request, { ignoreSearch: true });
  if (found) return found;
  const response = await fetch(event.request);
  if (response.status === 200) event.waitUntil(cache.put(event.request, response.clone()));
  return response;
}

addEventListener("install", (event) => event.waitUntil(install()));
addEventListener("activate", (event) => event.waitUntil(activate()));
addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  const [address] = url.split(/[?#]/);
  if (method === "GET" && kept.has(address)) event.respondWith(answer(event));
});
