"use strict";
// The questions of a run: a table that sorts, filters and searches, opens each question, and is drawn as points.
// All texts come from models and data sets: they are set as text, never as markup.
(async () => {
  const PAGE = 50; // rows shown at first, and more at a time
  const $ = (id) => document.getElementById(id);

  /** The text of a script element that holds it compressed. */
  async function inflated(id) {
    const text = atob($(id).textContent.trim());
    const bytes = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  /** An element with attributes and children; strings become text. Null children are left out. */
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return made;
  }

  /** A text from elsewhere: set apart, so that it cannot turn the direction of its neighbours. */
  const quoted = (text) => element("bdi", { class: "text", dir: "auto" }, text);
  const SIGNS = { right: "✓ right", wrong: "✗ wrong" };
  const verdict = (said) => element("span", { class: said in SIGNS ? said : null }, SIGNS[said] ?? said);

  /** A number as it is shown, rounded here alone; what rounds to zero has no sign. */
  const rounded = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "");
  const grouped = (number) => number.toLocaleString("en");
  const listed = (parted) => parted.map(([said, number]) => `${grouped(number)} ${said}`).join(", ");
  const counted = (parted) => parted.reduce((sum, [, number]) => sum + number, 0);

  // A row is a question of the index. Those in `rows` are shown in full; of the others the index knows all that is here.
  const [index, data] = await Promise.all(["question-index", "question-data"].map(async (id) => JSON.parse(await inflated(id))));
  const rows = index.shown;
  const all = index.ids.map((_, row) => row);
  const asked = Number($("question-table").dataset.asked);
  const number = (value) => (value === null ? NaN : Number(value));
  const spread = (values, otherwise) => {
    const found = Array(all.length).fill(otherwise);
    rows.forEach((row, place) => (found[row] = values[place]));
    return found;
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
    if (Number.isNaN(value)) return "–";
    return value === Infinity ? "unbroken" : rounded(value, column.digits);
  }

  // ------------------------------------------------------------------------------------------------ table

  const state = { sort: null, descending: false, search: "", filters: {}, chosen: null, most: PAGE, opened: new Set() };

  const columns = [
    { label: "question", cell: (row) => questionButton(row), value: (row) => index.texts[row].toLowerCase() },
    ...(greedy
      ? [
          {
            label: "greedy answer",
            cell: (row) => (detailed[row] ? quoted(answer(row)) : element("small", {}, "not in this page")),
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

  const first = columns.find((column) => column.number) ?? null;
  state.sort = first; // what matters first: the least robust, the most divided

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

  /** Undefined values stand last, whichever way the others run. */
  function compared(one, other) {
    const [a, b] = [one, other].map(state.sort.value);
    const undefinedLast = Number.isNaN(a) - Number.isNaN(b);
    if (undefinedLast) return undefinedLast;
    const order = a < b ? -1 : a > b ? 1 : 0;
    return (state.descending ? -order : order) || one - other;
  }

  /** What is asked for: of all questions where some are searched, otherwise of those shown in full; first one with that id. */
  function found() {
    const wanted = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = (wanted.length ? all : rows).filter(
      (row) =>
        wanted.every((word) => searched[row].includes(word)) &&
        Object.entries(state.filters).every(([name, value]) => value === "" || words[name][row] === value) &&
        (state.chosen === null || state.chosen.has(row)),
    );
    const sorted = state.sort ? matching.sort(compared) : matching;
    const named = sorted.findIndex((row) => index.ids[row] === state.search.trim());
    return named > 0 ? [...sorted.splice(named, 1), ...sorted] : sorted;
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
      state.most += PAGE;
      drawRows();
    },
  });

  /** Write into the address what is opened, searched, filtered and sorted, so that it can be shared. */
  function writeAddress() {
    const said = new URLSearchParams();
    const last = [...state.opened].at(-1);
    if (last !== undefined) said.set("q", index.ids[last]);
    if (state.search) said.set("search", state.search);
    for (const [name, value] of Object.entries(state.filters)) if (value) said.set(name, value);
    if (state.sort && (state.sort !== first || state.descending)) said.set("sort", `${state.descending ? "-" : ""}${state.sort.label}`);
    const address = said.size ? `#${said}` : "";
    if (!address && !/^#(q|search|sort|status|type|category)=/.test(location.hash)) return;
    if (location.protocol === "about:") return; // inside of another page there is no address
    history.replaceState(null, "", address || location.pathname + location.search);
  }

  /** Do what the address asks for. */
  function readAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    state.search = search.value = said.get("search") ?? state.search;
    for (const select of document.querySelectorAll("#questions-controls select[id^=filter]")) {
      const name = select.id.replace("filter-", "");
      if (said.has(name)) state.filters[name] = select.value = said.get(name);
    }
    const sort = said.get("sort");
    const column = columns.find((each) => each.label === sort?.replace(/^-/, ""));
    if (column) Object.assign(state, { sort: column, descending: sort.startsWith("-") });
    document.body.classList.toggle("alone", said.has("alone"));
    const row = said.has("q") ? index.ids.indexOf(said.get("q")) : -1;
    if (row >= 0) open(row);
    else drawRows();
  }

  function drawRows() {
    const matching = found();
    writeAddress();
    heads.forEach((head, place) => {
      const sorted = state.sort === columns[place];
      head.setAttribute("aria-sort", sorted ? (state.descending ? "descending" : "ascending") : "none");
    });
    body.replaceChildren(
      ...matching.slice(0, state.most).flatMap((row) => [
        element("tr", {}, ...columns.map((column) => element("td", { class: column.number ? "number" : null }, column.cell(row)))),
        ...(state.opened.has(row)
          ? [element("tr", { class: "opened" }, element("td", { colspan: columns.length }, detailOf(row)))]
          : []),
      ]),
    );
    const shown = Math.min(state.most, matching.length);
    status.textContent = `${grouped(shown)} of ${grouped(matching.length)} questions shown${coverage(matching)}.`;
    more.hidden = shown === matching.length;
    more.textContent = `Show ${Math.min(PAGE, matching.length - shown)} more`;
  }

  /** What the questions that match were taken from, where that is not plain. */
  function coverage(matching) {
    const covered = state.search.trim() ? all.length : rows.length;
    const fewer = matching.length < covered;
    if (rows.length === asked) return fewer ? `, out of ${grouped(asked)}` : "";
    if (covered < asked) return `${fewer ? `, out of ${grouped(covered)}` : ""} in this table (${grouped(asked)} were asked)`;
    const bare = matching.filter((row) => !detailed[row]).length;
    return `${fewer ? `, out of all ${grouped(asked)}` : ""}${bare ? `; the answers to ${grouped(bare)} of them are not in this page` : ""}`;
  }

  function changed() {
    state.most = PAGE;
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
  const filters = ["status", "type", "category"]
    .filter((name) => words[name] && new Set(words[name]).size > 1)
    .map((name) => {
      const select = element(
        "select",
        {
          id: `filter-${name}`,
          onchange: () => {
            state.filters[name] = select.value;
            changed();
          },
        },
        element("option", { value: "" }, "all"),
        ...[...new Set(words[name])].filter(Boolean).sort().map((value) => element("option", { value }, value)),
      );
      return element("label", {}, `${name} `, select);
    });

  /** Show a question wherever it is: without filters that hide it, by a search where the table lacks it, and as many
   * rows as that takes. */
  function open(row) {
    if (!found().includes(row)) {
      Object.assign(state, { search: detailed[row] ? "" : index.ids[row], filters: {}, chosen: null });
      search.value = state.search;
      document.querySelectorAll("#questions select[id^=filter]").forEach((select) => (select.value = ""));
    }
    state.most = Math.max(state.most, Math.ceil((found().indexOf(row) + 1) / PAGE) * PAGE);
    state.opened.add(row);
    drawRows();
    const button = body.querySelector(`button[data-row="${row}"]`);
    button.scrollIntoView({ block: "start" });
    button.focus({ preventScroll: true });
  }

  // ------------------------------------------------------------------------------------------------ a question

  const details = new Map();

  /** What is known of a question, made when it is first opened. */
  function detailOf(row) {
    if (!details.has(row)) details.set(row, makeDetail(row));
    return details.get(row);
  }

  function makeDetail(row) {
    const detail = detailed[row];
    if (!detail) return makeBareDetail(row);
    const accepted = detail.choices
      ? detail.choices.map((choice, place) => element("div", {}, quoted(choice), place === detail.correct ? " (right)" : ""))
      : detail.answers.flatMap((answer, place) => [place ? "; " : "", quoted(answer)]);
    const facts = [["id", quoted(detail.id)], [detail.choices ? "choices" : "accepted answers", accepted.length ? accepted : "none"]];
    if (detail.greedy) facts.push(["greedy answer", [quoted(answer(row)), " ", verdict(detail.greedy[1])]]);
    for (const column of numbers) facts.push([column.label, shownNumber(column, row), column.about]);
    const context = detail.context
      ? element("details", {}, element("summary", {}, "the passage that it is about"), element("p", {}, quoted(detail.context)))
      : null;
    const prompt = detail.prompt
      ? element("details", {}, element("summary", {}, "the prompt as it was sent"), element("pre", {}, quoted(detail.prompt)))
      : null;
    return element(
      "div",
      { class: "detail" },
      listOf(facts),
      element("p", {}, copied("copy as JSON", () => JSON.stringify(asJson(row), null, 2)), " ", copied("copy a link", () => linkTo(row))),
      prompt,
      context,
      detail.curve ? curveOf(detail, row) : null,
      ...Object.entries(detail.samplers).map(([name, answers]) => answersOf(name, answers, detail.wordings, row)),
      detail.tree ? treeOf(detail.tree) : null,
    );
  }

  /** All that the page knows of a question. */
  const asJson = (row) => ({
    ...detailed[row],
    question: index.texts[row],
    ...Object.fromEntries(Object.entries(words).map(([name, values]) => [name, values[row]])),
    figures: Object.fromEntries(numbers.map((column) => [column.name, Number.isNaN(column.numbers[row]) ? null : column.numbers[row]])),
  });
  const linkTo = (row) => `${location.href.split("#")[0]}#${new URLSearchParams({ q: index.ids[row] })}`;

  /** A button that puts a text on the clipboard, or shows it where there is none. */
  function copied(label, text) {
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(text());
        button.textContent = "copied";
      } catch {
        const shown = element("textarea", { readonly: true, rows: 6, "aria-label": label }, text());
        button.replaceWith(shown);
        shown.select();
      }
    };
    const button = element("button", { type: "button", onclick: copy }, label);
    return button;
  }

  /** Of a question that is not shown in full: what the index says, and where the rest is. */
  function makeBareDetail(row) {
    const facts = [["id", quoted(index.ids[row])], ...Object.keys(words).map((name) => [name, words[name][row] || "none"])];
    if (numbers.length) facts.push([numbers[0].label, shownNumber(numbers[0], row), numbers[0].about]);
    const rest = ["Its answers and other figures are not in this page. They are in graded.parquet and questions.parquet, in the rows whose question_id is ", quoted(index.ids[row]), "."];
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
    const bounded = detail.curve.told?.some(([, , , , lower, upper]) => lower > 0 || upper < 1); // else nothing is certain
    const breaking = numbers.find((column) => column.name === "breaking").numbers[row];
    draw(place, data.curve, {
      counted: named(detail.curve.counted, "t", "accuracy", "low", "high"),
      told: named(detail.curve.told, "t", "accuracy", "low", "high"),
      bounds: bounded ? named(detail.curve.told, "t", "", "", "", "lower", "upper") : [],
      breaking: Number.isFinite(breaking) ? [{ t: breaking }] : [],
    });
    const said = [
      detail.curve.counted ? "Points: share of right trials, with Wilson's 95 % interval." : "",
      detail.curve.told ? "Line: from the model's probabilities, ± 1.96 standard errors." : "",
      bounded ? "Pale: bounds that are certain." : "",
      "Dashed: where a fact breaks, and at which temperature this one does.",
    ];
    return element("figure", {}, element("figcaption", {}, "Accuracy against temperature"), place, element("p", { class: "note" }, said.filter(Boolean).join(" ")));
  }

  /** The answers of one sampler: how often each came, at which temperature, to which wording; all of them by verdict. */
  function answersOf(name, answers, wordings, row) {
    const reworded = answers.rows.some(([rewrite]) => rewrite > 0);
    const labelled = answers.labels;
    const several = answers.temperatures.length > 1;
    const whole = answers.temperatures.map((_, t) =>
      Math.max(...answers.rows.map((answer) => Number(answer[6][t])), ...answers.others.map((other) => Number(other[2][t])), 1e-9),
    );
    const wording = (rewrite) => (rewrite === 0 ? index.texts[row] : (wordings[rewrite - 1] ?? `rewrite ${rewrite}`));
    const heading = [
      ...(reworded ? ["asked"] : []),
      "answer",
      ...(labelled ? ["means"] : []),
      "verdict",
      ...answers.temperatures.map((t) => (several ? `t = ${t}` : `times at t = ${t}`)),
    ];
    const count = (value, t) =>
      element(
        "td",
        { class: "number", style: `--share:${((100 * value) / whole[t]).toFixed(0)}%` },
        value,
      );
    const before = heading.length - answers.temperatures.length - 1; // columns in front of the verdicts
    let last = null;
    const lines = answers.rows.map(([rewrite, text, label, said, outcome, won, counts, cut]) => {
      const again = rewrite === last;
      last = rewrite;
      return element(
        "tr",
        {},
        reworded ? element("td", {}, again ? "" : quoted(wording(rewrite))) : null,
        element("td", {}, outcome === "ok" || text ? quoted(text) : "", outcome === "ok" ? "" : ` (${outcome.replace("_", " ")})`, won && reworded ? " (voted for)" : "", cut ? element("small", {}, ` (cut ${cut} times)`) : ""),
        labelled ? element("td", {}, label) : null,
        element("td", {}, verdict(said)),
        ...counts.map(count),
      );
    });
    for (const [said, number, counts] of answers.others)
      lines.push(
        element("tr", {}, element("td", { colspan: before }, `${number} other${number === 1 ? " answer" : " answers"}`), element("td", {}, verdict(said)), ...counts.map(count)),
      );
    const sums = answers.whole.map(([said, counts], place) =>
      element(
        "tr",
        {},
        element("th", { scope: "row", colspan: before }, place ? "" : "all answers"),
        element("td", {}, verdict(said)),
        ...counts.map((value) => element("td", { class: "number" }, value)),
      ),
    );
    return element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `answers of ${name}` },
      element(
        "table",
        { class: "counts" },
        element("caption", {}, `Answers: ${name.replaceAll("_", " ")}`),
        element("thead", {}, element("tr", {}, ...heading.map((text) => element("th", { scope: "col", class: text.includes("t = ") ? "number" : null }, text)))),
        element("tbody", {}, ...lines),
        lines.length > sums.length ? element("tfoot", {}, ...sums) : null, // else they say the same
      ),
    );
  }

  function treeOf([, , , seen, hidden, branches]) {
    const list = (branches, hidden) =>
      element(
        "ul",
        { class: "tree" },
        ...branches.map(([text, percent, said, seen, hidden, next]) =>
          element(
            "li",
            {},
            element("span", { class: "bar", style: `--share:${percent}%`, "aria-hidden": "true" }),
            element("span", { class: "share" }, `${percent} %`),
            " ",
            quoted(text.replaceAll(" ", "␣").replaceAll("\n", "⏎")),
            " ",
            said ? verdict(said) : "",
            counted(seen) > 1 ? element("small", {}, ` (${answersOfKinds(seen)})`) : null,
            next.length || hidden.length ? list(next, hidden) : null,
          ),
        ),
        hidden.length ? element("li", {}, element("small", {}, `not shown: ${answersOfKinds(hidden)}`)) : null,
      );
    const answersOfKinds = (parted) => `${grouped(counted(parted))} ${counted(parted) === 1 ? "answer" : "answers"}: ${listed(parted)}`;
    return element(
      "figure",
      {},
      element("figcaption", {}, "The answer tree: its most probable branches"),
      element("p", { class: "note" }, `The probability, at temperature 1, that an answer begins so; a verdict stands where an answer may end. In brackets: the answers seen that begin so, each counted once, in all ${answersOfKinds(seen)}.`),
      list(branches, hidden),
    );
  }

  // ------------------------------------------------------------------------------------------------ drawings

  let loaded = null;

  /** Vega is read when the first drawing is wanted. */
  function vega() {
    loaded ??= inflated("vega").then((code) => {
      document.head.append(element("script", {}, code));
    });
    return loaded;
  }

  /** Layers of data sets that are empty are left out: they have no extent. */
  async function draw(place, specification, datasets) {
    await vega();
    const layer = specification.layer?.filter((each) => datasets[each.data.name]?.length !== 0);
    const drawn = { ...specification, ...(layer ? { layer } : {}), datasets };
    return (await window.vegaEmbed(place, drawn, { mode: "vega-lite", renderer: "svg", actions: false })).view;
  }

  /** Between 0 and 1, and always the same for a row: points that would hide one another are set a little apart. */
  const scattered = (row, salt) => Math.abs(Math.sin(row * 12.9898 + salt * 78.233) * 43758.5453) % 1;

  function axisOf(column, salt) {
    const values = rows.map((row) => column.numbers[row]);
    const levels = [...new Set(values.filter(Number.isFinite))].sort((a, b) => a - b);
    const gap = levels.length > 1 ? Math.min(...levels.slice(1).map((level, i) => level - levels[i])) : 1;
    const few = levels.length <= 25;
    const step = column.levels.length > 1 ? column.levels[1] - column.levels[0] : 1;
    const last = column.levels.at(-1) ?? levels.at(-1) ?? 1;
    const beyond = values.includes(Infinity) ? last + 1.5 * step : null;
    const at = (row) => {
      const value = column.numbers[row] === Infinity ? beyond : column.numbers[row];
      return value + (few ? (scattered(row, salt) - 0.5) * 0.5 * gap : 0);
    };
    const axis = beyond === null ? {} : { values: [...column.levels, beyond], labelExpr: `datum.value > ${last} ? 'unbroken' : format(datum.value, '~g')` };
    return { at, axis: { title: column.label, ...axis } };
  }

  const place = $("scatter");
  if (place && numbers.length > 1) {
    const chosen = data.axes.map((name) => numbers.findIndex((column) => column.name === name));
    const selects = ["across", "up", "colour"].map((label, axis) => {
      const select = element(
        "select",
        {
          id: `axis-${axis}`,
          onchange: () => {
            chosen[axis] = Number(select.value);
            drawScatter();
          },
        },
        ...numbers.map((column, index) => element("option", { value: index, selected: index === chosen[axis] }, column.label)),
      );
      return element("label", {}, `${label} `, select);
    });
    $("scatter-controls").append(...selects);

    let drawings = 0;
    const drawScatter = async () => {
      const drawing = ++drawings;
      const [x, y, colour] = chosen.map((index) => numbers[index]);
      const [across, up] = [axisOf(x, 1), axisOf(y, 2)];
      const known = rows.filter((row) => ![x, y, colour].some((column) => Number.isNaN(column.numbers[row])));
      const points = known.map((row) => ({
        row,
        x: across.at(row),
        y: up.at(row),
        colour: colour.numbers[row] === Infinity ? (colour.levels.at(-1) ?? 1) : colour.numbers[row],
        question: index.texts[row].slice(0, 120),
        answer: answer(row).slice(0, 120),
        status: words.status[row],
        ...Object.fromEntries(numbers.map((column, index) => [`n${index}`, shownNumber(column, row)])),
      }));
      const encoding = data.scatter.encoding;
      const texts = [["question", "question"], ...(greedy ? [["answer", "greedy answer"]] : []), ["status", "status"], ...numbers.map((column, index) => [`n${index}`, column.label])];
      const view = await draw(
        place,
        {
          ...data.scatter,
          encoding: {
            x: { ...encoding.x, axis: { ...encoding.x.axis, ...across.axis } },
            y: { ...encoding.y, axis: { ...encoding.y.axis, ...up.axis } },
            color: { ...encoding.color, legend: { title: colour.label } },
            tooltip: texts.map(([field, title]) => ({ field, title, type: "nominal" })),
          },
        },
        { points },
      );
      if (drawing !== drawings) return; // another was asked for since
      place.querySelector("svg")?.setAttribute("aria-hidden", "true"); // the table says the same
      if (state.chosen) {
        state.chosen = null; // the rectangle went with the old drawing
        changed();
      }
      view.addEventListener("click", (_, item) => item?.datum?.row !== undefined && open(item.datum.row));
      view.addSignalListener("chosen", (_, rectangle) => {
        const within = (value, range) => value >= Math.min(...range) && value <= Math.max(...range);
        state.chosen =
          rectangle.x && rectangle.y
            ? new Set(points.filter((point) => within(point.x, rectangle.x) && within(point.y, rectangle.y)).map((point) => point.row))
            : null;
        changed();
      });
    };
    const near = new IntersectionObserver((seen) => {
      if (seen.some((entry) => entry.isIntersecting)) {
        near.disconnect();
        drawScatter();
      }
    }, { rootMargin: "400px" });
    near.observe(place);
  }

  // ------------------------------------------------------------------------------------------------ page

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
      element("summary", {}, "what the columns say"),
      element(
        "dl",
        { class: "about" },
        ...columns.filter((column) => column.about).map((column) => element("div", {}, element("dt", {}, column.label), element("dd", {}, column.about))),
      ),
    ),
  );
  readAddress();
  addEventListener("hashchange", readAddress);

  const place_of = new Map(index.ids.map((id, row) => [id, row]));
  document.querySelectorAll("[data-question]").forEach((cell) => {
    const row = place_of.get(cell.dataset.question);
    if (row === undefined) return;
    const text = cell.textContent;
    cell.replaceChildren(element("button", { type: "button", class: "question", onclick: () => open(row) }, quoted(text)));
  });
  document.querySelectorAll("nav a").forEach((link) =>
    link.addEventListener("click", (event) => {
      event.preventDefault(); // where the page is shown inside of another, addresses cannot be followed
      document.querySelector(link.getAttribute("href")).scrollIntoView();
    }),
  );
})();
