// The log of a run grows on its page: what came since is fetched and added, for as long as the run goes on.
"use strict";
(() => {
  const shown = document.getElementById("log");
  if (!shown) return;
  const EVERY = 1000, SLOWEST = 30000, MOST = 2000000;
  let next = Number(shown.dataset.next), pause = EVERY, over = shown.dataset.status !== "RUNNING", last = false;
  const isAtEnd = () => shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 8;
  shown.scrollTop = shown.scrollHeight;
  const put = (facts) => {
    const follow = isAtEnd();
    if (facts.replaces) {
      if (shown.textContent !== facts.text) shown.textContent = facts.text;
    } else if (facts.text) {
      shown.append(facts.text);
      // A page that is left open for a day keeps the end only; the whole is there to download.
      if (shown.textContent.length > MOST) shown.textContent = shown.textContent.slice(-MOST / 2);
    }
    if (follow) shown.scrollTop = shown.scrollHeight;
  };
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(`${shown.dataset.log}?from=${next}`, { headers: { Accept: "application/json" } });
        if (answer.ok) {
          const facts = await answer.json();
          put(facts);
          next = facts.next;
          last = facts.status !== "RUNNING" && !facts.more;
          pause = facts.more ? 0 : EVERY;
        } else {
          pause = Math.min(Math.max(pause, EVERY) * 2, SLOWEST);
        }
      } catch {
        pause = Math.min(Math.max(pause, EVERY) * 2, SLOWEST);
      }
    }
    if (!last) setTimeout(look, pause);
  };
  if (!over) setTimeout(look, EVERY);
})();
