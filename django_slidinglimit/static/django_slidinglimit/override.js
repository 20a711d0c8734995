// Shows of an override's form only the fields that its choices ask for.

const FIELDS = {
  target: {
    client: ["kind", "identity"],
    group: ["group"],
    network: ["network"],
    nobody: ["kind"],
    everyone: [],
  },
  effect: { rate: ["rate"], exempt: [], block: [] },
};
const form = document.getElementById("override_form");

function show() {
  for (const [name, choices] of Object.entries(FIELDS)) {
    const chosen = form.elements[name]?.value;
    const global = name === "target" && form.elements.kind?.value === "global";
    for (const field of new Set(Object.values(choices).flat())) {
      const row = form.querySelector(`.field-${field}`);
      const asked = choices[chosen]?.includes(field) && !(global && field === "identity");
      if (row) row.hidden = !asked;
    }
  }
}

if (form?.elements.target) {
  // While one types, not on leaving a field: a row that vanished under a click would swallow it.
  form.addEventListener("input", show);
  show();
}
