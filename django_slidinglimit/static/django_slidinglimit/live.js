// The usage pages refresh themselves: fetch the live part, show it, then set the next timer.
// A hidden tab stops, and so does one that nobody has touched for long, so that sessions can end;
// errors slow it down and mark the page as old; a refusal ends it.

const page = document.querySelector("[data-sl-live]");
const part = (name) => page.querySelector(`[data-sl-${name}]`);
const fragment = part("fragment");
const words = page.dataset;
const INTERVAL = Number(words.seconds) * 1000;
const LONGEST = 60_000;
const MOST_KEPT = 300; // rows that stay where they are
const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];

let state = "live"; // or: old, paused, idle, stopped
let wait = INTERVAL;
let timer;
let loading = false;
let etag = "";
let updated = performance.now();
let touched = performance.now();
let ahead = Number(words.time) - performance.now(); // Redis's clock, by which all times are told

const running = () => state === "live" || state === "old";

function become(next, spoken = "") {
  if (state === next) return;
  state = next;
  page.dataset.slState = next;
  part("mode").textContent = part("mode").dataset[next];
  part("status").textContent = spoken; // speaks of changes alone, not of every refresh
  const button = part("pause");
  button.textContent = button.dataset[running() ? "pause" : next === "idle" ? "goOn" : "resume"];
  button.hidden = next === "stopped";
  page.dispatchEvent(new CustomEvent("sl:state", { detail: next }));
}

// Not under somebody's hands: a selection, an open question or menu, a button going down.
function resting() {
  const selection = document.getSelection();
  return (
    document.querySelector("dialog[open], :popover-open") ||
    fragment.querySelector("button:active, a:active, details[data-sl-menu][open], select:focus") ||
    (selection && !selection.isCollapsed && fragment.contains(selection.anchorNode))
  );
}

function schedule() {
  clearTimeout(timer);
  if (running()) timer = setTimeout(refresh, wait);
}

async function refresh() {
  clearTimeout(timer);
  if (loading || document.hidden || !running()) return;
  if (performance.now() - touched > Number(words.idle) * 1000) return become("idle", words.idled);
  if (resting()) return schedule();
  loading = true;
  const began = performance.now();
  try {
    const response = await load();
    if (response.type === "opaqueredirect" || response.status === 401 || response.status === 403) {
      return become("stopped", words.stopped);
    }
    const time = Number(response.headers.get("X-Redis-Time"));
    // Another page in its place, such as that of a proxy, is no part of this one.
    if ((!response.ok && response.status !== 304) || !time) throw new Error(response.status);
    const text = await response.text();
    if (!running()) return;
    words.ahead = ahead = time - performance.now();
    if (response.status !== 304) etag = show(text) ? "" : response.headers.get("ETag");
    updated = performance.now();
    const ping = /redis;dur=([\d.]+)/.exec(response.headers.get("Server-Timing"));
    words.ping = ping ? ping[1] : "";
    tell();
    // A page of many clients takes a tenth of the server's time, at most.
    wait = Math.max(INTERVAL, 10 * (performance.now() - began));
    if (state === "old") become("live", words.resumed);
  } catch {
    if (!running()) return;
    wait = Math.min(wait * 2, LONGEST);
    become("old", words.old);
  } finally {
    loading = false;
    schedule();
  }
}

function load() {
  const url = new URL(location.href);
  url.searchParams.set("fragment", "1");
  return fetch(url, {
    redirect: "manual",
    headers: etag ? { "If-None-Match": etag } : {},
    signal: AbortSignal.timeout(10_000),
  });
}

// Returns whether something stands other than it came.
function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html").body;
  const focused = fragment.contains(document.activeElement) ? document.activeElement.id : "";
  const kept = keepPlaces(fresh);
  morph(fragment, fresh, false);
  const element = focused && document.getElementById(focused);
  if (element && element !== document.activeElement) element.focus({ preventScroll: true });
  page.dispatchEvent(new CustomEvent("sl:shown"));
  return kept;
}

// Rows do not jump under the pointer or the focus: those of such a table stay where they are, also
// those that are gone by now; new ones come last.
function keepPlaces(fresh) {
  let kept = false;
  for (const body of fresh.querySelectorAll("tbody")) {
    const rows = new Map([...body.children].map((row) => [row.id, row]));
    const known = [...rows.keys()].map((id) => id && document.getElementById(id)).find(Boolean);
    const old = known?.parentElement;
    const touched = old && (old.matches(":hover") || old.contains(document.activeElement));
    if (!touched || old.children.length > MOST_KEPT) continue;
    const before = [...old.children].map((row) => {
      const now = rows.get(row.id) ?? row.cloneNode(true);
      now.classList.toggle("sl-past", !rows.delete(row.id));
      return now;
    });
    body.replaceChildren(...before, ...rows.values());
    kept = true;
  }
  return kept;
}

// Makes an element what another one is and touches only what differs, so that focus, scrolling and
// what a person has unfolded or typed stay. Elements with an id are known by it wherever they stand.
function morph(old, fresh, itself = true) {
  if (itself) {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }
  const known = new Map([...old.children].filter(({ id }) => id).map((child) => [child.id, child]));
  let next = old.firstChild;
  const leave = () => {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  };
  for (const child of [...fresh.childNodes]) {
    // Blanks are not always in both: a parser drops those at the beginning.
    while (child.nodeType === Node.ELEMENT_NODE && next?.data?.trim() === "") leave();
    const same = child.id ? known.get(child.id) : next?.id ? null : next;
    if (same?.nodeName !== child.nodeName) {
      old.insertBefore(child, next);
      continue;
    }
    if (same === next) next = next.nextSibling;
    else old.insertBefore(same, next);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, child);
    else if (same.data !== child.data) same.data = child.data;
  }
  while (next) leave();
}

// In its two greatest units, rounded up: as admin/rows.py has it.
function duration(milliseconds) {
  let left = Math.ceil(milliseconds / 1000);
  const parts = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || (unit === "s" && !parts.length)) parts.push(`${count} ${unit}`);
    if (parts.length === 2 || (parts.length && !left)) break;
  }
  return parts.join(" ");
}

function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

// What passes by itself: the server sends times, and none of what changes with each look.
function tell() {
  const seconds = Math.floor((performance.now() - updated) / 1000);
  write(part("ago"), seconds < 1 ? words.now : words.ago.replace("%s", `${seconds} s`));
  if (words.ping) write(part("ping"), words.answers.replace("%s", words.ping));
  if (!running()) return;
  const now = ahead + performance.now();
  for (const element of fragment.querySelectorAll("[data-sl-until]")) {
    const rest = Number(element.dataset.slUntil) - now;
    write(element, rest > 0 ? duration(rest) : words.free);
  }
  for (const element of fragment.querySelectorAll("[data-sl-since]")) {
    write(element, duration(Math.max(0, now - Number(element.dataset.slSince))));
  }
}

part("pause").addEventListener("click", () => {
  if (running()) {
    clearTimeout(timer);
    return become("paused", words.paused);
  }
  wait = INTERVAL;
  become("live", words.resumed);
  refresh();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  touched = performance.now();
  if (!document.hidden) refresh();
});
for (const kind of ["pointerdown", "pointermove", "keydown", "touchstart", "wheel"]) {
  const touch = (event) => {
    // A page that changes under a pointer at rest is no sign of a person.
    if (kind !== "pointermove" || event.movementX || event.movementY) touched = performance.now();
  };
  document.addEventListener(kind, touch, { capture: true, passive: true });
}
page.addEventListener("sl:due", () => {
  if (state === "live") refresh();
});
setInterval(() => document.hidden || tell(), 1000);
words.ahead = ahead; // for what moves by time
part("controls").hidden = false;
page.dataset.slState = state;
tell();
schedule();
