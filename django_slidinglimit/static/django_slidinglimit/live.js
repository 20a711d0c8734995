// The usage pages refresh themselves: fetch the live part, show it, then set the next timer.
// A hidden tab stops; errors slow it down and mark the page as old; a refusal ends it.

const page = document.querySelector("[data-sl-live]");
const part = (name) => page.querySelector(`[data-sl-${name}]`);
const fragment = part("fragment");
const words = page.dataset;
const INTERVAL = Number(words.seconds) * 1000;
const LONGEST = 60_000;

let state = "live"; // or: paused, old, stopped
let wait = INTERVAL;
let timer;
let loading = false;
let updated = performance.now();

function become(next, spoken = "") {
  if (state === next) return;
  state = next;
  page.dataset.slState = next;
  part("mode").textContent = part("mode").dataset[next];
  part("status").textContent = spoken; // speaks of changes alone, not of every refresh
  page.dispatchEvent(new CustomEvent("sl:state", { detail: next }));
}

// Not under somebody's hands: a selection, an open question, a button going down.
function resting() {
  const selection = document.getSelection();
  return (
    document.querySelector("dialog[open]") ||
    fragment.querySelector("button:active, a:active") ||
    (selection && !selection.isCollapsed && fragment.contains(selection.anchorNode))
  );
}

function schedule() {
  clearTimeout(timer);
  if (state === "live" || state === "old") timer = setTimeout(refresh, wait);
}

async function refresh() {
  clearTimeout(timer);
  if (loading || document.hidden) return;
  if (resting()) return schedule();
  loading = true;
  const began = performance.now();
  try {
    const url = new URL(location.href);
    url.searchParams.set("fragment", "1");
    const response = await fetch(url, { redirect: "manual", signal: AbortSignal.timeout(10_000) });
    if (response.type === "opaqueredirect" || response.status === 401 || response.status === 403) {
      become("stopped", words.stopped);
      part("pause").disabled = true;
      return;
    }
    if (!response.ok) throw new Error(response.status);
    const text = await response.text();
    if (state === "paused") return;
    show(text);
    // A page of many clients takes a tenth of the server's time, at most.
    wait = Math.max(INTERVAL, 10 * (performance.now() - began));
    if (state === "old") become("live", words.resumed);
  } catch {
    if (state === "paused") return;
    wait = Math.min(wait * 2, LONGEST);
    become("old", words.old);
  } finally {
    loading = false;
    schedule();
  }
}

function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html").body;
  const focused = fragment.contains(document.activeElement) ? document.activeElement.id : "";
  if (focused || fragment.matches(":hover")) keepOrder(fresh);
  fragment.replaceChildren(...fresh.childNodes);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  updated = performance.now();
  tell();
  page.dispatchEvent(new CustomEvent("sl:shown"));
}

// Rows do not jump under the pointer or the focus: known ones stay in the order they had.
function keepOrder(fresh) {
  for (const body of fresh.querySelectorAll("tbody")) {
    const rows = [...body.children];
    const first = rows.map((row) => document.getElementById(row.id)).find(Boolean);
    if (!first) continue;
    const before = [...first.parentElement.children].map((row) => row.id);
    const place = (row) => (before.includes(row.id) ? before.indexOf(row.id) : before.length);
    body.replaceChildren(...rows.sort((a, b) => place(a) - place(b)));
  }
}

function tell() {
  const seconds = Math.floor((performance.now() - updated) / 1000);
  part("ago").textContent = seconds < 1 ? words.now : words.ago.replace("%s", `${seconds} s`);
}

part("pause").addEventListener("click", () => {
  const pausing = state !== "paused";
  become(pausing ? "paused" : "live", pausing ? words.paused : words.resumed);
  part("pause").textContent = part("pause").dataset[pausing ? "resume" : "pause"];
  wait = INTERVAL;
  if (pausing) clearTimeout(timer);
  else refresh();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden && (state === "live" || state === "old")) refresh();
});
page.addEventListener("sl:due", () => {
  if (state === "live") refresh();
});
setInterval(() => document.hidden || tell(), 1000);
part("controls").hidden = false;
page.dataset.slState = state;
tell();
schedule();
