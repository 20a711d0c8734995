// Asks in a dialog before something is done about a client: the server's question, fetched from the
// page that it would be without this script.

const form = document.getElementById("sl-act");
const dialog = document.getElementById("sl-ask");
let opener = "";
let asking = false;
let plainly = false;
let answered = false;

form?.addEventListener("submit", async (event) => {
  const button = event.submitter;
  if (plainly || !button) return;
  event.preventDefault();
  if (asking) return;
  asking = true;
  opener = button.id;
  try {
    const url = new URL(button.getAttribute("formaction") ?? form.action, location);
    url.searchParams.set("fragment", "1");
    const body = new FormData(form, button);
    const response = await fetch(url, { method: "POST", body, redirect: "error" });
    if (!response.ok) throw new Error(response.status);
    ask(await response.text());
  } catch {
    // Whatever is wrong, the page itself says it best.
    plainly = true;
    form.requestSubmit(button.isConnected ? button : null);
  } finally {
    asking = false;
  }
});

function ask(text) {
  dialog.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
  const time = dialog.querySelector("[data-sl-time]");
  const until = dialog.querySelector("[name=until]")?.closest(".sl-field");
  const choose = () => {
    until.hidden = time.value !== time.dataset.slTime;
  };
  time?.addEventListener("change", choose);
  if (time) choose();
  answered = false;
  dialog.showModal();
}

dialog?.addEventListener("submit", (event) => {
  if (answered) event.preventDefault(); // a second click would do it twice
  answered = true;
});

dialog?.addEventListener("click", (event) => {
  if (!event.target.closest("[data-sl-cancel]")) return;
  event.preventDefault();
  dialog.close();
});
dialog?.addEventListener("close", () => document.getElementById(opener)?.focus());
