// The questions, with their texts and metrics, decoded from the page.
// A row is a question of the index. Those in `rows` are shown in full; for the others, the page has only the index.
const [index, data] = await Promise.all(["question-index", "question-data"].map(async (id) => JSON.parse(await inflated(id))));
const rows = index.shown;
const all = index.ids.map((_, row) => row);
const asked = Number($("question-table").dataset.asked);
const number = (value) => (value === null ? NaN : Number(value));
const spread = (values, otherwise) => {
  const aligned = Array(all.length).fill(otherwise);
  rows.forEach((row, place) => (aligned[row] = values[place]));
  return aligned;
};
const words = Object.fromEntries(
  Object.entries(index.words).map(([name, [values, places]]) => [name, places.map((place) => values[place])]),
);
const detailed = spread(data.details);
const numbers = data.numbers.map((column, place) => ({
  ...column,
  numbers: place ? spread(column.numbers.map(number), NaN) : index.headline.map(number),
}));
const answer = (row) => {
  const [text, , outcome] = detailed[row]?.greedy ?? ["", "", "ok"];
  return outcome === "ok" ? text : `(${outcome.replace("_", " ")})`;
};
const greedy = rows.some((row) => detailed[row].greedy);
const searched = all.map((row) => [index.texts[row], answer(row), index.ids[row]].join("\n").toLowerCase());

function shownNumber(column, row) {
  const value = column.numbers[row];
  if (!detailed[row] && column !== numbers[0]) return "";
  if (Number.isNaN(value)) return column.ofKnown && words.status[row].endsWith("wrong") ? "not known" : "–";
  return value === Infinity ? "unbroken" : rounded(value, column.digits);
}
