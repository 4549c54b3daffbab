// Fetches the changing part of the overview again and again. Without it the page reloads itself.
"use strict";

(() => {
  const live = document.getElementById("dj-live");
  const button = document.getElementById("dj-refresh");
  const updated = document.getElementById("dj-updated");
  let on = true;
  let timer = 0;

  const selecting = () => {
    // Do not replace text that is selected, perhaps to be copied.
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  };

  // What is the same thing before and after: a link by where it leads, the rest by where it stands.
  const focusable = () => [...live.querySelectorAll("a[href], summary, [tabindex]")];
  const name = (one) =>
    one.matches("a") ? `${one.getAttribute("href")} ${one.getAttribute("aria-label") || ""}` :
      `${one.tagName} ${one.closest("details")?.id || one.getAttribute("aria-label") || ""}`;

  const say = (text, bad) => {
    updated.textContent = text;
    updated.classList.toggle("dj-bad", bad);
  };

  const show = (html) => {
    const open = [...live.querySelectorAll("details[open]")].map((one) => one.id);
    const scrolled = [...live.querySelectorAll(".dj-wide")].map((one) => one.scrollLeft);
    const focused = live.contains(document.activeElement) ? name(document.activeElement) : null;
    live.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    for (const id of open) {
      document.getElementById(id)?.setAttribute("open", "");
    }
    if (focused !== null) {
      focusable().find((one) => name(one) === focused)?.focus({ preventScroll: true });
    }
    live.querySelectorAll(".dj-wide").forEach((one, place) => {
      one.scrollLeft = scrolled[place] || 0;
    });
  };

  const refresh = async () => {
    if (on && selecting()) {
      say("Held, as long as text is selected.", false);
    } else if (on && !document.hidden) {
      try {
        const answer = await fetch(live.dataset.url, { headers: { "X-Requested-With": "fetch" } });
        if (!answer.ok || answer.redirected) {
          throw new Error(answer.status);
        }
        show(await answer.text());
        say("", false);
      } catch {
        say("The server did not answer; what you see may be old.", true);
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
