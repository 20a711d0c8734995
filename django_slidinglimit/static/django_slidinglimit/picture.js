// Moves the client page's pictures and figures by time, by the formulas of core/window.py and
// admin/charts.py. It changes geometry attributes and numbers only.

const page = document.querySelector("[data-sl-live]");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const HALF = 500;
const STEP = 2000; // where nothing may move: so often all stands anew
let figures = [];
let moving = false;

// Redis's time in milliseconds since 1970, as live.js knows it.
const now = () => Number(page.dataset.ahead) + performance.now();

function collect() {
  figures = [...page.querySelectorAll("[data-sl-picture]")].map((element) => {
    const { limit, window, previous, current, began, free } = element.dataset;
    const parts = {};
    for (const part of element.querySelectorAll("[data-sl]")) {
      (parts[part.dataset.sl] ??= []).push(part);
    }
    const read = { previous: +previous, current: +current, began: +began };
    return { read, limit: +limit, window: +window, free: +free, parts };
  });
  drawAll();
  start();
}

function drawAll() {
  const time = now();
  for (const figure of figures) draw(figure, time);
}

function at({ read, window }, time) {
  let { previous, current, began } = read;
  const elapsed = Math.max(0, Math.floor(time - began)); // its clock may be known a little late
  const windows = Math.floor(elapsed / window);
  if (windows === 1) [previous, current] = [current, 0];
  if (windows > 1) [previous, current] = [0, 0];
  return { previous, current, elapsed: elapsed - windows * window };
}

function draw(figure, time) {
  const { limit, window, parts } = figure;
  const { previous, current, elapsed } = at(figure, time);
  const slid = (HALF * elapsed) / window;
  const unit = 90 / Math.max(limit, previous, current, 1);
  const block = (name, x, width, count) =>
    place(parts[name], { x, width, y: 100 - count * unit, height: count * unit });
  block("slid", 0, slid, previous);
  block("counted-block", slid, HALF - slid, previous);
  block("current-block", HALF, slid, current);
  block("sliding", slid, HALF, limit);
  place(parts.now, { d: `M${(HALF + slid).toFixed(2)} 100V0` });

  const counts = (previous * (window - elapsed)) / window;
  const full = Math.max(limit, counts + current) || 1;
  place(parts["gauge-counted"], { width: (1000 * counts) / full });
  place(parts["gauge-current"], { x: (1000 * counts) / full, width: (1000 * current) / full });

  if (figure.free && figure.free <= time) {
    figure.free = 0;
    page.dispatchEvent(new CustomEvent("sl:due")); // its state may have changed: look
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
  drawAll();
  requestAnimationFrame(frame);
}

function start() {
  const wanted = figures.length > 0 && !still.matches && runs();
  if (wanted && !moving) requestAnimationFrame(frame);
  moving = wanted;
}

const runs = () => ["live", "old"].includes(page.dataset.slState);

page.addEventListener("sl:shown", collect);
page.addEventListener("sl:state", start);
still.addEventListener("change", start);
setInterval(() => still.matches && runs() && drawAll(), STEP);
collect();
