// What all others build with. Texts from models and data sets are set as text, never as markup.
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
const verdict = (name) => element("span", { class: name in SIGNS ? name : null }, SIGNS[name] ?? name);

/** A number as it is shown, rounded here alone; what rounds to zero has no sign. */
const rounded = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "");
const grouped = (number) => number.toLocaleString("en");
const listed = (counts) => counts.map(([name, number]) => `${grouped(number)} ${name}`).join(", ");
const counted = (counts) => counts.reduce((sum, [, number]) => sum + number, 0);
