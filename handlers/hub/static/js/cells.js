// Price cells in a table: Enter moves down, Esc restores the value, several pasted lines fill the column.

export function prepareCells(form) {
  for (const input of form.querySelectorAll(".cell > input")) input.dataset.before = input.value;
  form.addEventListener("keydown", onCellKey);
  form.addEventListener("paste", onCellPaste);
}

/** Moves down the column on Enter, restores the value on Esc. */
function onCellKey(event) {
  if (!event.target.matches(".cell > input")) return;
  if (event.key === "Enter") {
    event.preventDefault();
    const column = columnOf(event.target);
    const next = column[column.indexOf(event.target) + 1];
    next?.focus();
    next?.select();
  } else if (event.key === "Escape") {
    event.target.value = event.target.dataset.before;
    event.target.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/** Spreads several pasted lines over the cells below. */
function onCellPaste(event) {
  if (!event.target.matches('.cell > input[inputmode="decimal"]')) return;
  const lines = event.clipboardData.getData("text").trim().split(/\r?\n/);
  if (lines.length < 2) return;
  event.preventDefault();
  const column = columnOf(event.target);
  const first = column.indexOf(event.target);
  lines.forEach((line, index) => {
    if (column[first + index]) column[first + index].value = line.trim();
  });
  event.target.dispatchEvent(new Event("input", { bubbles: true }));
}

function columnOf(input) {
  const index = input.closest("tr").cells.length && input.parentElement.cellIndex;
  const rows = [...input.closest("tbody").rows].filter((row) => !row.hidden);
  return rows.map((row) => row.cells[index]?.querySelector("input")).filter(Boolean);
}
