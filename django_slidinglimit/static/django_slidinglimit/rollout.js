// The share of clients belongs to an enforced rule: with another mode it is out of the way.

const mode = document.getElementById("id_mode");
const row = document.getElementById("id_share")?.closest(".form-row, .field-row, .field-share");

if (mode && row) {
  const settle = () => {
    row.hidden = mode.value !== "enforce";
  };
  mode.addEventListener("change", settle);
  settle();
}
