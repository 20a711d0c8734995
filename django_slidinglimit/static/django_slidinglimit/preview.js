// Shows the preview on the form itself; without this script it opens on a page of its own.

const place = document.querySelector("[data-sl-preview]");
const shown = place?.querySelector("[data-sl-preview-shown]");
const button = place?.querySelector("button");
const old = place?.querySelector("[data-sl-old]");
let asking;

async function ask() {
  asking?.abort(); // a later question replaces it
  asking = new AbortController();
  const { signal } = asking;
  shown.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(`${button.formAction}?fragment=1`, {
      method: "POST",
      body: new FormData(button.form),
      signal,
    });
    if (response.redirected || response.status === 403) return say(place.dataset.stopped);
    if (!response.ok) return say(place.dataset.failed);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").body;
    shown.replaceChildren(...fresh.childNodes);
    reveal();
  } catch {
    if (!signal.aborted) say(place.dataset.failed);
  }
}

function say(words) {
  const line = document.createElement("p");
  line.className = "sl-notice sl-away";
  line.textContent = words;
  shown.replaceChildren(line);
  reveal();
}

function reveal() {
  shown.hidden = false;
  shown.removeAttribute("aria-busy");
  shown.classList.remove("sl-stale");
  old.textContent = "";
}

button?.addEventListener("click", (event) => {
  event.preventDefault();
  ask();
});

// What is shown is of another rule than the one that stands in the form now.
button?.form.addEventListener("input", () => {
  if (shown.hidden) return;
  shown.classList.add("sl-stale");
  old.textContent = old.dataset.old;
});
