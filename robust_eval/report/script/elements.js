// Helpers for all other scripts. Texts from models and data sets are inserted as text, never as markup.
const PAGE = 50; // number of rows shown at first, and added by each click on "Show more"
const $ = (id) => document.getElementById(id);

/** Decompress the text of a script element. */
async function inflated(id) {
  const text = atob($(id).textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Create an element with attributes and children; strings become text, and null children are skipped. */
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

/** Text from a model or a data set, isolated so that its writing direction does not affect the text around it. */
const quoted = (text) => element("bdi", { class: "text", dir: "auto" }, text);
const SIGNS = { right: "✓ right", wrong: "✗ wrong" };
const verdict = (name) => element("span", { class: name in SIGNS ? name : null }, SIGNS[name] ?? name);

/** Format a number for display, the only place that rounds; a number that rounds to zero has no sign. */
const rounded = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "");
const grouped = (number) => number.toLocaleString("en");
const listed = (counts) => counts.map(([name, number]) => `${grouped(number)} ${name}`).join(", ");
const counted = (counts) => counts.reduce((sum, [, number]) => sum + number, 0);
