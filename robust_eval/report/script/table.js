// The table of questions: its columns, sorting and rows.
const columns = [
  { label: "question", cell: (row) => questionButton(row), value: (row) => index.texts[row].toLowerCase() },
  ...(greedy
    ? [
        {
          label: data.baseline,
          cell: (row) => (detailed[row] ? quoted(answer(row)) : element("small", {}, "not on this page")),
          value: (row) => answer(row).toLowerCase(),
        },
      ]
    : []),
  ...["type", "category", "status"]
    .filter((name) => words[name])
    .map((name) => ({ label: name, cell: (row) => quoted(words[name][row]), value: (row) => words[name][row] })),
  ...numbers.map((column) => ({
    label: column.label,
    about: column.about,
    number: true,
    cell: (row) => shownNumber(column, row),
    value: (row) => column.numbers[row],
  })),
];

// Sort keys are computed once, not for each comparison.
for (const column of columns) column.keys = all.map(column.value);

const first = columns.find((column) => column.number) ?? null;
state.sort = first; // the least robust facts, or the most divided answers, come first

function questionButton(row) {
  const opened = state.opened.has(row);
  const open = () => {
    if (!state.opened.delete(row)) state.opened.add(row);
    drawRows();
    body.querySelector(`button[data-row="${row}"]`)?.focus();
  };
  return element(
    "button",
    { type: "button", class: "question", "data-row": row, "aria-expanded": String(opened), onclick: open },
    element("span", { "aria-hidden": "true", class: "mark" }, opened ? "▾" : "▸"),
    index.texts[row] ? quoted(index.texts[row]) : element("span", {}, "id ", quoted(index.ids[row])),
  );
}

/** Compare two rows by the sorted column; undefined values come last in both directions. */
function compared(one, other) {
  const { keys } = state.sort;
  const [a, b] = [keys[one], keys[other]];
  const undefinedLast = Number.isNaN(a) - Number.isNaN(b);
  if (undefinedLast) return undefinedLast;
  const order = a < b ? -1 : a > b ? 1 : 0;
  return (state.descending ? -order : order) || one - other;
}

const heads = columns.map((column) => {
  const sort = () => {
    state.descending = state.sort === column ? !state.descending : false;
    state.sort = column;
    drawRows();
  };
  const button = element("button", { type: "button", title: column.about ?? null, onclick: sort }, column.label);
  return element("th", { scope: "col", class: column.number ? "number" : null }, button);
});
const body = element("tbody");
const status = element("p", { role: "status" });
const more = element("button", {
  type: "button",
  onclick: () => {
    state.limit += PAGE;
    drawRows();
  },
});

function drawRows() {
  const matching = matchingRows();
  writeAddress();
  heads.forEach((head, place) => {
    const sorted = state.sort === columns[place];
    head.setAttribute("aria-sort", sorted ? (state.descending ? "descending" : "ascending") : "none");
  });
  body.replaceChildren(
    ...matching.slice(0, state.limit).flatMap((row) => [
      element("tr", {}, ...columns.map((column) => element("td", { class: column.number ? "number" : null }, column.cell(row)))),
      ...(state.opened.has(row)
        ? [element("tr", { class: "opened" }, element("td", { colspan: columns.length }, detailOf(row)))]
        : []),
    ]),
  );
  const count = Math.min(state.limit, matching.length);
  status.textContent = `${grouped(count)} of ${grouped(matching.length)} questions shown${coverage(matching)}.`;
  more.hidden = count === matching.length;
  more.textContent = `Show ${Math.min(PAGE, matching.length - count)} more`;
}

/** The set of questions that the search covered, unless it is obvious. */
function coverage(matching) {
  const covered = state.search.trim() ? all.length : rows.length;
  const fewer = matching.length < covered;
  if (rows.length === asked) return fewer ? `, out of ${grouped(asked)}` : "";
  if (covered < asked) return `${fewer ? `, out of ${grouped(covered)}` : ""} in this table (${grouped(asked)} were asked)`;
  const bare = matching.filter((row) => !detailed[row]).length;
  return `${fewer ? `, out of all ${grouped(asked)}` : ""}${bare ? `; the answers to ${grouped(bare)} of them are not on this page` : ""}`;
}

/** Open a question: clear filters that hide it, search for it if the table lacks it, and show enough rows to reach it. */
function open(row) {
  if (!matchingRows().includes(row)) {
    leaveAll(detailed[row] ? "" : index.ids[row]);
  }
  state.limit = Math.max(state.limit, Math.ceil((matchingRows().indexOf(row) + 1) / PAGE) * PAGE);
  state.opened.add(row);
  drawRows();
  const button = body.querySelector(`button[data-row="${row}"]`);
  button.scrollIntoView({ block: "start" });
  button.focus({ preventScroll: true });
}
