// The heat map of facts: the row selected by pointer or keyboard shows its fact next to the map.
const rowOf = new Map(index.ids.map((id, row) => [id, row]));
const mapped = data.map.map((id) => rowOf.get(id)); // from the top, the most robust first
const area = $("accuracy_by_fact-map");

/** Make the area of the map a slider, from the least to the most robust fact, that selects a row. */
function makeMap() {
  const svg = area.closest("svg");
  const drawn = svg.parentElement;
  const { x, y, width, height } = area.getBBox();
  const whole = svg.viewBox.baseVal;
  const percent = (value, of) => `${(100 * value) / of}%`;
  const mark = element("span", { class: "row" });
  const hint = element("span", { class: "hint", hidden: true });
  const slider = element("div", { class: "rows", role: "slider", tabindex: "0", "aria-orientation": "vertical", "aria-label": "fact, from the least to the most robust", "aria-valuemin": 1, "aria-valuemax": mapped.length }, mark, hint);
  const left = percent(x, whole.width);
  slider.style.cssText = `left: ${left}; top: ${percent(y, whole.height)}; width: ${percent(width, whole.width)}; height: ${percent(height, whole.height)}`;
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", drawn.getAttribute("aria-label"));
  for (const name of ["role", "aria-label", "tabindex"]) drawn.removeAttribute(name); // assistive technology does not enter an image
  const frame = element("div", { class: "map" });
  frame.style.minWidth = svg.style.minWidth;
  frame.append(svg, slider);
  drawn.append(frame);
  drawn.nextElementSibling.append(element("p", {}, "Click a row to see its fact, or move with the arrow keys; Enter opens all its answers."));

  const text = (place) => `${index.texts[mapped[place]] || index.ids[mapped[place]]}`;
  const breaks = (place) => {
    const t = breaking.numbers[mapped[place]];
    return t === Infinity ? "unbroken" : `breaks at t = ${t}`;
  };
  const at = (event) => {
    const box = slider.getBoundingClientRect();
    return Math.min(mapped.length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * mapped.length)));
  };
  let selected = 0;
  const select = (place) => {
    selected = Math.min(mapped.length - 1, Math.max(0, place));
    mark.style.cssText = `top: ${percent(selected, mapped.length)}; height: ${percent(1, mapped.length)}`;
    slider.setAttribute("aria-valuenow", mapped.length - selected);
    slider.setAttribute("aria-valuetext", `${text(selected)} ${breaks(selected)}`);
    $("fact").replaceChildren(...shownFact(mapped[selected]));
  };
  const steps = { ArrowUp: -1, ArrowRight: -1, ArrowDown: 1, ArrowLeft: 1, PageUp: -10, PageDown: 10, Home: Infinity, End: -Infinity };
  slider.addEventListener("keydown", (event) => {
    if (event.key === "Enter") open(mapped[selected]);
    else if (event.key in steps) select(selected + steps[event.key]);
    else return;
    event.preventDefault();
  });
  slider.addEventListener("click", (event) => select(at(event)));
  slider.addEventListener("pointermove", (event) => {
    const place = at(event);
    hint.hidden = event.pointerType === "touch";
    hint.textContent = `${text(place)} (${breaks(place)})`;
    hint.style.top = percent(place + 0.5, mapped.length);
  });
  slider.addEventListener("pointerleave", () => (hint.hidden = true));
  select(Math.floor(mapped.length / 2));
}

/** The fact next to the map: its question (a link to its row in the table), its metrics and its curve. */
function shownFact(row) {
  const question = index.texts[row] ? quoted(index.texts[row]) : quoted(index.ids[row]);
  const detail = detailed[row];
  return [
    element("h2", {}, element("button", { type: "button", class: "question", onclick: () => open(row) }, element("span", { "aria-hidden": "true", class: "mark" }, "▸"), question)),
    ...(detail ? [factsOf(detail, row), curveOf(detail, row)] : [makeBareDetail(row)]),
  ];
}

if (area && mapped.length) makeMap();
