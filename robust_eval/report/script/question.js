// The details of an opened question.
const details = new Map();

/** The details of a question, created when it is first opened. */
function detailOf(row) {
  if (!details.has(row)) details.set(row, makeDetail(row));
  return details.get(row);
}

function makeDetail(row) {
  const detail = detailed[row];
  if (!detail) return makeBareDetail(row);
  const context = detail.context
    ? element("details", {}, element("summary", {}, "its passage"), element("p", {}, quoted(detail.context)))
    : null;
  const prompt = detail.prompt
    ? element("details", {}, element("summary", {}, "the prompt"), element("pre", {}, quoted(detail.prompt)))
    : null;
  return element(
    "div",
    { class: "detail" },
    factsOf(detail, row),
    element("p", {}, copied("copy as JSON", () => JSON.stringify(asJson(row), null, 2)), " ", copied("copy a link", () => linkTo(row))),
    prompt,
    settings(),
    context,
    detail.curve ? curveOf(detail, row) : null,
    ...Object.entries(detail.samplers).map(([name, answers]) => answersOf(name, answers, detail.wordings, row)),
    detail.tree ? treeOf(detail.tree) : null,
  );
}

/** The accepted answers, the greedy answer and the metrics of a question. */
function factsOf(detail, row) {
  const accepted = detail.choices
    ? detail.choices.map((choice, place) => element("div", {}, quoted(choice), place === detail.correct ? " (right)" : ""))
    : detail.answers.flatMap((answer, place) => [place ? "; " : "", quoted(answer)]);
  const facts = [["id", quoted(detail.id)], [detail.choices ? "choices" : "accepted answers", accepted.length ? accepted : "none"]];
  if (detail.greedy) facts.push([data.baseline, [quoted(answer(row)), " ", verdict(detail.greedy[1]), reading(detail.greedy_read)]]);
  for (const column of numbers) facts.push([column.label, shownNumber(column, row), column.about]);
  return listOf(facts);
}

/** The settings of the run's requests. */
const settings = () =>
  element(
    "details",
    {},
    element("summary", {}, "request settings"),
    element("dl", {}, ...Object.entries(data.settings).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, quoted(value))))),
  );

/** All data of a question on this page. */
const asJson = (row) => ({
  ...detailed[row],
  settings: data.settings,
  question: index.texts[row],
  ...Object.fromEntries(Object.entries(words).map(([name, values]) => [name, values[row]])),
  metrics: Object.fromEntries(numbers.map((column) => [column.name, Number.isNaN(column.numbers[row]) ? null : column.numbers[row]])),
});
const linkTo = (row) => `${location.href.split("#")[0]}#${new URLSearchParams({ q: index.ids[row] })}`;

/** A button that copies a text to the clipboard; without a clipboard, it shows the text. */
function copied(label, text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "copied";
    } catch {
      const area = element("textarea", { readonly: true, rows: 6, "aria-label": label }, text());
      button.replaceWith(area);
      area.select();
    }
  };
  const button = element("button", { type: "button", onclick: copy }, label);
  return button;
}

/** The details of a question that is not shown in full: its entry in the index, and the files with the rest. */
function makeBareDetail(row) {
  const facts = [["id", quoted(index.ids[row])], ...Object.keys(words).map((name) => [name, words[name][row] || "none"])];
  if (numbers.length) facts.push([numbers[0].label, shownNumber(numbers[0], row), numbers[0].about]);
  const rest = ["Its answers and other metrics are not on this page. They are in graded.parquet and questions.parquet, in the rows whose question_id is ", quoted(index.ids[row]), "."];
  return element("div", { class: "detail" }, listOf(facts), element("p", {}, ...rest));
}

const listOf = (facts) =>
  element(
    "dl",
    {},
    ...facts.map(([name, value, about]) => element("div", {}, element("dt", { title: about }, name), element("dd", {}, value))),
  );

function curveOf(detail, row) {
  const place = element("div", { class: "curve" });
  const named = (points, ...names) => (points ?? []).map((point) => Object.fromEntries(names.map((name, i) => [name, point[i]])));
  const bounded = detail.curve.computed?.some(([, , , , lower, upper]) => lower > 0 || upper < 1); // otherwise the bounds are 0 and 1 everywhere
  const breaking = numbers.find((column) => column.name === "breaking").numbers[row];
  draw(place, data.curve, {
    counted: named(detail.curve.counted, "t", "accuracy", "low", "high"),
    computed: named(detail.curve.computed, "t", "accuracy", "low", "high"),
    bounds: bounded ? named(detail.curve.computed, "t", "", "", "", "lower", "upper") : [],
    breaking: Number.isFinite(breaking) ? [{ t: breaking }] : [],
  });
  const notes = [
    detail.curve.counted ? "Points: share of right trials, with Wilson's 95 % interval." : "",
    detail.curve.computed ? "Line: from the model's probabilities, ± 1.96 standard errors." : "",
    bounded ? "Pale band: guaranteed bounds." : "",
    Number.isFinite(breaking) ? "Dashed: the threshold, and the temperature at which this fact breaks." : "Dashed: the threshold.",
  ];
  return element("figure", {}, element("figcaption", {}, "Accuracy against temperature"), place, element("p", { class: "note" }, notes.filter(Boolean).join(" ")));
}

/** The answer extracted from a reply (if it is not the whole reply), the extraction rule, and whether it is uncertain. */
const reading = (read) =>
  read?.length
    ? element(
        "small",
        { class: "read" },
        ...(read[1] ? ["extracted: ", quoted(read[1]), " "] : []),
        `(rule: ${read[0]})`,
        read[2] ? element("strong", { title: "the verdict depends on which part of the reply counts" }, " uncertain") : null,
      )
    : null;

/** The raw replies behind the answers of a table. */
const cameAs = (answers) =>
  element(
    "details",
    { class: "raw" },
    element("summary", {}, "the raw replies"),
    ...answers.map(([, text, , judgement, , , , , reply]) => element("div", {}, verdict(judgement), element("pre", { tabindex: "0" }, quoted(reply ?? text)))),
  );

/** The answers of one sampler: the count of each by wording and temperature, and the total by verdict. */
function answersOf(name, answers, wordings, row) {
  const reworded = answers.rows.some(([rewrite]) => rewrite > 0);
  const labelled = answers.labels;
  const several = answers.temperatures.length > 1;
  const whole = answers.temperatures.map((_, t) => answers.whole.reduce((sum, [, counts]) => sum + Number(counts[t]), 0) || 1);
  const variants = answers.shown ?? {};
  const wording = (rewrite) => variants[rewrite] ?? quoted(rewrite === 0 ? index.texts[row] : (wordings[rewrite - 1] ?? `rewrite ${rewrite}`));
  const at = answers.temperatures.map((t) => (several ? `t = ${t}` : `count at t = ${t}`));
  const heading = [
    ...(reworded ? ["wording"] : []),
    "answer",
    ...(labelled ? ["label"] : []),
    "verdict",
    ...at,
  ];
  const count = (value, t) =>
    element(
      "td",
      { class: "number", style: `--share:${((100 * value) / whole[t]).toFixed(0)}%`, "data-at": at[t] },
      value,
    );
  const before = heading.length - answers.temperatures.length - 1; // columns before the verdict
  let last = null;
  const lines = answers.rows.map(([rewrite, text, label, judgement, outcome, won, counts, cut], place) => {
    const again = rewrite === last;
    last = rewrite;
    return element(
      "tr",
      {},
      reworded ? element("td", {}, again ? "" : wording(rewrite)) : null,
      element("td", {}, outcome === "ok" || text ? quoted(text) : "", outcome === "ok" ? "" : ` (${outcome.replace("_", " ")})`, won && reworded ? " (majority vote)" : "", cut ? element("small", {}, ` (truncated: ${cut})`) : "", reading(answers.read?.[place])),
      labelled ? element("td", {}, label) : null,
      element("td", {}, verdict(judgement)),
      ...counts.map(count),
    );
  });
  for (const [judgement, number, counts] of answers.others)
    lines.push(
      element("tr", {}, element("td", { colspan: before }, `${number} other${number === 1 ? " answer" : " answers"}`), element("td", {}, verdict(judgement)), ...counts.map(count)),
    );
  const sums = answers.whole.map(([judgement, counts], place) =>
    element(
      "tr",
      {},
      place ? element("td", { colspan: before }) : element("th", { scope: "row", colspan: before }, "all answers"),
      element("td", {}, verdict(judgement)),
      ...counts.map((value, t) => element("td", { class: "number", "data-at": at[t] }, value)),
    ),
  );
  const table = element(
    "table",
    { class: "counts" },
    element("caption", {}, `Answers: ${name.replaceAll("_", " ")}`),
    element("thead", {}, element("tr", {}, ...heading.map((text) => element("th", { scope: "col", class: text.includes("t = ") ? "number" : null }, text)))),
    element("tbody", {}, ...lines),
    lines.length > sums.length ? element("tfoot", {}, ...sums) : null, // otherwise the totals repeat the rows
  );
  return element(
    "div",
    {},
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `answers of ${name}` }, table),
    answers.cut ? element("p", { class: "note" }, `Truncated by the length limit: ${listed(answers.cut)}.`) : null,
    answers.uncertain ? element("p", { class: "note" }, `Uncertain replies, whose verdict depends on which part of the reply counts: ${answers.uncertain}.`) : null,
    cameAs(answers.rows),
  );
}

function treeOf([, , , total, hidden, branches]) {
  const list = (branches, hidden) =>
    element(
      "ul",
      { class: "tree" },
      ...branches.map(([text, percent, judgement, counts, hidden, next]) =>
        element(
          "li",
          {},
          element("span", { class: "bar", style: `--share:${percent}%`, "aria-hidden": "true" }),
          element("span", { class: "share" }, `${percent} %`),
          " ",
          quoted(text.replaceAll(" ", "␣").replaceAll("\n", "⏎")),
          " ",
          judgement ? verdict(judgement) : "",
          counted(counts) > 1 ? element("small", {}, ` (${answersOfKinds(counts)})`) : null,
          next.length || hidden.length ? list(next, hidden) : null,
        ),
      ),
      hidden.length ? element("li", {}, element("small", {}, `not shown: ${answersOfKinds(hidden)}`)) : null,
    );
  const answersOfKinds = (counts) => `${grouped(counted(counts))} ${counted(counts) === 1 ? "answer" : "answers"}: ${listed(counts)}`;
  return element(
    "figure",
    {},
    element("figcaption", {}, "The answer tree: its most probable branches"),
    element("p", { class: "note" }, `The probability, at temperature 1, that an answer begins this way; a verdict marks where an answer may end. In brackets: the sampled answers that begin this way, each counted once; in total, ${answersOfKinds(total)}.`),
    list(branches, hidden),
  );
}
