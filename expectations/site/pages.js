// Inside Airflow's frame the pages take its theme, and link to its runs. As files they need none of this.
"use strict";
(() => {
  const root = document.documentElement;
  let airflow = null;
  try {
    // The frame has Airflow's origin; a page of another origin that embeds this one cannot be read.
    if (window.parent !== window) airflow = window.parent.document;
  } catch { /* not Airflow */ }

  const theme = () => {
    const classes = airflow.documentElement.classList;
    root.dataset.theme = classes.contains("dark") ? "dark" : "light";
  };
  if (airflow) {
    theme();
    new MutationObserver(theme).observe(airflow.documentElement, { attributes: true, attributeFilter: ["class"] });
  }

  // The sandbox of the frame lets no link of its own replace Airflow's page, so Airflow's document follows it.
  const follow = (event) => {
    event.preventDefault();
    const link = airflow.createElement("a");
    link.href = event.currentTarget.href;
    link.click();
  };
  document.addEventListener("DOMContentLoaded", () => {
    const served = location.protocol !== "file:" && location.pathname.includes("/data-docs/");
    for (const link of document.querySelectorAll("a.airflow-run")) link.hidden = !served;
    if (airflow) for (const link of document.querySelectorAll("a.airflow-run, a.outside")) link.addEventListener("click", follow);
  });
})();
