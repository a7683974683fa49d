"use strict";
// A click on a column's head sorts the table; a second click turns the order. Print unfolds all.
const number = (text) => {
  const found = /^[−-]?[\d,]*\.?\d+(e[+-]?\d+)?/.exec(text.trim());
  return found ? Number(found[0].replace("−", "-").replaceAll(",", "")) : NaN;
};
const compare = (a, b) => {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
  return Number.isNaN(x) ? a.localeCompare(b) : x - y;
};
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("span"); // a real button is not repeated in print
    button.role = "button";
    button.tabIndex = 0;
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        button.click();
      }
    });
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      const text = (row) => row.cells[column].textContent;
      rows.sort((a, b) => (up ? compare(text(b), text(a)) : compare(text(a), text(b))));
      table.tBodies[0].append(...rows);
    });
  });
}
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
