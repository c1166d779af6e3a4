// Assembly of the page.
$("question-table").append(
  element("div", { class: "controls", id: "questions-controls" }, element("label", {}, "search ", search), ...filters),
  status,
  element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "questions" },
    element("table", { class: "questions" }, element("thead", {}, element("tr", {}, ...heads)), body),
  ),
  more,
  element(
    "details",
    {},
    element("summary", {}, "what the columns mean"),
    element(
      "dl",
      { class: "about" },
      ...columns.filter((column) => column.about).map((column) => element("div", {}, element("dt", {}, column.label), element("dd", {}, column.about))),
    ),
  ),
);
readAddress();
addEventListener("hashchange", readAddress);

document.querySelectorAll("[data-question]").forEach((cell) => {
  const row = rowOf.get(cell.dataset.question);
  if (row === undefined) return;
  const text = cell.textContent;
  cell.replaceChildren(element("button", { type: "button", class: "question", onclick: () => open(row) }, quoted(text)));
});
document.querySelectorAll("nav a").forEach((link) =>
  link.addEventListener("click", (event) => {
    event.preventDefault(); // an embedded page cannot follow links to its own sections
    document.querySelector(link.getAttribute("href")).scrollIntoView();
  }),
);
