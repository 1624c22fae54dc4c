// Shows times in the reader's zone beside UTC, puts alerts on top of the table as they arrive, and reads figures again.
// The server writes every row; here nothing is made of values.
// @ts-check
"use strict";
(() => {
  const MOST_ROWS = 200;
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  const isUtc = Intl.DateTimeFormat().resolvedOptions().timeZone === "UTC";

  /** @param {ParentNode} part */
  const localise = (part) => {
    if (isUtc) return;
    for (const time of part.querySelectorAll("time:not([data-local])")) {
      const local = document.createElement("small");
      local.textContent = `${zone.format(new Date(time.getAttribute("datetime") ?? ""))} here`;
      time.append(" ", local);
      time.setAttribute("data-local", "");
    }
  };
  localise(document);

  // What is wider than the window is scrolled, by keyboard, too.
  const reachable = () => {
    for (const wide of document.querySelectorAll(".wide, pre.text")) {
      if (wide.scrollWidth > wide.clientWidth) {
        wide.setAttribute("tabindex", "0");
        wide.setAttribute("role", "region");
        wide.setAttribute("aria-label", "scrolls sideways");
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) wide.removeAttribute(name);
      }
    }
  };
  reachable();
  addEventListener("resize", reachable);

  // What other scripts have put into the page.
  document.addEventListener("fresh", (event) => {
    localise(/** @type {HTMLElement} */ (event.target));
    reachable();
  });

  // A chosen file becomes the text of its form, which is all that is sent.
  /** @type {NodeListOf<HTMLInputElement>} */
  const files = document.querySelectorAll("input[type=file][data-into]");
  for (const chosen of files) {
    const fields = /** @type {Record<string, any>} */ (chosen.form?.elements);
    const { into = "", format = "" } = chosen.dataset;
    /** @type {HTMLElement} */ (chosen.closest("label")).hidden = false;
    chosen.addEventListener("change", async () => {
      const file = chosen.files?.[0];
      if (!file) return;
      fields[into].value = await file.text();
      fields[format].value = file.name.toLowerCase().endsWith(".csv") ? "csv" : "keys";
    });
  }

  // A part that is read again every few seconds, as long as somebody looks, until it says 0.
  /** @param {HTMLElement} part */
  const refresh = async (part) => {
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        /** @type {HTMLElement | null} */
        const fresh = page.querySelector("[data-refresh]");
        part.classList.toggle("stale", !fresh);
        if (fresh) {
          localise(fresh);
          part.replaceChildren(...fresh.childNodes);
          part.dataset.refresh = fresh.dataset.refresh;
          reachable();
        }
      } catch {
        part.classList.add("stale");
      }
    }
    again(part);
  };
  /** @param {HTMLElement} part */
  const again = (part) => {
    const seconds = Number(part.dataset.refresh);
    if (seconds > 0) setTimeout(() => refresh(part), seconds * 1000);
  };
  /** @type {HTMLElement | null} */
  const refreshed = document.querySelector("[data-refresh]");
  if (refreshed) again(refreshed);

  const status = document.getElementById("live");
  const rows = document.getElementById("alerts");
  if (!status || !rows || status.hidden) return;
  const source = new EventSource(status.dataset.address ?? "live");
  let arrived = 0, state = "connecting";
  /** @type {Record<string, () => string>} */
  const texts = {
    connecting: () => "Connecting to Kafka.",
    live: () => (arrived === 0 ? "Live: new alerts appear here as they arrive." : `Live: ${arrived} arrived since the page was opened.`),
    lost: () => "Not live: Kafka cannot be read at present. The page tries again.",
    closed: () => "Not live: the connection to the pages was lost. The page tries again.",
  };
  const say = () => {
    const text = texts[state]();
    if (status.textContent !== text) status.textContent = text;
  };
  source.addEventListener("state", (event) => {
    state = event.data;
    say();
  });
  source.onmessage = (event) => {
    const holder = document.createElement("tbody");
    holder.innerHTML = event.data;
    const row = holder.querySelector("tr");
    if (!row) return;
    document.getElementById(row.id)?.remove();
    localise(row);
    rows.prepend(row);
    while (rows.children.length > MOST_ROWS) rows.lastElementChild?.remove();
    arrived += 1;
    say();
  };
  source.onerror = () => {
    state = "closed";
    say();
  };
})();
