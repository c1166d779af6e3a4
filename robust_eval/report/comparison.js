"use strict";
// Each row of questions has a button that shows what the runs' reports say of the question, side by side.
(() => {
  const dialog = document.getElementById("beside");
  const frames = document.getElementById("beside-pages");
  document.querySelectorAll("tbody tr").forEach((row) => {
    const links = [...row.querySelectorAll("a[data-run]")];
    if (links.length < 2) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "side by side";
    button.addEventListener("click", () => {
      frames.replaceChildren(
        ...links.map((link) => {
          const frame = document.createElement("iframe");
          frame.title = `the question in the report of ${link.dataset.run}`;
          frame.src = `${link.href}&alone=1`;
          const figure = document.createElement("figure");
          const caption = document.createElement("figcaption");
          caption.textContent = link.dataset.run;
          figure.append(caption, frame);
          return figure;
        }),
      );
      dialog.showModal();
    });
    row.querySelector("th").append(button);
  });
  document.getElementById("beside-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => frames.replaceChildren());
})();
