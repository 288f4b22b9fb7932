"use strict";
const table = document.querySelector("#notebooks");
const cards = [...document.querySelectorAll("article")];
const wish = document.querySelector("#wish");
const verdicts = [...document.querySelectorAll("#verdicts input")];
document.querySelector("#controls").hidden = false;

function filter() {
  const words = wish.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = new Set(verdicts.filter(box => box.checked).map(box => box.value));
  let count = 0;
  for (const card of cards) {
    const text = card.textContent.toLowerCase();
    const keep = shown.has(card.dataset.verdict) && words.every(word => text.includes(word));
    card.hidden = !keep;
    table.querySelector(`tr[data-card="${card.id}"]`).hidden = !keep;
    count += keep;
  }
  document.querySelector("#none").hidden = count > 0;
}
wish.addEventListener("input", filter);
for (const box of verdicts) box.addEventListener("change", filter);

for (const button of table.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const column = [...head.parentNode.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.children[column].dataset.key;
    const compare = head.dataset.kind === "number"
      ? (a, b) => Number(key(a)) - Number(key(b))
      : (a, b) => key(a).localeCompare(key(b));
    const rows = [...table.tBodies[0].rows].sort((a, b) => down ? compare(b, a) : compare(a, b));
    table.tBodies[0].append(...rows);
  });
}

function reveal() {
  const card = location.hash && document.getElementById(location.hash.slice(1));
  const body = card && card.querySelector("details");
  if (body) body.open = true;
}
window.addEventListener("hashchange", reveal);
reveal();
