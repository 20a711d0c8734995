// Asks in a dialog before a client is reset; without this script the server asks on a page.

const form = document.getElementById("sl-reset");
const dialog = document.getElementById("sl-ask");
let button;

form?.addEventListener("submit", (event) => {
  button = event.submitter;
  if (!button || form.querySelector("[name=confirmed]")) return;
  event.preventDefault();
  dialog.querySelector("h2").textContent = button.dataset.slAsk;
  dialog.returnValue = "";
  dialog.showModal();
});
dialog?.addEventListener("close", () => {
  if (dialog.returnValue !== "yes") return document.getElementById(button.id)?.focus();
  for (const [name, value] of [["confirmed", "yes"], ["target", button.value]]) {
    const input = document.createElement("input");
    Object.assign(input, { type: "hidden", name, value });
    form.append(input);
  }
  form.submit();
});
