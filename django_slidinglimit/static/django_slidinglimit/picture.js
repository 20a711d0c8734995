// Moves the client page's pictures and figures by time between two refreshes, by the formulas of
// core/window.py and admin/charts.py. It changes geometry attributes only.

const page = document.querySelector("[data-sl-live]");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const HALF = 500;
let figures = [];
let shownAt = 0;
let moving = false;

function collect() {
  shownAt = performance.now();
  figures = [...page.querySelectorAll("[data-sl-picture]")].map((element) => {
    const { limit, window, previous, current, elapsed, free } = element.dataset;
    const parts = {};
    for (const part of element.querySelectorAll("[data-sl]")) {
      (parts[part.dataset.sl] ??= []).push(part);
    }
    const read = { previous: +previous, current: +current, elapsed: +elapsed };
    const due = free === "None" ? Infinity : +free;
    return { read, limit: +limit, window: +window, due, parts, now: element.dataset.now };
  });
  start();
}

function after({ read, window }, passed) {
  let { previous, current, elapsed } = read;
  elapsed += Math.floor(passed);
  const windows = Math.floor(elapsed / window);
  if (windows === 1) [previous, current] = [current, 0];
  if (windows > 1) [previous, current] = [0, 0];
  return { previous, current, elapsed: elapsed - windows * window };
}

function draw(figure, passed) {
  const { limit, window, parts } = figure;
  const { previous, current, elapsed } = after(figure, passed);
  const now = (HALF * elapsed) / window;
  const unit = 90 / Math.max(limit, previous, current, 1);
  const block = (name, x, width, count) =>
    place(parts[name], { x, width, y: 100 - count * unit, height: count * unit });
  block("slid", 0, now, previous);
  block("counted-block", now, HALF - now, previous);
  block("current-block", HALF, now, current);
  place(parts.sliding, { x: now });
  place(parts.now, { d: `M${(HALF + now).toFixed(2)} 100V0` });

  const counts = (previous * (window - elapsed)) / window;
  const full = Math.max(limit, counts + current) || 1;
  place(parts["gauge-counted"], { width: (1000 * counts) / full });
  place(parts["gauge-current"], { x: (1000 * counts) / full, width: (1000 * current) / full });

  const wait = figure.due - passed;
  if (figure.due && wait <= 0) {
    figure.due = 0;
    write(parts.free, figure.now);
    page.dispatchEvent(new CustomEvent("sl:due")); // its state may have changed: look
  } else if (figure.due && wait < 60_000) {
    write(parts.free, `${Math.ceil(wait / 1000)} s`);
  }

  const counted = Math.ceil(counts);
  write(parts.counted, counted);
  write(parts.previous, previous);
  write(parts.current, current);
  write(parts.used, counted + current);
  write(parts.left, Math.max(0, limit - counted - current));
}

function place(elements, attributes) {
  for (const element of elements ?? []) {
    for (const [name, value] of Object.entries(attributes)) {
      element.setAttribute(name, typeof value === "number" ? value.toFixed(2) : value);
    }
  }
}

function write(elements, number) {
  for (const element of elements ?? []) {
    if (element.textContent !== String(number)) element.textContent = number;
  }
}

function frame() {
  if (!moving) return;
  const passed = performance.now() - shownAt;
  for (const figure of figures) draw(figure, passed);
  requestAnimationFrame(frame);
}

function start() {
  const wanted = figures.length > 0 && !still.matches && page.dataset.slState !== "paused" && page.dataset.slState !== "stopped";
  if (wanted && !moving) requestAnimationFrame(frame);
  moving = wanted;
}

page.addEventListener("sl:shown", collect);
page.addEventListener("sl:state", start);
still.addEventListener("change", start);
collect();
