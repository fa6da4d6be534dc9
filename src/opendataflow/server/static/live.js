// Pages update by themselves: the parts that say `data-live` are fetched again and replaced when they have changed.
// Actions open in a dialog. Everything works without this file, too.
"use strict";
(() => {
  const EVERY = 2000, SLOWEST = 30000;
  const shown = document.getElementById("live");
  let mark = "", pause = EVERY, timer = 0;

  const isInUse = (part) =>
    part.contains(document.activeElement) && /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName) ||
    part.querySelector("input:checked[data-pick]") !== null ||
    (window.getSelection && !window.getSelection().isCollapsed && part.contains(window.getSelection().anchorNode));

  // A part that is being read or filled in stays as it is; the next round finds it.
  const replace = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    let all = true;
    for (const part of document.querySelectorAll("[data-live][id]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.outerHTML === part.dataset.was) continue;
      if (isInUse(part)) { all = false; continue; }
      const open = [...part.querySelectorAll("details")].map((one) => one.open);
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const was = other.outerHTML;
      const scrolled = [...part.querySelectorAll("[data-scroll]")].map((one) => [one.scrollTop, one.scrollTop + one.clientHeight >= one.scrollHeight - 4]);
      part.replaceWith(other);
      other.dataset.was = was;
      other.querySelectorAll("details").forEach((one, at) => { if (open[at] !== undefined) one.open = open[at]; });
      other.querySelectorAll("[data-scroll]").forEach((one, at) => { if (scrolled[at]) one.scrollTop = scrolled[at][1] ? one.scrollHeight : scrolled[at][0]; });
      if (focused) other.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
      other.dispatchEvent(new CustomEvent("live:replaced", { bubbles: true }));
    }
    return all;
  };

  const look = async () => {
    if (!document.hidden && document.querySelector("[data-live]")) {
      try {
        const answer = await fetch(location.href, { headers: mark ? { "If-None-Match": mark, Accept: "text/html" } : { Accept: "text/html" }, cache: "no-store" });
        if (answer.redirected || answer.status === 401) { location.reload(); return; }
        if (answer.status === 200) mark = replace(await answer.text()) ? answer.headers.get("ETag") || "" : "";
        if (shown) shown.textContent = answer.ok || answer.status === 304 ? "live" : "the server has trouble; trying again";
        pause = answer.ok || answer.status === 304 ? EVERY : Math.min(pause * 2, SLOWEST);
      } catch {
        if (shown) shown.textContent = "the server does not answer; trying again";
        pause = Math.min(pause * 2, SLOWEST);
      }
    }
    timer = setTimeout(look, pause);
  };
  timer = setTimeout(look, EVERY);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { clearTimeout(timer); look(); } });

  // Actions ---------------------------------------------------------------------------------------------------------
  const dialog = document.getElementById("dialog");
  const here = () => location.pathname.slice((document.body.dataset.base || "").length) + location.search.replace(/[?&]said=[^&]*/, "");
  const ask = async (href) => {
    const address = new URL(href, location.href);
    address.searchParams.set("then", here() || "/");
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const form = page.getElementById("confirm");
    const title = document.createElement("h2");
    title.textContent = page.querySelector("h1")?.textContent || "Confirm";
    const told = page.createElement("div");
    told.append(...(page.querySelector("main")?.childNodes || []));
    told.querySelector("h1")?.remove();
    dialog.replaceChildren(title, form || told);
    dialog.showModal();
    (dialog.querySelector("input:not([type=hidden]), select") || dialog.querySelector("button[type=submit]") || dialog.querySelector("a"))?.focus();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.action");
    if (link && !event.ctrlKey && !event.metaKey && dialog.showModal) {
      event.preventDefault();
      ask(link.href);
      return;
    }
    if (event.target.closest?.("dialog [data-close]")) { event.preventDefault(); dialog.close(); }
  });
  // A form of class `picked` sends what is ticked to an action's confirmation.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.classList?.contains("picked")) return;
    event.preventDefault();
    const query = new URLSearchParams(new FormData(form, event.submitter));
    ask(`${(event.submitter?.formAction && event.submitter.getAttribute("formaction")) || form.action}?${query}`);
  });
})();
