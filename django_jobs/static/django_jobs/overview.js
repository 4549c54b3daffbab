// Fetches the changing part of the overview again and again. Without it the page reloads itself.
"use strict";

(() => {
  const live = document.getElementById("dj-live");
  const button = document.getElementById("dj-refresh");
  const updated = document.getElementById("dj-updated");
  let on = true;
  let timer = 0;

  const busy = () => {
    // Nothing is taken away from under somebody's hands.
    const selection = document.getSelection();
    const focused = live.contains(document.activeElement) && document.activeElement.matches("a, summary");
    return focused || (selection && !selection.isCollapsed);
  };

  const show = (html) => {
    const open = [...live.querySelectorAll("details[open]")].map((one) => one.id);
    const scrolled = [...live.querySelectorAll(".dj-wide")].map((one) => one.scrollLeft);
    live.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    for (const id of open) {
      document.getElementById(id)?.setAttribute("open", "");
    }
    live.querySelectorAll(".dj-wide").forEach((one, place) => {
      one.scrollLeft = scrolled[place] || 0;
    });
  };

  const refresh = async () => {
    if (on && !document.hidden && !busy()) {
      try {
        const answer = await fetch(live.dataset.url, { headers: { "X-Requested-With": "fetch" } });
        if (!answer.ok || answer.redirected) {
          throw new Error(answer.status);
        }
        show(await answer.text());
        updated.textContent = "";
        updated.classList.remove("dj-bad");
      } catch {
        updated.textContent = "The server did not answer; what you see may be old.";
        updated.classList.add("dj-bad");
      }
    }
    timer = window.setTimeout(refresh, live.dataset.seconds * 1000);
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    on = !on;
    button.textContent = on ? "Stop refreshing" : "Refresh by itself";
    window.clearTimeout(timer);
    if (on) {
      refresh();
    }
  });
  timer = window.setTimeout(refresh, live.dataset.seconds * 1000);
})();
