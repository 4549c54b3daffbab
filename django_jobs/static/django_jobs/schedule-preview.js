"use strict";

// Shows the next runs of the expression that is being edited. A file of its own, so that a
// strict Content-Security-Policy lets it run.
document.addEventListener("DOMContentLoaded", () => {
  const preview = document.getElementById("dj-preview");
  const expression = document.getElementById("id_expression");
  const name = document.getElementById("id_name");
  const zone = document.getElementById("id_timezone");
  if (!preview || !expression || !name || !zone) {
    return;
  }
  const problem = document.getElementById("dj-preview-problem");
  const runs = document.getElementById("dj-preview-runs");
  let asked = 0;
  let timer = 0;

  const show = (result) => {
    problem.textContent = result.problem;
    problem.hidden = !result.problem;
    runs.replaceChildren(
      ...result.runs.map((moment) => {
        const item = document.createElement("li");
        item.textContent = moment;
        return item;
      }),
    );
  };

  const ask = async () => {
    const number = ++asked;
    if (!expression.value.trim()) {
      show({ problem: "", runs: [] });
      return;
    }
    const query = new URLSearchParams({
      expression: expression.value,
      name: name.value,
      timezone: zone.value,
    });
    let result = { problem: "The preview could not be loaded.", runs: [] };
    try {
      const answer = await fetch(`${preview.dataset.url}?${query}`, { credentials: "same-origin" });
      if (answer.ok) {
        result = await answer.json();
      }
    } catch {
      // What is shown says so.
    }
    if (number === asked) {
      show(result);
    }
  };

  const soon = () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(ask, 250);
  };
  expression.addEventListener("input", soon);
  name.addEventListener("input", soon);
  zone.addEventListener("input", soon);
  ask();
});
