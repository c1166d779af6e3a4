// The filters of the question table: search, status, type, category, kind and breaking temperature.
const state = { sort: null, descending: false, search: "", filters: {}, kinds: new Set(), broken: null, chosen: null, limit: PAGE, opened: new Set() };

const metricNamed = (name) => numbers.find((column) => column.name === name);
const breaking = metricNamed("breaking");
const divided = [
  [metricNamed("agreement.certainty"), (value) => value < 1],
  [metricNamed("certainty.entropy"), (value) => value > 0],
].filter(([column]) => column);
const replies = (row) => Object.values(detailed[row]?.samplers ?? {});

/** Kinds of questions that readers look for: name, label, meaning, and test. */
const kinds = [
  ["kept", "kept", "it was asked again", (row) => words.status[row].startsWith("kept")],
  ["unknown", "not known to the model", `the ${data.baseline} is wrong, missing or not judged`, (row) => /(wrong|no reply|not judged)$/.test(words.status[row])],
  breaking
    ? ["unbroken", "never breaks", "it is unbroken at every temperature", (row) => breaking.numbers[row] === Infinity]
    : ["unbroken", "always right", "every reply to it is right", (row) => replies(row).length > 0 && replies(row).every(({ whole }) => whole.every(([name]) => name === "right"))],
  ["disagreement", "answers differ", "its raters, or its repeated answers, disagree", (row) => divided.some(([column, apart]) => apart(column.numbers[row]))],
  ["cut", "truncated", "replies were truncated by the length limit", (row) => replies(row).some(({ cut }) => cut)],
  ["uncertain", "uncertain reply", "the verdict depends on which part of the reply counts", (row) => Boolean(detailed[row]?.greedy_read?.[2]) || replies(row).some(({ uncertain }) => uncertain)],
].map(([name, label, about, holds]) => ({ name, label, about, rows: new Set(all.filter(holds)) }));
const offered = kinds.filter(({ rows }) => rows.size > 0 && rows.size < all.length); // any other filter would keep all questions, or none
const holding = Object.fromEntries(offered.map(({ name, rows }) => [name, rows]));

/** The rows that match the search and the filters. Only a search covers questions that are not shown in full; a question
 * whose id is searched comes first. */
function matchingRows() {
  const wanted = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = (wanted.length ? all : rows).filter(
    (row) =>
      wanted.every((word) => searched[row].includes(word)) &&
      Object.entries(state.filters).every(([name, value]) => value === "" || words[name][row] === value) &&
      [...state.kinds].every((name) => holding[name].has(row)) &&
      (state.broken === null || breaking.numbers[row] <= state.broken) &&
      (state.chosen === null || state.chosen.has(row)),
  );
  const sorted = state.sort ? matching.sort(compared) : matching;
  const named = sorted.findIndex((row) => index.ids[row] === state.search.trim());
  return named > 0 ? [...sorted.splice(named, 1), ...sorted] : sorted;
}

function changed() {
  state.limit = PAGE;
  drawRows();
}

const search = element("input", {
  type: "search",
  id: "search",
  oninput: () => {
    state.search = search.value;
    changed();
  },
});

/** A drop-down list of values and their labels; its first option, "all", does not filter. */
function choice(name, label, values, chosen) {
  const select = element(
    "select",
    {
      id: `filter-${name}`,
      onchange: () => {
        chosen(select.value);
        changed();
      },
    },
    element("option", { value: "" }, "all"),
    ...values.map(([value, words]) => element("option", { value }, words)),
  );
  return element("label", {}, `${label} `, select);
}

const filters = [
  ...["status", "type", "category"]
    .filter((name) => words[name] && new Set(words[name]).size > 1)
    .map((name) => {
      const values = [...new Set(words[name])].filter(Boolean).sort();
      return choice(name, name, values.map((value) => [value, value]), (value) => (state.filters[name] = value));
    }),
  ...(breaking?.levels.some((t) => breaking.numbers.includes(t))
    ? [choice("broken", "broken by", breaking.levels.map((t) => [String(t), `t = ${t}`]), (value) => (state.broken = value === "" ? null : Number(value)))]
    : []),
  ...offered.map(({ name, label, about, rows }) => {
    const box = element("input", {
      type: "checkbox",
      id: `only-${name}`,
      onchange: () => {
        if (box.checked) state.kinds.add(name);
        else state.kinds.delete(name);
        changed();
      },
    });
    return element("label", { class: "kind", title: about }, box, ` ${label} `, element("small", {}, grouped(rows.size)));
  }),
];

/** Clear all filters, and set the search. */
function leaveAll(searching = "") {
  Object.assign(state, { search: searching, filters: {}, kinds: new Set(), broken: null, chosen: null });
  showChosen();
}

/** Update the controls from the state. */
function showChosen() {
  search.value = state.search;
  const values = { ...state.filters, broken: state.broken === null ? "" : String(state.broken) };
  for (const label of filters) {
    const control = label.querySelector("select, input");
    const [what, name] = control.id.split(/-(.*)/);
    if (what === "filter") control.value = values[name] ?? "";
    else control.checked = state.kinds.has(name);
  }
}
