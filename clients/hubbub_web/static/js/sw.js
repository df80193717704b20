// The service worker: a page that helps while the bridge cannot be reached, and pushes. It keeps files of the page alone,
// never what is asked, answered, or who is logged in.

const CACHE = "hubbub-shell-1";
const OFFLINE = "/static/offline.html";
const SHELL = [OFFLINE, "/static/style.css", "/static/icon.svg"];
const PLACE = /^(?:inbox|request\/[\w-]{1,64})$/;

self.addEventListener("install", (event) => {
  const fresh = SHELL.map((path) => new Request(path, { cache: "reload", credentials: "omit" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(fresh)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(caches.keys()
    .then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))))
    .then(() => self.clients.claim()));
});

// The bridge comes first, always; what is kept is only for when it does not answer.
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  const kept = request.mode === "navigate" ? OFFLINE : SHELL.find((path) => path === url.pathname);
  if (kept) event.respondWith(fetch(request).catch(async () => (await caches.match(kept)) ?? Response.error()));
});

self.addEventListener("push", (event) => {
  const { id, title, body, to } = readPush(event.data);
  event.waitUntil(self.registration.showNotification(title, { body, tag: id, icon: "/static/icon-192.png", data: { to } }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openPage(event.notification.data?.to));
});

/** Return what a push is about; a push must show something, even one that cannot be read. */
function readPush(data) {
  try {
    const { id, title, body, to } = data.json();
    return { id: String(id), title: String(title), body: String(body), to: PLACE.test(to) ? to : "inbox" };
  } catch {
    return { id: "hubbub", title: "Hubbub", body: "Something waits for an answer.", to: "inbox" };
  }
}

/** Show a place of the page, in a window that is open already if there is one. */
async function openPage(to) {
  const open = await self.clients.matchAll({ type: "window" });
  if (!open.length) return self.clients.openWindow(`/#/${to}`);
  const client = open.find((each) => each.focused) ?? open[0];
  client.postMessage({ to });
  return client.focus();
}
