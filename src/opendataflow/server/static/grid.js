// The grid of dataset × dataid, drawn on a canvas: only what is in sight is fetched and drawn, however much there is.
// Two shapes: `slots` (a line per dataset, a column per dataid) and `block` (one dataset, wrapped into lines).
"use strict";
(() => {
  const root = document.getElementById("grid");
  if (!root) return;
  const base = document.body.dataset.base || "";
  const first = JSON.parse(root.dataset.first), isBlock = root.dataset.mode === "block", only = root.dataset.only || "";
  const query = new URLSearchParams(root.dataset.query || ""), kind = root.dataset.kind;
  const TILE_ROWS = 40, TILE_COLUMNS = 50, TILE_CELLS = 2000, EVERY = 2000, ANEW = 30000;
  const STATUS = Object.fromEntries(Object.entries(first.letters).map(([status, letter]) => [letter, status]));
  const COLOURS = { R: "--good", F: "--bad", U: "--busy", S: "--again", H: "--held", P: "--pending", G: "--gap" };

  const scroll = root.querySelector(".grid-scroll"), space = root.querySelector(".grid-space");
  const canvas = root.querySelector("canvas"), said = root.querySelector(".grid-said"), tip = root.querySelector(".grid-tip");
  const ink = canvas.getContext("2d");
  const size = { rows: 0, columns: 0, cells: 0 };
  const focus = { row: 0, column: 0, shown: false };
  const tiles = new Map(), asked = new Map();
  let upto = first.upto, colours = {}, head = 0, side = 0, cell = 16, line = 16, wide = 0, high = 0, drawing = 0, grown = 0, untold = false;

  // Letters -----------------------------------------------------------------------------------------------------------
  const unfold = (text) => {
    const found = [];
    for (const [, number, letter] of text.matchAll(/(\d*)(\D)/g)) for (let n = Number(number || 1); n > 0; n--) found.push(letter);
    return found;
  };

  // Tiles -------------------------------------------------------------------------------------------------------------
  const keep = (told) => {
    upto = Math.min(upto, told.upto);
    if (isBlock) {
      size.cells = told.size;
      const cells = unfold(told.cells);
      for (let at = 0; at < cells.length; at += TILE_CELLS) {
        const number = (told.start + at) / TILE_CELLS;
        const dataids = told.dataids.slice(at, at + TILE_CELLS);
        tiles.set(number, { cells: cells.slice(at, at + TILE_CELLS), dataids, index: new Map(dataids.map((one, n) => [one, n])),
          number: told.first_number === null ? null : told.first_number + at, width: told.width, stale: false });
      }
    } else {
      [size.rows, size.columns] = [told.rows, told.columns];
      const all = told.lines.map((one) => ({ ...one, cells: unfold(one.cells) }));
      const columns = Math.max(0, ...all.map((one) => one.cells.length), told.dataids.length);
      for (let down = 0; down < Math.max(all.length, 1); down += TILE_ROWS) {
        for (let across = 0; across < Math.max(columns, 1); across += TILE_COLUMNS) {
          const lines = all.slice(down, down + TILE_ROWS).map((one) => ({ ...one, cells: one.cells.slice(across, across + TILE_COLUMNS),
            dataids: one.dataids && one.dataids.slice(across, across + TILE_COLUMNS) }));
          tiles.set(`${(told.row + down) / TILE_ROWS},${(told.column + across) / TILE_COLUMNS}`,
            { lines, dataids: told.dataids.slice(across, across + TILE_COLUMNS), stale: false });
        }
      }
    }
  };
  const fetchTile = async (name) => {
    if (asked.has(name)) return;
    const stop = new AbortController();
    asked.set(name, stop);
    try {
      const [row, column] = isBlock ? [0, 0] : name.split(",").map(Number);
      const wanted = new URLSearchParams(query);
      if (isBlock) { wanted.set("start", name * TILE_CELLS); wanted.set("count", TILE_CELLS); }
      else {
        for (const [key, value] of Object.entries({ kind, row: row * TILE_ROWS, rows: TILE_ROWS, column: column * TILE_COLUMNS, columns: TILE_COLUMNS })) wanted.set(key, value);
      }
      const answer = await fetch(`${base}/v1/grid${root.dataset.path}?${wanted}`, { signal: stop.signal });
      if (answer.ok) { keep(await answer.json()); plan(); }
    } catch (error) {
      if (error.name !== "AbortError") setTimeout(plan, 3000);
    } finally { asked.delete(name); }
  };
  const named = (row, column) => {  // what is at a place: its letter, dataset and dataid
    if (isBlock) {
      const at = row * perLine() + column;
      if (column >= perLine() || at < 0 || at >= size.cells) return null;
      const tile = tiles.get(Math.floor(at / TILE_CELLS)), n = at % TILE_CELLS;
      if (!tile) return { at, letter: "" };
      const dataid = tile.number === null ? tile.dataids[n] : String(tile.number + n).padStart(tile.width, "0");
      return { at, letter: tile.cells[n] || ".", project: first.project, dataset: first.dataset, dataid };
    }
    if (row < 0 || row >= size.rows || column < 0 || column >= size.columns) return null;
    const tile = tiles.get(`${Math.floor(row / TILE_ROWS)},${Math.floor(column / TILE_COLUMNS)}`);
    const one = tile && tile.lines[row % TILE_ROWS];
    if (!one) return { letter: "" };
    const dataid = (one.dataids || tile.dataids)[column % TILE_COLUMNS];
    return { letter: one.cells[column % TILE_COLUMNS] || ".", project: one.project, dataset: one.dataset, dataid };
  };
  const lineOf = (row) => {
    for (const [name, tile] of tiles) if (name.startsWith?.(`${Math.floor(row / TILE_ROWS)},`)) return tile.lines[row % TILE_ROWS];
    return undefined;
  };

  // Layout ------------------------------------------------------------------------------------------------------------
  const STEPS = { daily: 7, hourly: 24, monthly: 12, numbered: 10, other: 10 };
  const perLine = () => {
    const fit = Math.max(1, Math.floor((wide - side) / cell)), whole = STEPS[kind] || 10, step = fit > 2 * whole ? whole : whole / 2 | 0;
    return fit > step ? fit - fit % step : fit;
  };
  const lines = () => isBlock ? Math.ceil(size.cells / perLine()) : size.rows;
  const across = () => isBlock ? perLine() : size.columns;
  const lay = () => {
    const narrow = root.clientWidth < 560;
    side = isBlock ? (narrow ? 78 : 104) : narrow ? 116 : Math.min(260, Math.max(150, root.clientWidth * 0.18));
    head = isBlock ? 5 : 30;
    cell = isBlock ? 15 : Math.max(2, Math.min(24, Math.max(17, Math.floor((scroll.clientWidth - side - 12) / Math.max(1, size.columns))), Math.floor(12e6 / Math.max(1, size.columns))));
    line = isBlock ? 15 : 21;
    wide = scroll.clientWidth;
    const room = Math.max(160, Math.round(window.innerHeight * (narrow ? 0.6 : 0.66)));
    space.style.width = isBlock ? "1px" : `${side + size.columns * cell + 8}px`;
    space.style.height = `${head + lines() * line + 8}px`;
    scroll.style.height = `${Math.min(room, head + lines() * line + 26)}px`;
    wide = scroll.clientWidth; high = scroll.clientHeight;
    const sharp = window.devicePixelRatio || 1;
    canvas.width = wide * sharp; canvas.height = high * sharp;
    canvas.style.width = `${wide}px`; canvas.style.height = `${high}px`;
    ink.setTransform(sharp, 0, 0, sharp, 0, 0);
  };
  const paint = () => {  // the style sheet's colours, light or dark
    const probe = document.createElement("span");
    root.append(probe);
    const read = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    colours = Object.fromEntries(Object.entries(COLOURS).map(([letter, name]) => [letter, read(name)]));
    Object.assign(colours, { text: read("--text"), quiet: read("--quiet"), line: read("--line"), card: read("--card"), page: read("--page"), link: read("--link") });
    probe.remove();
  };
  const seen = () => {  // what is in sight
    const row = Math.floor(scroll.scrollTop / line), column = isBlock ? 0 : Math.floor(scroll.scrollLeft / cell);
    return {
      row, toRow: Math.min(lines() - 1, row + Math.ceil((high - head) / line)),
      column, toColumn: isBlock ? perLine() - 1 : Math.min(size.columns - 1, column + Math.ceil((wide - side) / cell)),
    };
  };

  // Drawing -----------------------------------------------------------------------------------------------------------
  const plan = () => { if (!drawing) drawing = requestAnimationFrame(() => { drawing = 0; draw(); }); };
  const cut = (text, room) => {
    if (ink.measureText(text).width <= room) return text;
    let kept = text;
    while (kept && ink.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
    return `${kept}…`;
  };
  const drawCell = (letter, x, y) => {
    const w = cell - (cell > 4 ? 2 : 0), h = line - (isBlock ? 2 : 4), upper = letter.toUpperCase();
    if (letter === "") { ink.globalAlpha = 0.35; ink.fillStyle = colours.line; ink.fillRect(x + w / 2 - 1, y + h / 2 - 1, 2, 2); ink.globalAlpha = 1; return; }
    if (letter === ".") { ink.globalAlpha = 0.5; ink.fillStyle = colours.line; ink.fillRect(x + w / 2 - 1, y + h / 2 - 1, 2, 2); ink.globalAlpha = 1; return; }
    ink.globalAlpha = only && STATUS[upper] !== only ? 0.16 : letter !== upper ? 0.45 : upper === "P" ? 0.55 : upper === "R" ? 0.78 : 1;
    ink.fillStyle = colours[upper];
    ink.fillRect(x, y, w, h);
    if (cell >= 10) {  // not by colour alone
      ink.strokeStyle = ink.fillStyle = upper === "G" ? colours.F : colours.card;
      ink.lineWidth = 1.6;
      const cx = x + w / 2, cy = y + h / 2, r = Math.min(w, h) / 2 - 3.5;
      ink.beginPath();
      if (upper === "F") { ink.moveTo(cx - r, cy - r); ink.lineTo(cx + r, cy + r); ink.moveTo(cx + r, cy - r); ink.lineTo(cx - r, cy + r); ink.stroke(); }
      else if (upper === "U") { ink.moveTo(cx - r * 0.7, cy - r); ink.lineTo(cx + r, cy); ink.lineTo(cx - r * 0.7, cy + r); ink.fill(); }
      else if (upper === "H") { ink.moveTo(cx - 2, cy - r); ink.lineTo(cx - 2, cy + r); ink.moveTo(cx + 2, cy - r); ink.lineTo(cx + 2, cy + r); ink.stroke(); }
      else if (upper === "S") { ink.arc(cx, cy, r * 0.9, 0.6, 5.4); ink.stroke(); }
      else if (upper === "G") { ink.lineWidth = 1; ink.setLineDash([2, 2]); ink.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); ink.setLineDash([]); }
    }
    ink.globalAlpha = 1;
  };
  const place = (row, column) => [side + column * cell - (isBlock ? 0 : scroll.scrollLeft), head + row * line - scroll.scrollTop + (isBlock ? 1 : 2)];
  const draw = () => {
    const view = seen(), wanted = new Set();
    ink.clearRect(0, 0, wide, high);
    ink.font = "12px system-ui, sans-serif"; ink.textBaseline = "middle";
    for (let row = view.row; row <= view.toRow; row++) {
      for (let column = view.column; column <= view.toColumn; column++) {
        const at = named(row, column);
        if (!at) continue;
        const tile = isBlock ? Math.floor(at.at / TILE_CELLS) : `${Math.floor(row / TILE_ROWS)},${Math.floor(column / TILE_COLUMNS)}`;
        if (!tiles.has(tile) || tiles.get(tile).stale) wanted.add(tile);
        drawCell(at.letter, ...place(row, column));
      }
    }
    if (focus.shown) {
      const [x, y] = place(focus.row, focus.column);
      ink.strokeStyle = colours.text; ink.lineWidth = 2; ink.strokeRect(x - 1.5, y - 1.5, cell + 1, line - (isBlock ? -1 : 1));
    }
    // The names at the left and the dataids on top lie over the cells.
    ink.fillStyle = colours.card; ink.fillRect(0, 0, side - 4, high);
    let shownProject = "";
    for (let row = view.row; row <= view.toRow; row++) {
      const y = head + row * line - scroll.scrollTop + line / 2 - (isBlock ? 1 : 0);
      if (isBlock) {
        if (row % 2 === 0 || lines() < 6) { ink.fillStyle = colours.quiet; ink.fillText(cut(named(row, 0)?.dataid || "", side - 12), 6, y); }
      } else {
        const one = lineOf(row);
        if (!one) continue;
        const name = root.dataset.projects > 1 ? `${one.project}.${one.dataset}` : one.dataset;
        ink.fillStyle = row === focus.row && focus.shown ? colours.link : colours.text;
        ink.fillText(cut(name, side - 14), 8, y);
      }
    }
    if (!isBlock) {
      ink.fillStyle = colours.card; ink.fillRect(0, 0, wide, head - 3);
      ink.fillStyle = colours.line; ink.fillRect(0, head - 4, wide, 1);
      let free = side;
      ink.fillStyle = colours.quiet;
      for (let column = view.column; column <= view.toColumn; column++) {
        const tile = [...tiles].find(([name, one]) => name.endsWith?.(`,${Math.floor(column / TILE_COLUMNS)}`) && one.dataids.length)?.[1];
        const text = tile?.dataids[column % TILE_COLUMNS];
        const [x] = place(0, column);
        if (!text || x < free - 1) continue;
        const short = shortened(text, column === view.column || free === side);
        const room = ink.measureText(short).width;
        if (x + room > wide) break;
        ink.fillText(short, x, head / 2 - 1); ink.fillRect(x, head - 8, 1, 4);
        free = x + room + 16;
      }
    }
    if (untold) {  // what it is may have to be fetched first
      const text = words(named(focus.row, focus.column));
      if (text) { said.textContent = text; untold = false; }
    }
    for (const [name, stop] of asked) if (!wanted.has(name)) stop.abort();
    for (const name of [...wanted].slice(0, 6)) fetchTile(name);
  };
  const shortened = (dataid, whole) => kind === "daily" && !whole && !dataid.endsWith("-01-01") ? dataid.slice(5) : kind === "hourly" ? dataid.slice(whole ? 0 : 5) : dataid;

  // Moving ------------------------------------------------------------------------------------------------------------
  const words = (at) => {
    if (!at || !at.dataid) return "";
    const certain = at.letter === at.letter.toUpperCase();
    const status = at.letter === "." ? "nothing" : STATUS[at.letter.toUpperCase()] || "…";
    return `${at.dataset} / ${at.dataid}: ${status}${certain ? "" : " (as far as the history still tells)"}`;
  };
  const show = (row, column, speak) => {
    focus.row = Math.max(0, Math.min(lines() - 1, row));
    focus.column = Math.max(0, Math.min(across() - 1, column));
    if (isBlock && focus.row * perLine() + focus.column >= size.cells) focus.column = Math.max(0, (size.cells - 1) - focus.row * perLine());
    focus.shown = true;
    const top = focus.row * line, left = focus.column * cell;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    if (top + line > scroll.scrollTop + high - head - 12) scroll.scrollTop = top + line - (high - head) + 12;
    if (!isBlock) {
      if (left < scroll.scrollLeft) scroll.scrollLeft = left;
      if (left + cell > scroll.scrollLeft + wide - side) scroll.scrollLeft = left + cell - (wide - side) + 8;
    }
    untold = speak;
    plan();
  };
  const open = (at, event) => {
    if (!at?.dataid || at.letter === ".") return;
    const address = `${base}/datasets/${[at.project, at.dataset, at.dataid].map(encodeURIComponent).join("/")}`;
    if (event?.ctrlKey || event?.metaKey) window.open(address, "_blank", "noopener"); else location.href = address;
  };
  const goto = document.getElementById("goto"), input = goto?.querySelector("input");
  scroll.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor((high - head) / line) - 1);
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-page, 0], PageDown: [page, 0] }[event.key];
    if (step) {
      event.preventDefault();
      if (!focus.shown) { const view = seen(); show(view.row, isBlock ? 0 : Math.min(view.toColumn, size.columns - 1), true); return; }
      let [row, column] = [focus.row + step[0], focus.column + step[1]];
      if (isBlock && column < 0 && row > 0) [row, column] = [row - 1, perLine() - 1];
      else if (isBlock && column >= perLine() && row < lines() - 1) [row, column] = [row + 1, 0];
      show(row, column, true);
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      const end = event.key === "End";
      show(isBlock || event.ctrlKey ? (end ? lines() - 1 : 0) : focus.row, end ? across() - 1 : 0, true);
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(named(focus.row, focus.column), event);
    } else if (event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey && input) {
      event.preventDefault();
      input.value = event.key; input.focus();
      try { input.setSelectionRange(1, 1); } catch { /* not a text field */ }
    }
  });
  scroll.addEventListener("focus", () => { if (!focus.shown) { const view = seen(); show(view.row, isBlock ? 0 : view.toColumn, true); } });
  const under = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    if (y < head) return null;
    const row = Math.floor((y - head + scroll.scrollTop) / line);
    if (x < side) return !isBlock && lineOf(row) ? { label: lineOf(row) } : null;
    const column = Math.floor((x - side + (isBlock ? 0 : scroll.scrollLeft)) / cell);
    return { row, column, at: named(row, column), x, y };
  };
  canvas.addEventListener("pointermove", (event) => {
    const found = under(event), text = found?.label ? `${found.label.dataset}: open the dataset` : words(found?.at);
    tip.hidden = !text;
    canvas.classList.toggle("on", Boolean(text));
    if (!text) return;
    tip.textContent = text;
    const box = root.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY - box.top + 18}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => {
    const found = under(event);
    if (found?.label) { location.href = `${base}/datasets/${encodeURIComponent(found.label.project)}/${encodeURIComponent(found.label.dataset)}`; return; }
    if (!found?.at) return;
    const again = focus.shown && focus.row === found.row && focus.column === found.column;
    show(found.row, found.column, true);
    // With a finger the first touch only names the cell.
    if (event.pointerType !== "touch" || again) open(found.at, event);
  });
  scroll.addEventListener("scroll", () => { tip.hidden = true; plan(); }, { passive: true });

  // Going to a dataid -------------------------------------------------------------------------------------------------
  const count = (dataid) => {
    if (kind === "numbered") return /^\d+$/.test(dataid) ? Number(dataid) : NaN;
    if (kind === "monthly") { const [, year, month] = dataid.match(/^(\d{4})-(\d{2})/) || []; return year ? year * 12 + Number(month) : NaN; }
    const [, day, hour] = dataid.match(/^(\d{4}-\d{2}-\d{2})(?:T(\d{2}))?/) || [];
    return day ? Date.parse(`${day}T00:00:00Z`) / 864e5 * (kind === "hourly" ? 24 : 1) + (kind === "hourly" ? Number(hour || 0) : 0) : NaN;
  };
  const column = (dataid) => {
    for (const [name, tile] of tiles) {
      if (isBlock || !tile.dataids.length) continue;
      const found = Math.round(count(dataid) - count(tile.dataids[0])) + Number(name.split(",")[1]) * TILE_COLUMNS;
      return Number.isNaN(found) || found < 0 || found >= size.columns ? -1 : found;
    }
    return -1;
  };
  goto?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const dataid = input.value.trim();
    if (!dataid) return;
    if (isBlock) {
      const answer = await fetch(`${base}/v1/grid${root.dataset.path}/place?${new URLSearchParams({ dataid })}`);
      if (!answer.ok) { said.textContent = `There is no ${dataid}.`; return; }
      const { index } = await answer.json();
      show(Math.floor(index / perLine()), index % perLine(), true);
    } else {
      const found = column(dataid);
      if (found < 0) { said.textContent = `There is no column ${dataid}.`; return; }
      show(focus.row, found, true);
    }
    scroll.focus();
  });

  // Changes -----------------------------------------------------------------------------------------------------------
  const patch = (change) => {  // false: it is not in what we have
    if (isBlock) {
      if (change.project !== first.project || change.dataset !== first.dataset) return true;
      for (const tile of tiles.values()) {
        const n = tile.number === null ? tile.index.get(change.dataid) : Number(change.dataid) - tile.number;
        if (n >= 0 && n < tile.cells.length) { tile.cells[n] = change.cell; return true; }
      }
      return tiles.size * TILE_CELLS < size.cells;
    }
    let isLine = false;
    for (const tile of tiles.values()) {
      for (const one of tile.lines) {
        if (one.project !== change.project || one.dataset !== change.dataset) continue;
        isLine = true;
        const n = (one.dataids || tile.dataids).indexOf(change.dataid);
        if (n >= 0) { one.cells[n] = change.cell; return true; }
      }
    }
    return !isLine;
  };
  const anew = () => { for (const tile of tiles.values()) tile.stale = true; grown = Date.now(); plan(); };
  const look = async () => {
    try {
      if (!document.hidden) {
        const wanted = new URLSearchParams({ since: upto });
        if (query.get("project")) wanted.set("project", query.get("project"));
        if (isBlock) { wanted.set("project", first.project); wanted.set("dataset", first.dataset); }
        const answer = await fetch(`${base}/v1/grid/changes?${wanted}`);
        if (answer.ok) {
          const told = await answer.json();
          upto = told.upto;
          const known = told.changes.map(patch).every(Boolean);
          if ((!known || !told.complete) && Date.now() - grown > 4000) { anew(); setTimeout(() => { lay(); plan(); }, 700); }
          if (told.changes.length) plan();
        }
      }
    } catch { /* the next look finds it */ }
    setTimeout(look, EVERY);
  };
  if (root.dataset.polls === "yes") { setTimeout(look, EVERY); setInterval(() => { if (!document.hidden) anew(); }, ANEW); }

  // The time: dragging the slider is choosing a moment -----------------------------------------------------------------
  const when = document.getElementById("when"), slider = document.getElementById("slider");
  if (when && slider) {
    const from = Date.parse(slider.dataset.from), now = Date.parse(slider.dataset.to);
    const moment = () => new Date(from + (now - from) * slider.value / 1000).toISOString().slice(0, 16);
    if (when.value) slider.value = Math.round((Date.parse(`${when.value}Z`) - from) / Math.max(1, now - from) * 1000);
    slider.addEventListener("input", () => { when.value = slider.value === "1000" ? "" : moment(); });
    slider.addEventListener("change", () => when.form.requestSubmit());
  }

  keep(first);
  upto = first.upto;
  paint(); lay();
  if (!isBlock && root.dataset.end === "yes") scroll.scrollLeft = scroll.scrollWidth;
  if (isBlock && root.dataset.end === "yes") scroll.scrollTop = scroll.scrollHeight;
  draw();
  root.dataset.ready = "yes";
  new ResizeObserver(() => { lay(); plan(); }).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); plan(); });
})();
