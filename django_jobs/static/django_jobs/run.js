/* Shows how far a run is, and helps it along while the page is open. */
(function () {
  "use strict";
  const run = document.getElementById("dj-run");
  const bar = document.getElementById("dj-run-bar");
  const token = document.querySelector("#dj-run input[name=csrfmiddlewaretoken]");
  const EVERY = 1000;
  const AFTER_ERROR = 5000;
  if (!run || run.dataset.state !== "running") {
    return;
  }

  async function look() {
    let wait = EVERY;
    try {
      const asked = { credentials: "same-origin", headers: {} };
      if (token && run.dataset.may === "yes") {
        asked.method = "POST";
        asked.headers["X-CSRFToken"] = token.value;
      }
      const answer = await fetch(run.dataset.url, asked);
      if (!answer.ok) {
        throw new Error(String(answer.status));
      }
      const progress = await answer.json();
      bar.value = progress.dealt_with;
      for (const place of run.querySelectorAll("[data-progress]")) {
        place.textContent = progress[place.dataset.progress];
      }
      if (progress.state !== "running") {
        window.location.reload();
        return;
      }
    } catch (error) {
      wait = AFTER_ERROR;
    }
    window.setTimeout(look, wait);
  }

  window.setTimeout(look, EVERY);
})();
