// Inside Airflow's frame the pages take its theme, and link to its runs. As files they need none of this.
// @ts-check
"use strict";
(() => {
  const root = document.documentElement;
  /** @type {Document | null} */
  let found = null;
  try {
    // The frame has Airflow's origin; a page of another origin that embeds this one cannot be read.
    if (window.parent !== window) found = window.parent.document;
  } catch { /* not Airflow */ }
  const airflow = found;

  /** @param {Document} of */
  const theme = (of) => {
    const classes = of.documentElement.classList;
    root.dataset.theme = classes.contains("dark") ? "dark" : "light";
  };
  if (airflow) {
    theme(airflow);
    new MutationObserver(() => theme(airflow)).observe(airflow.documentElement, { attributes: true, attributeFilter: ["class"] });
  }

  // The sandbox of the frame lets no link of its own replace Airflow's page, so Airflow's document follows it.
  /** @param {Document} of @param {HTMLAnchorElement} link */
  const follow = (of, link) => {
    const followed = of.createElement("a");
    followed.href = link.href;
    followed.click();
  };
  document.addEventListener("DOMContentLoaded", () => {
    const served = location.protocol !== "file:" && location.pathname.includes("/data-docs/");
    /** @type {NodeListOf<HTMLAnchorElement>} */
    const links = document.querySelectorAll("a.airflow-run, a.outside");
    for (const link of links) {
      if (link.matches(".airflow-run")) link.hidden = !served;
      if (!airflow) continue;
      link.addEventListener("click", (event) => {
        event.preventDefault();
        follow(airflow, link);
      });
    }
  });
})();
