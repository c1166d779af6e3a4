"""What can hardly be seen in a page: contrasts by WCAG 2, and sizes of text, measured where a browser drew them."""

from playwright.sync_api import Page

TEXT, MARKS = 4.5, 3.0
"""The least contrast to what lies behind (WCAG 2.2, 1.4.3 and 1.4.11)."""
SMALLEST = 9.0
"""Pixels of a letter's height that a person can read on a phone."""

_MEASURE = """([text, marks, smallest]) => {
  const parsed = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return colour.startsWith("color(") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((value, i) => a * value + (1 - a) * under[i]);
  const linear = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => sum + share * linear(colour[i]), 0);
  const contrast = (one, other) => {
    const [low, high] = [one, other].map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (node) => {
    const layers = [];
    for (; node; node = node.parentElement) layers.unshift(parsed(getComputedStyle(node).backgroundColor));
    return layers.reduce((under, layer) => over(layer, under), parsed(getComputedStyle(document.body).backgroundColor));
  };
  const seen = (node) => node.getClientRects().length > 0 && getComputedStyle(node).visibility === "visible";
  const opacity = (node) => {
    let all = 1;
    for (; node; node = node.parentElement) all *= Number(getComputedStyle(node).opacity);
    return all;
  };
  const painted = (style, what, shown) => {
    if (style[what] === "none" || (what === "stroke" && parseFloat(style.strokeWidth) === 0)) return null;
    if (style[what].startsWith("url(")) return null;
    const [r, g, b, a] = parsed(style[what]);
    return [r, g, b, a * Number(style[`${what}Opacity`]) * shown];
  };
  const found = [];
  const name = (node) => {
    const own = (each) => each.id || each.getAttribute("class") || each.getAttribute("aria-label") || each.tagName;
    const figure = node.closest("[aria-label], section, table");
    return `${figure && figure !== node ? own(figure) + " " : ""}${own(node.parentElement)} > ${own(node)}`;
  };
  const note = (node, what, value) => found.push(`${what} ${value.toFixed(2)}: ${name(node)}`);
  const INKS = ["rgb(1, 1, 1)", "rgb(254, 254, 254)"]; // stand in a coloured cell, and were chosen for it

  for (const node of document.querySelectorAll("svg text")) {
    if (!seen(node) || !node.textContent.trim() || opacity(node) === 0) continue;
    for (const part of node.querySelector("tspan") ? node.querySelectorAll("tspan") : [node]) {
      const style = getComputedStyle(part);
      const ink = painted(style, "fill", opacity(part));
      if (!INKS.includes(style.fill)) {
        const value = contrast(over(ink, behind(node)), behind(node));
        if (value < text) note(node, "text", value);
      }
      const matrix = node.getScreenCTM();
      const height = parseFloat(style.fontSize) * Math.hypot(matrix.b, matrix.d);
      if (height < smallest - 0.01) note(node, "height", height);
    }
  }
  for (const node of document.querySelectorAll("svg path, svg use, svg line, svg rect, svg circle")) {
    const matplotlib = 'defs, clipPath, [id*="tick_"], [id*="text_"]';
    const vega = ".role-axis-grid, .background, .role-legend-gradient, .role-frame";
    const behindAll = node.closest("[id*=patch_]")?.id.match(/-patch_1$/);
    if (!seen(node) || node.closest(`${matplotlib}, ${vega}`) || behindAll) continue;
    const [style, shown] = [getComputedStyle(node), opacity(node)];
    const inks = ["fill", "stroke"].map((what) => painted(style, what, shown));
    const layers = inks.filter((ink) => ink && ink[3] > 0);
    if (!layers.length) continue;
    const value = Math.max(...layers.map((layer) => contrast(over(layer, behind(node)), behind(node))));
    if (value < marks) note(node, "mark", value);
  }
  const drawn = (colour, node) => {
    const value = contrast(over(parsed(colour), behind(node.parentElement)), behind(node.parentElement));
    if (value < marks) note(node, "mark", value);
  };
  for (const node of document.querySelectorAll(".rule .band, .rule .mark, .rule .tick")) {
    if (seen(node)) drawn(getComputedStyle(node).backgroundColor, node);
  }
  for (const node of document.querySelectorAll(".tree .bar, .counts td.number")) {
    const image = getComputedStyle(node).backgroundImage;
    if (seen(node) && image !== "none") drawn(image.match(/(?:rgba?|color)\\([^)]*\\)/)[0], node);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !seen(node) || node.closest("svg, script, style")) continue;
    const style = getComputedStyle(node);
    if (parseFloat(style.fontSize) < smallest) note(node, "height", parseFloat(style.fontSize));
    const under = behind(node);
    const value = contrast(over(parsed(style.color), under), under);
    if (value < text) note(node, "text", value);
  }
  return [...new Set(found)];
}"""


def hardly_seen(page: Page) -> list[str]:
    """Texts and marks of too little contrast, and letters that are too small: what it is, its measure, and where.

    A mark counts by its fill or its outline, whichever can be seen better. The lines of a grid need not be seen, and
    what is filled with a scale of colours is told by its outline.
    """
    return list(page.evaluate(_MEASURE, [TEXT, MARKS, SMALLEST]))
