// Vega plots.
let loaded = null;

/** Load Vega when the first plot is drawn. */
function vega() {
  loaded ??= inflated("vega").then((code) => {
    document.head.append(element("script", {}, code));
  });
  return loaded;
}

/** Draw a plot without the layers of empty data sets, which have no extent. */
async function draw(place, specification, datasets) {
  await vega();
  const layer = specification.layer?.filter((each) => datasets[each.data.name]?.length !== 0);
  const drawn = { ...specification, ...(layer ? { layer } : {}), datasets };
  return (await window.vegaEmbed(place, drawn, { mode: "vega-lite", renderer: "svg", actions: false })).view;
}

/** Jitter between 0 and 1 that keeps points from hiding one another; a row always has the same. */
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
  const selects = ["x axis", "y axis", "colour"].map((label, axis) => {
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
    const defined = rows.filter((row) => ![x, y, colour].some((column) => Number.isNaN(column.numbers[row])));
    const points = defined.map((row) => ({
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
    const texts = [["question", "question"], ...(greedy ? [["answer", data.baseline]] : []), ["status", "status"], ...numbers.map((column, index) => [`n${index}`, column.label])];
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
    if (drawing !== drawings) return; // superseded by a newer plot
    place.querySelector("svg")?.setAttribute("aria-hidden", "true"); // the table has the same content
    if (state.chosen) {
      state.chosen = null; // the selection was part of the old plot
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
