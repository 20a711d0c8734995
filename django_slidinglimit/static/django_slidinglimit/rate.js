// Says what a rate means while it is typed: "100 requests in 60 s, about 1.7 a second".

const UNITS = {
  s: 1, sec: 1, second: 1, m: 60, min: 60, minute: 60, h: 3600, hr: 3600, hour: 3600,
  d: 86400, day: 86400, w: 604800, week: 604800,
};
const input = document.getElementById("id_rate");

function inSeconds(count, unit) {
  const singular = unit.replace(/s$/, "");
  const size = UNITS[unit] ?? (singular.length > 1 ? UNITS[singular] : undefined);
  return size ? size * (count || 1) : 0;
}

function meaning(text) {
  const match = /^\s*(\d+)\s*\/\s*(\d*)\s*([a-z]+)\s*$/.exec(text.toLowerCase());
  const window = match ? inSeconds(match[2], match[3]) : 0;
  if (!window) return ""; // being typed, or wrong: saving says what is accepted
  const limit = Number(match[1]);
  if (!limit) return input.dataset.none;
  const [per, size] = [["second", 1], ["minute", 60], ["hour", 3600], ["day", 86400]].find(
    ([, seconds]) => limit * seconds >= window,
  ) ?? ["week", 604800];
  const rate = Number(((limit * size) / window).toPrecision(2));
  return input.dataset[per]
    .replace("{limit}", limit)
    .replace("{seconds}", window)
    .replace("{rate}", rate.toLocaleString(document.documentElement.lang));
}

if (input) {
  const echo = document.createElement("output");
  echo.className = "sl-echo";
  echo.htmlFor = input.id;
  input.after(echo);
  const say = () => {
    echo.textContent = meaning(input.value);
  };
  input.addEventListener("input", say);
  say();
}
