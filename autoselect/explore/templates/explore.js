"use strict";
// The page of `autoselect explore`: a candidate that a person changes step by step, and what the server answers of it.
// Names of nodes are data: they reach the page as text nodes, and the chart with their markup escaped.
(() => {
  const $ = (id) => document.getElementById(id);
  let run = JSON.parse($("data").textContent);

  // ------------------------------------------------------------------------------------------ words
  const DASH = "–";
  const STATES = { int8: "8", int16: "6", hybrid: "h", float: "f" };
  const OPTION = { int8: "int8", int16: "int16", hybrid: "deny", float: "in_float" };
  const PIN = { int8: "keep_int", int16: "keep_int16", hybrid: "keep_float", float: "keep_float" };
  const LETTERS = Object.fromEntries(Object.entries(STATES).map(([name, key]) => [key, name]));
  const stateOf = (kind) => (kind === "integer" ? "int8" : kind);
  const kindOf = (name) => (name === "int8" ? "integer" : name);
  const isKnown = (v) => v !== null && v !== undefined;
  const known = (format) => (v) => (isKnown(v) ? format(v) : DASH);
  const minus = (text) => text.replace(/-/g, "−");
  const fixed = (v, places) => minus(Number(v.toFixed(places)) === 0 ? (0).toFixed(places) : v.toFixed(places));
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const bytes = (v) => (Math.abs(v) < 1000 ? `${fixed(v, 0)} B` : Math.abs(v) < 1e6 ? `${fixed(v / 1e3, 1)} kB` : `${fixed(v / 1e6, 2)} MB`);
  const inUnit = (v) => v * run.to_unit;
  const places = () => (run.unit === "points" ? 2 : Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(Math.abs(inUnit(run.allowed_drop)) || 1)))));
  const bare = (v) => fixed(inUnit(v), places());
  const unit = () => (run.unit ? ` ${run.unit}` : "");
  const grouped = (v) => minus(v.toLocaleString("en-US", { maximumFractionDigits: 0 }));
  const price = (v) => (Math.abs(v) >= 1000 ? grouped(v) : Math.abs(v) >= 1e-6 && Math.abs(v) < 1 ? minus(String(Number(v.toPrecision(3)))) : fixed(v, 2)); // Cycles run to millions.
  const show = { size: known(bytes), penalty: known(price), count: known((v) => minus(String(v))), share: known((v) => `${fixed(100 * v, 0)} %`), drop: known((v) => `${bare(v)}${unit()}`) };
  const signed = (format) => (v) => (v > 0 ? `+${format(v)}` : format(v));

  function el(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name in made && !name.includes("-")) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }
  function say(text) { $("said").textContent = text; }

  // ------------------------------------------------------------------------------------------ what is kept of a visit
  // A candidate: where it starts, what was decided of nodes (by their place), repairs (null: the start's), and the target.
  const fresh = (from, target = null) => ({ from, decided: {}, repairs: null, target });
  const kept = `explore ${run.directory}`;
  const first = run.starts[0].name;
  const recommended = run.starts.some((s) => s.name === "recommended") ? "recommended" : first;
  const state = { steps: [fresh(recommended)], at: 0, compare: recommended, keptOnes: [], goal: "drop", scope: "unit", axis: "penalty", view: "near" };
  try { Object.assign(state, JSON.parse(sessionStorage.getItem(kept)) || {}); } catch { /* a visit of another version */ }
  function keep() { try { sessionStorage.setItem(kept, JSON.stringify({ ...state, steps: state.steps.slice(-200), at: Math.max(0, state.at - Math.max(0, state.steps.length - 200)) })); } catch { /* no room */ } }
  const now = () => state.steps[state.at];

  function changesOf(candidate) {
    const changes = { deny: [], in_float: [], int16: [], int8: [], repairs: candidate.repairs };
    for (const [place, name] of Object.entries(candidate.decided)) changes[OPTION[name]].push(run.nodes[place].name);
    return changes;
  }
  const question = (candidate) => ({ from: candidate.from, changes: changesOf(candidate), target: candidate.target });
  const startOf = (name) => run.starts.find((s) => s.name === name);
  function nameOf(candidate) {
    const point = run.points.find((p) => p.id === candidate.from);
    const from = startOf(candidate.from)?.label || (point ? `trial ${point.number}` : candidate.from);
    const count = Object.keys(candidate.decided).length;
    const parts = [count ? `${plural(count, "op")} decided` : "", candidate.repairs ? (candidate.repairs.length ? candidate.repairs.join(" + ") : "no repairs") : "", candidate.target ? `for ${candidate.target}` : ""];
    return [from, ...parts.filter(Boolean)].join(", ");
  }

  // ------------------------------------------------------------------------------------------ the server
  let gone = "";
  async function call(method, path, body, signal) {
    const options = { method, signal, headers: { "X-Autoselect": "1", ...(body ? { "Content-Type": "application/json" } : {}) }, body: body && JSON.stringify(body) };
    let reply;
    try {
      reply = await fetch(path, options);
    } catch (error) {
      if (error.name !== "AbortError") lost("The server does not answer. What you see stays; nothing new can be asked. Start `autoselect explore` again if it was stopped.");
      throw error;
    }
    if (reply.status === 403) lost("The server was started again and does not know this tab. Open the address that it printed; your steps are kept.");
    else if (gone) back();
    const told = await reply.json().catch((error) => { if (signal?.aborted) throw error; return null; });
    if (!reply.ok || !told) throw Object.assign(new Error(told?.error || (reply.ok ? "The server's answer broke off. Ask again." : `The server answered ${reply.status}.`)), { told: true });
    return told;
  }
  function lost(words) {
    gone = words;
    $("banner").textContent = words;
    $("banner").hidden = false;
    document.body.dataset.gone = "";
    wake();
  }
  function back() {
    gone = "";
    $("banner").hidden = true;
    delete document.body.dataset.gone;
    say("The server answers again.");
    refetch().catch((error) => { if (error.told) say(error.message); });
  }

  const answers = new Map();
  async function ask(candidate, signal) {
    const key = JSON.stringify(question(candidate));
    if (!answers.has(key)) answers.set(key, await call("POST", "/api/ask", question(candidate), signal));
    if (answers.size > 300) answers.delete(answers.keys().next().value);
    return answers.get(key);
  }

  // ------------------------------------------------------------------------------------------ steps
  let answer = null, other = null, moves = [], asking = null;
  function step(candidate) {
    if (JSON.stringify(candidate) === JSON.stringify(now())) return;
    state.steps = [...state.steps.slice(0, state.at + 1), candidate];
    state.at = state.steps.length - 1;
    update();
  }
  function walk(by) {
    const to = Math.min(Math.max(state.at + by, 0), state.steps.length - 1);
    if (to === state.at) return;
    state.at = to;
    update();
  }

  async function update() {
    keep();
    drawBar();
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking, root = document.documentElement;
    root.dataset.busy = "";
    try {
      const told = await ask(now(), signal);
      const compared = await ask(comparedWith(), signal).catch((error) => { if (error.told) return null; throw error; });
      if (signal.aborted) return;
      [answer, other] = [told, compared];
      drawAll();
      root.dataset.ready = "";
      await updateMoves(signal);
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      if (error.told) refuse(error.message);
      else if (!gone) throw error;
    } finally {
      if (!signal.aborted) delete root.dataset.busy;
    }
  }
  function comparedWith() {
    const number = /^kept (\d+)$/.exec(state.compare);
    if (number && state.keptOnes[number[1]]) return state.keptOnes[number[1]];
    if (state.compare === "start") return fresh(now().from, now().target);
    return fresh(state.compare, now().target);
  }
  // What cannot be is told in words; the figures of the step before stay, marked as such.
  function refuse(words) {
    $("answer").replaceChildren(el("p", { className: "refused", textContent: words }), el("p", { className: "caption", textContent: "The graph and the figures are those of the step before. Undo takes this one back." }));
    $("figures").classList.add("stale");
    document.documentElement.dataset.ready = "";
  }

  const movable = (place) => (state.scope === "unit" ? run.nodes.flatMap((n, i) => (isKnown(n.unit) && n.unit === run.nodes[place].unit) || i === place ? [i] : []) : [place]);
  function move(place, name) {
    const able = movable(place).filter((i) => name === null || run.nodes[i].states.includes(name));
    if (!able.length) { say(`${run.nodes[place].short} cannot be ${name}: ${run.nodes[place].why[name] || "it has no such form"}.`); return; }
    decide(able, name);
  }
  function decide(nodes, name) {
    const decided = { ...now().decided };
    for (const i of nodes) if (name === null) delete decided[i]; else decided[i] = name;
    step({ ...now(), decided });
  }

  // ------------------------------------------------------------------------------------------ the bar
  function options(select, groups, value) {
    const made = groups.flatMap(([label, rows]) => {
      const own = rows.map(([name, text]) => el("option", { value: name, textContent: text }));
      return !own.length ? [] : label ? [el("optgroup", { label }, ...own)] : own;
    });
    select.replaceChildren(...made);
    if (![...select.options].some((o) => o.value === value)) select.prepend(el("option", { value, textContent: value }));
    select.value = value;
  }
  const pointName = (p) => `${p.origin === "user" ? "by hand, " : ""}trial ${p.number}: penalty ${show.penalty(p.penalty)}, drop ${show.drop(p.drop)}`;
  function startGroups() {
    const isStart = new Set(run.starts.map((s) => s.id));
    const whole = (s) => !isKnown(s.id);
    const row = (s) => [s.name, s.label];
    const rows = (points) => points.filter((p) => p.state === "complete" && !isStart.has(p.id)).map((p) => [p.id, pointName(p)]);
    const current = run.points.filter((p) => p.id === now().from && !p.on_front && p.origin !== "user");
    return [["Picks", run.starts.filter((s) => !whole(s)).map(row)], ["Whole models", run.starts.filter(whole).map(row)], ["Front", rows(run.points.filter((p) => p.on_front))], ["By hand", rows(run.points.filter((p) => p.origin === "user" && !p.on_front))], ["Trial", rows(current)]];
  }
  function drawBar() {
    options($("start"), startGroups(), now().from);
    options($("target"), [["", [...new Set([run.target, ...run.targets])].map((name) => [name, name])]], now().target || run.target);
    $("target-label").hidden = new Set([run.target, ...run.targets]).size < 2;
    const groups = startGroups().map(([label, rows]) => [label, rows]);
    const ones = state.keptOnes.map((candidate, i) => [`kept ${i}`, `${i + 1}: ${nameOf(candidate)}`]);
    options($("compare"), [["", [["start", "what I started from"]]], ["Kept", ones], ...groups], state.compare);
    $("undo").disabled = state.at === 0;
    $("redo").disabled = state.at === state.steps.length - 1;
    $("reset").disabled = !Object.keys(now().decided).length && now().repairs === null;
    for (const name of ["scope", "view", "goal"]) document.querySelector(`input[name=${name}][value=${state[name]}]`).checked = true;
    $("axis").value = state.axis;
  }
  function drawRepairs() {
    const own = answer.recipe.repairs || [];
    $("repairs-menu").hidden = !run.repairs.length;
    $("repairs-now").textContent = own.length ? own.join(", ") : "none";
    $("repairs").replaceChildren(...run.repairs.map((name) => el("label", {}, el("input", {
      type: "checkbox", value: name, checked: own.includes(name),
      onchange: () => step({ ...now(), repairs: run.repairs.filter((r) => $("repairs").querySelector(`input[value="${CSS.escape(r)}"]`).checked) }),
    }), ` ${name}`)), el("button", { type: "button", className: "act", textContent: "As in the start", onclick: () => step({ ...now(), repairs: null }) }));
  }

  // ------------------------------------------------------------------------------------------ the graph
  let shown = []; // of each box the row of its op, with who runs it in words at the end
  const drawing = graphView($("canvas"), {
    onChoose: tellOp, onEnter: tellOp, onLeave: () => tellOp(drawing.chosen()),
    onOpen: (i, box) => { const place = shown[i][2]; if (typeof place === "number") openMenu(place, box); },
    onKey: (i, key) => byKey(shown[i][2], key),
  });
  function byKey(place, key) {
    const letter = key.toLowerCase();
    if (typeof place !== "number" || !(letter in LETTERS || letter === "d")) return false;
    move(place, letter === "d" ? null : LETTERS[letter]);
    return true;
  }
  // A conversion bears the name of what it converts; where that is a node, it is still no node of the model.
  const isConversion = ([type, , name]) => (type === "QUANTIZE" || type === "DEQUANTIZE") && run.nodes[name]?.op !== type;
  const wordOf = (kind) => ({ boundary: "conversion", neutral: "shapes and indices" })[kind] || stateOf(kind);
  const decidedAs = (place) => now().decided[place];

  // The ops stay where they are while candidates change: conversions are no boxes, but marks on the edges they cut.
  function sceneOf({ ops, pieces, crossings, why }) {
    const origin = (i) => (isConversion(ops[i]) ? (ops[i][6].length ? origin(ops[i][6][0]) : null) : i);
    const keptOps = ops.map((_, i) => i).filter((i) => !isConversion(ops[i]));
    const at = new Map(keptOps.map((i, k) => [i, k]));
    const marks = new Map(crossings.filter(([a, b]) => at.has(a) && at.has(b)).map(([a, b]) => [`${at.get(a)} ${at.get(b)}`, [at.get(a), at.get(b)]]));
    const sources = keptOps.map((i, k) => [...new Set(ops[i][6].flatMap((source) => {
      const from = origin(source);
      if (from === null) return [];
      if (from !== source) marks.set(`${at.get(from)} ${k}`, [at.get(from), k]);
      return [at.get(from)];
    }))]);
    const count = Math.max(0, ...pieces.map(Number));
    const runs = (i) => (pieces[i] ? `piece ${pieces[i]} of ${count}` : pieces[i] === 0 ? `left to the CPU${why?.[i] ? `: ${why[i]}` : ""}` : "");
    shown = keptOps.map((i) => [...ops[i], runs(i)]);
    // The last op hands its name to the conversion after it.
    for (const op of ops) if (isConversion(op) && typeof op[2] === "number") { const own = shown[at.get(op[6].length ? origin(op[6][0]) : null)]; if (own && typeof own[2] !== "number") own[2] = op[2]; }
    const numbers = keptOps.map((i) => pieces[i] || 0), order = [...new Set(numbers.filter(Boolean))];
    return {
      label: `${shown.length} ops. The arrow keys walk along them, Enter says what an op can be.`,
      types: shown.map((op) => op[0]), sources, islands: numbers.map((n) => order.indexOf(n) + 1),
      marks: [...marks.values()].map(([a, b]) => [a, b, `converted from ${wordOf(shown[a][1])} to ${wordOf(shown[b][1])}`]),
      boxes: shown.map((op) => ({ kind: op[1] + (typeof op[2] === "number" && decidedAs(op[2]) ? " decided" : ""), label: labelOf(op) })),
    };
  }
  const labelOf = (op) => `${op[0]}, ${wordOf(op[1])}${typeof op[2] === "number" ? `${decidedAs(op[2]) ? ", decided" : ""}, ${run.nodes[op[2]].short}` : `, ${op[2]}`}`;
  function drawGraph() {
    const before = shown[drawing.chosen()]?.[2], begins = !shown.length;
    drawing.draw(sceneOf(answer.graph));
    const same = shown.findIndex((op) => (begins ? typeof op[2] === "number" : op[2] === before));
    if (same >= 0 && (begins || same !== drawing.chosen())) drawing.choose(same); else tellOp(drawing.chosen());
  }
  const factsOf = (place) => {
    const node = run.nodes[place], size = movable(place).length;
    return [state.scope === "unit" && size > 1 ? `moves with ${plural(size - 1, "other op")}` : "", isKnown(node.error) ? `error in int8 ${node.error.toFixed(3)} rmse/scale` : "", isKnown(node.buys) ? `${(100 * node.buys).toFixed(1)} % of the damage` : ""].filter(Boolean);
  };
  function tellOp(i) {
    const op = shown[i];
    if (!op) return;
    const place = typeof op[2] === "number" ? op[2] : null;
    const facts = place === null ? [op[2]] : [run.nodes[place].short, ...factsOf(place), answer.fallbacks[run.nodes[place].name] ? `not as asked: ${answer.fallbacks[run.nodes[place].name]}` : ""];
    $("op").replaceChildren(el("b", { textContent: op[0] }), ` ${[wordOf(op[1]), op[7], op[3], ...facts].filter(Boolean).join(" · ")}`);
    document.querySelectorAll("#nodes-list .chosen").forEach((row) => row.classList.remove("chosen"));
    if (place !== null) document.querySelector(`#nodes-list [data-place="${place}"]`)?.classList.add("chosen");
  }
  function preview(nodes, name) {
    const boxes = drawing.boxes();
    boxes.forEach((box, i) => box.setAttribute("class", box.getAttribute("class").replace(/ preview as-\w+/, "") + (nodes.includes(run.nodes[shown[i][2]]?.name) ? ` preview as-${kindOf(name)}` : "")));
  }

  // ------------------------------------------------------------------------------------------ the list of ops
  function drawList() {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const focused = document.activeElement?.closest?.("#nodes-list button")?.dataset.place;
    const rows = run.nodes.flatMap((node, i) => {
      const name = stateOf(answer.nodes[node.name]), text = `${node.name} ${node.op} ${name} ${decidedAs(i) ? "decided" : ""}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) return [];
      return [el("li", {}, el("button", {
        type: "button", className: `row ${kindOf(name)}${decidedAs(i) ? " decided" : ""}`, "data-place": i, tabIndex: -1, "aria-haspopup": "menu",
        "aria-label": `${node.op}, ${name}${decidedAs(i) ? ", decided" : ""}, ${node.short}`,
        onclick: (event) => { showOp(i); openMenu(i, event.currentTarget); }, onfocus: () => showOp(i),
        onkeydown: (event) => {
          const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
          const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
          if (next) focusRow(event.currentTarget.parentElement[next]?.firstChild);
          else if (!plain || !byKey(i, event.key)) return;
          event.preventDefault();
        },
      }, el("i", { className: "chip", textContent: { int8: "8", int16: "16", hybrid: "h", float: "f" }[name] || "·" }), el("span", { className: "type", textContent: node.op }), el("span", { className: "nodename", title: node.name, textContent: node.short })))];
    });
    $("nodes-list").replaceChildren(...(rows.length ? rows : [el("li", { className: "empty", textContent: "No op has these words." })]));
    $("nodes-count").textContent = rows.length === run.nodes.length ? String(rows.length) : `${rows.length} of ${run.nodes.length}`;
    const entry = $("nodes-list").querySelector(`[data-place="${focused}"]`) || $("nodes-list").querySelector("button");
    if (entry) entry.tabIndex = 0;
    if (isKnown(focused) && entry) entry.focus({ preventScroll: true });
  }
  function focusRow(button) {
    if (!button?.focus) return;
    $("nodes-list").querySelectorAll("button").forEach((b) => { b.tabIndex = b === button ? 0 : -1; });
    button.focus();
  }
  function showOp(place) {
    const i = shown.findIndex((op) => op[2] === place);
    if (i >= 0 && i !== drawing.chosen()) drawing.choose(i);
  }

  // ------------------------------------------------------------------------------------------ what an op can be
  let opener = null;
  function openMenu(place, anchor) {
    const node = run.nodes[place], current = stateOf(answer.nodes[node.name]), facts = factsOf(place);
    opener = anchor;
    const item = (name, key, text, reason) => el("button", {
      type: "button", role: name ? "menuitemradio" : "menuitem", tabIndex: -1, className: `state ${name ? kindOf(name) : "as-start"}`,
      ...(name ? { "aria-checked": String(name === current) } : {}), "aria-disabled": String(Boolean(reason)), "data-state": name || "start",
      onclick: () => { if (reason) return; closeMenu(); move(place, name); },
    }, el("i", { className: "chip" }), el("span", { className: "word", textContent: text }), el("kbd", { textContent: key, "aria-hidden": "true" }), reason ? el("span", { className: "why", textContent: reason }) : null);
    const items = Object.entries(STATES).map(([name, key]) => item(name, key, name, node.states.includes(name) ? "" : node.why[name] || "it has no such form"));
    $("menu").setAttribute("aria-label", `${node.op} ${node.short}: what it can be`);
    $("menu").replaceChildren(el("p", { className: "title" }, el("b", { textContent: node.op }), el("span", { className: "nodename", title: node.name, textContent: node.short }), el("span", { className: "quiet", textContent: facts.join(" · ") })), ...items, item(null, "d", "as in the start", decidedAs(place) ? "" : "nothing was decided"));
    $("menu").hidden = false;
    const box = anchor.getBoundingClientRect(), own = $("menu").getBoundingClientRect();
    const left = Math.min(Math.max(box.left + box.width / 2 - own.width / 2, 8), innerWidth - own.width - 8);
    const top = box.bottom + 8 + own.height < innerHeight ? box.bottom + 8 : Math.max(box.top - own.height - 8, 8);
    Object.assign($("menu").style, { left: `${left + scrollX}px`, top: `${top + scrollY}px` });
    ($("menu").querySelector("[aria-checked=true]") || items[0]).focus({ preventScroll: true });
  }
  function closeMenu(back = true) {
    if ($("menu").hidden) return;
    $("menu").hidden = true;
    if (back && opener) (opener.isConnected ? opener : $("canvas").querySelector("[tabindex='0']"))?.focus({ preventScroll: true });
  }
  $("menu").addEventListener("keydown", (event) => {
    const items = [...$("menu").querySelectorAll("button")], at = items.indexOf(document.activeElement);
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const hit = items.find((i) => i.querySelector("kbd").textContent === event.key.toLowerCase());
    if (by) items[(at + by + items.length) % items.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") closeMenu();
    else if (hit && !event.ctrlKey && !event.metaKey) hit.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  $("menu").addEventListener("focusout", (event) => { if (!$("menu").contains(event.relatedTarget)) closeMenu(false); });

  // ------------------------------------------------------------------------------------------ figures
  const interval = (a) => (isKnown(a.drop_low) && isKnown(a.drop_high) ? (a.drop_low === a.drop_high ? "exact" : `${bare(a.drop_low)} to ${bare(a.drop_high)}`) : DASH);
  const COMPILED = "compiled penalty";
  const ROWS = [
    ["size", (a) => a.size_bytes, show.size, "less"], ["penalty", (a) => a.forecast_penalty, show.penalty, "less"],
    [COMPILED, (a) => (a.compiled ? a.penalty : null), show.penalty, "less"],
    ["expected drop", (a) => a.drop, known(bare), "less"], ["nine in ten", interval],
    ["within the limit", (a) => a.chance_within, show.share, "more"], ["scored drop", (a) => a.scored_drop, known(bare), "less"],
    ["segments", (a) => a.segments, show.count, "less"], ["crossings", (a) => a.crossing_tensors, show.count, "less"], ["bytes that cross", (a) => a.crossing_bytes, show.size, "less"],
    ["left to the CPU", (a) => a.left_ops, show.count, "less"],
    ...["integer", "int16", "hybrid", "float"].map((kind) => [`${stateOf(kind)} ops`, (a) => a.kinds[kind] || 0, show.count]),
    ["peak activations", (a) => a.arena_bytes, show.size, "less"],
    ["front", (a) => (!isKnown(a.on_front) ? DASH : a.on_front ? "on it" : `${a.dominated_by.length} ahead`)],
  ];
  const loses = (v) => (Math.abs(inUnit(v)) < 0.5 * 10 ** -places() ? "nothing" : v > 0 ? `${bare(v)}${unit()}` : `${bare(-v)}${unit()} less than nothing`);
  function verdict() {
    if (!isKnown(answer.drop)) return el("p", { className: "first", textContent: `Nobody knows what it would lose: ${answer.unknown || "no trial tells"}.` });
    const scored = isKnown(answer.trial) ? `Scored as trial ${answer.trial}, it lost ${loses(answer.scored_drop)}. ` : "";
    const near = answer.approximate ? " That is of the nearest candidate of whole units." : "";
    const within = isKnown(answer.chance_within) ? ` It keeps the limit of ${show.drop(answer.allowed_drop)} with a chance of ${show.share(answer.chance_within)}.` : "";
    return el("p", { className: "first", textContent: `${scored}It is expected to lose ${loses(answer.drop)}.${within}${near}` });
  }
  function drawFigures() {
    const shown = ROWS.filter(([label]) => label !== COMPILED || [answer, other].some((a) => a?.compiled));
    const rows = shown.map(([label, of, format, better]) => {
      const values = [answer, other].map((a) => (a ? of(a) : null));
      const texts = values.map((v) => (format ? format(v) : v ?? DASH));
      const numeric = format && values.every(isKnown), gap = numeric ? values[0] - values[1] : null;
      const isDifferent = numeric && format(values[0]) !== format(values[1]);
      const verdict = isDifferent && better ? ((gap < 0) === (better === "less") ? " gains" : " loses") : "";
      return el("tr", { className: texts[0] === texts[1] ? "same" : "differs" }, el("th", { scope: "row", textContent: label }), el("td", { className: "number", textContent: texts[0] }), el("td", { className: "number", textContent: texts[1] }), el("td", { className: `number${verdict}`, textContent: isDifferent ? signed(format)(gap) : "" }));
    });
    $("figures-unit").textContent = run.unit ? `drops in ${run.unit}` : "";
    $("figures").tBodies[0].replaceChildren(...rows);
    $("figures").classList.remove("stale");
    $("answer").replaceChildren(...[answer.refusal ? el("p", { className: "refused", textContent: answer.refusal }) : null, verdict(), ...answer.sentences.map((text) => el("p", { textContent: text }))].filter(Boolean));
    $("candidate-title").textContent = Object.keys(now().decided).length || now().repairs ? `This candidate: ${nameOf(now())}` : nameOf(now()).replace(/^./, (c) => c.toUpperCase());
    const count = Object.keys(now().decided).length;
    $("pins").textContent = count ? `${plural(count, "op")} decided: the search leaves ${count === 1 ? "it" : "them"} in ${count === 1 ? "its state" : "their states"}.` : "Nothing is decided yet. What you move is pinned; a move to the state that an op has pins it too.";
    $("search").disabled = !count;
    drawInterval();
  }
  // The limit, what is expected of both, and their intervals on one axis.
  function drawInterval() {
    const isShown = isKnown(answer.drop);
    $("interval").toggleAttribute("hidden", !isShown);
    if (!isShown) return;
    const both = [answer, other].filter((a) => a && isKnown(a.drop));
    const of = (a) => [a.drop_low ?? a.drop, a.drop, a.drop_high ?? a.drop], limit = answer.allowed_drop;
    const ends = [0, limit, ...of(answer), ...of(both.at(-1)).map((v) => Math.min(Math.max(v, -4 * limit), Math.max(4 * limit, answer.drop_high ?? 0)))];
    const low = Math.min(...ends), high = Math.max(...ends), room = 0.06 * (high - low || 1);
    const x = (v) => Math.min(Math.max(400 * ((v - low + room) / (high - low + 2 * room)), 2), 398);
    const svg = (tag, attributes) => { const made = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value); return made; };
    const rows = both.flatMap((a, i) => {
      const [from, at, to] = of(a).map(x), y = 16 + 22 * i, name = i ? "other" : "own";
      return [svg("line", { class: `range ${name}`, x1: from, x2: to, y1: y, y2: y }), svg("line", { class: `value ${name}`, x1: at, x2: at, y1: y - 7, y2: y + 7 })];
    });
    $("interval").replaceChildren(svg("rect", { class: "allowed", x: 0, y: 0, width: x(limit), height: 54 }), svg("line", { class: "limit", x1: x(limit), x2: x(limit), y1: 0, y2: 54 }), svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: 54 }), ...rows);
    $("interval").setAttribute("aria-label", `Expected drop ${show.drop(answer.drop)}, nine in ten between ${interval(answer)}; the limit is ${show.drop(limit)}.`);
  }

  // ------------------------------------------------------------------------------------------ trials
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const FORECAST = "The penalty of this candidate is a forecast, those of trials are the compiler's: they do not compare until it is scored.";
  function drawPlot() {
    const key = state.axis, of = (p) => (key === "size_bytes" ? p.size_bytes / 1e3 : p.penalty), drop = (v) => inUnit(v);
    const points = run.points.filter((p) => isKnown(p.drop) && isKnown(p[key]));
    const hover = (p) => `<b>trial ${p.number}</b>${p.pick ? ` ${escaped(p.pick)}` : ""}${p.origin === "user" ? ", by hand" : ""}<br>drop ${show.drop(p.drop)}${isKnown(p.scored_drop) ? `, scored ${show.drop(p.scored_drop)}` : ""}<br>${show.size(p.size_bytes)}, penalty ${show.penalty(p.penalty)}<br>click to start from it`;
    const trace = (name, rows, marker) => ({ type: "scatter", mode: "markers", name, cliponaxis: true, x: rows.map(of), y: rows.map((p) => drop(p.drop)), customdata: rows.map((p) => p.id), text: rows.map(hover), hovertemplate: "%{text}<extra></extra>", marker });
    const own = (a, name, marker, bar) => {
      if (!a || !isKnown(a.drop)) return trace(name, [], marker);
      const low = a.drop_low ?? a.drop, high = a.drop_high ?? a.drop;
      return { ...trace(name, [], marker), x: [of(a)], y: [drop(a.drop)], text: [`<b>${escaped(name)}</b><br>drop ${show.drop(a.drop)}, nine in ten ${interval(a)}<br>${show.size(a.size_bytes)}, penalty ${show.penalty(a.penalty)}`], ...(bar ? { error_y: { type: "data", symmetric: false, array: [drop(high - a.drop)], arrayminus: [drop(a.drop - low)], color: marker.color, thickness: 2, width: 6 } } : {}) };
    };
    const byHand = points.filter((p) => p.origin === "user"), others = points.filter((p) => p.origin !== "user");
    const ink = css("--ink"), paper = css("--paper");
    const traces = [
      trace("trials", others.filter((p) => !p.on_front), { color: css("--strong"), size: 7 }),
      trace("front", others.filter((p) => p.on_front), { color: css("--integer"), size: 10, line: { color: ink, width: 1 } }),
      trace("by hand", byHand, { color: css("--int16"), symbol: "star", size: 14, line: { color: ink, width: 1 } }),
      { ...trace("picks", points.filter((p) => p.pick), { color: css("--hybrid"), symbol: "circle-open", size: 21, line: { width: 2.5 } }), hoverinfo: "skip", hovertemplate: undefined },
      own(other, "compared with", { color: paper, symbol: "diamond", size: 12, line: { color: ink, width: 1.5 } }, false),
      own(answer, "this candidate", { color: css("--float"), symbol: "diamond", size: 14, line: { color: paper, width: 1.5 } }, true),
    ];
    const limit = drop(answer.allowed_drop), high = isKnown(answer.drop) ? drop(answer.drop_high ?? answer.drop) : 0, low = isKnown(answer.drop) ? drop(answer.drop_low ?? answer.drop) : 0;
    const near = [Math.min(-limit, 1.15 * low), Math.max(2.5 * limit, 1.15 * high)];
    const seen = points.filter((p) => state.view === "all" || (drop(p.drop) >= near[0] && drop(p.drop) <= near[1]));
    const values = [...seen.map(of), of(answer), ...(other && isKnown(other.drop) && drop(other.drop) <= near[1] ? [of(other)] : [])], edge = 0.06 * (Math.max(...values) - Math.min(...values)) || 0.05 * Math.abs(values[0]) || 1;
    const axis = (title, range) => ({ title: { text: title, font: { size: 13 } }, gridcolor: css("--line"), zerolinecolor: css("--strong"), linecolor: css("--strong"), automargin: true, fixedrange: true, ...(range ? { range } : {}) });
    const ranged = axis(key === "penalty" ? "penalty" : "file size, kB", [Math.min(...values) - edge, Math.max(...values) + edge]);
    Plotly.react($("plot"), traces, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", showlegend: false, autosize: true, margin: { l: 56, r: 14, t: 12, b: 48 },
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink }, hoverlabel: { align: "left", bgcolor: paper, bordercolor: css("--strong"), font: { color: ink, size: 12 } },
      xaxis: ranged, yaxis: axis(`expected drop${run.unit ? `, ${run.unit}` : ""}`, state.view === "near" ? near : undefined),
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit, y1: limit, line: { color: css("--quiet"), width: 1.2, dash: "dash" } }],
      annotations: [{ xref: "paper", x: 1, xanchor: "right", y: limit, yanchor: "bottom", text: `limit ${show.drop(answer.allowed_drop)}`, showarrow: false, font: { size: 11, color: css("--quiet") } }],
    }, { responsive: true, displayModeBar: false });
    const beyond = points.length - seen.length, isForecast = key === "penalty" && !now().target && !answer.compiled && points.some((p) => p.compiled);
    $("plot-legend").replaceChildren(...[["own", "this candidate"], ["other", "compared with"], ["front", "front"], ["pick", "pick"], ["hand", "by hand"], ["trial", "trial"]].map(([name, text]) => el("span", { className: `mark ${name}`, textContent: text })), el("span", { textContent: `${beyond ? ` ${plural(beyond, "trial")} beyond the edge.` : ""} Click a trial to start from it.${isForecast ? ` ${FORECAST}` : ""}${key === "penalty" && now().target ? ` Penalties of trials are those for ${run.target}, that of this candidate is for ${now().target}.` : ""}` }));
    $("plot").setAttribute("aria-label", `${points.length} trials by expected drop and ${key === "penalty" ? "penalty" : "file size"}; this candidate at ${key === "penalty" ? show.penalty(answer.penalty) : show.size(answer.size_bytes)} and ${show.drop(answer.drop)}.${isForecast ? ` ${FORECAST}` : ""} "Start from" lists the front.`);
    if (!("listens" in $("plot").dataset)) {
      $("plot").dataset.listens = "";
      $("plot").on("plotly_click", (event) => { const id = event.points[0].customdata; if (id) step(fresh(id, now().target)); });
    }
  }

  // ------------------------------------------------------------------------------------------ the cheapest change
  async function updateMoves(signal) {
    if (state.goal === "drop" && !isKnown(answer.drop)) {
      $("moves").replaceChildren(el("li", { className: "empty", textContent: "Nobody knows what this candidate loses, so nobody knows what lowers it." }));
      return;
    }
    $("moves").setAttribute("aria-busy", "true");
    try {
      const told = await call("POST", "/api/cheapest", { ...question(now()), goal: state.goal }, signal);
      moves = told.moves;
      drawMoves();
    } catch (error) {
      if (error.told) $("moves").replaceChildren(el("li", { className: "empty", textContent: error.message }));
      else if (error.name !== "AbortError" && !gone) throw error;
    }
    $("moves").removeAttribute("aria-busy");
  }
  function drawMoves() {
    const gap = (label, value, before, format) => {
      if (!isKnown(value) || !isKnown(before) || value === before) return null;
      const isSeen = format(value - before) !== format(0);
      return el("span", { className: value < before ? "gains" : "loses", textContent: `${label} ${isSeen ? signed(format)(value - before) : value < before ? "a trace less" : "a trace more"}` });
    };
    const rows = moves.map((m) => {
      const names = m.nodes.map((name) => run.nodes.find((n) => n.name === name));
      return el("li", {}, el("button", {
        type: "button", className: `move ${kindOf(m.state)}`, onclick: () => { preview([], ""); decide(m.nodes.map((name) => run.nodes.findIndex((n) => n.name === name)), m.state); },
        onmouseenter: () => preview(m.nodes, m.state), onmouseleave: () => preview([], ""), onfocus: () => preview(m.nodes, m.state), onblur: () => preview([], ""),
      }, el("i", { className: "chip" }), el("span", { className: "what" }, el("b", { textContent: names[0].op }), ` to ${m.state}`, el("span", { className: "nodename", textContent: ` ${names[0].short}${names.length > 1 ? ` and ${names.length - 1} more` : ""}` })), el("span", { className: "brings" }, gap("drop", m.more_drop, 0, show.drop), gap("penalty", m.more_penalty, 0, show.penalty), gap("size", m.more_bytes, 0, show.size))));
    });
    $("moves").replaceChildren(...(rows.length ? rows : [el("li", { className: "empty", textContent: `No single change lowers ${{ drop: "the expected drop", penalty: "the penalty", size: "the size" }[state.goal]}.` })]));
  }

  // ------------------------------------------------------------------------------------------ jobs
  let jobs = [], pulse = 0;
  const atWork = () => jobs.some((j) => j.state === "waiting" || j.state === "working");
  function wake() { clearTimeout(pulse); pulse = setTimeout(look, atWork() || gone ? 700 : 2500); }
  async function look() {
    try {
      const told = await call("GET", "/api/jobs");
      const ended = told.jobs.filter((j) => j.state !== jobs.find((k) => k.id === j.id)?.state && ["done", "failed"].includes(j.state) && jobs.some((k) => k.id === j.id));
      ended.forEach((j) => say(j.state === "done" ? j.result?.says || `${j.kind} done` : j.error));
      jobs = told.jobs;
      drawJobs();
      if (told.revision !== run.revision) await refetch();
    } catch (error) { if (error.told && !gone) say(error.message); }
    wake();
  }
  async function refetch() {
    run = await call("GET", "/api/run");
    answers.clear();
    drawJobs();
    await update();
  }
  function drawJobs() {
    const focused = document.activeElement?.closest?.("#jobs [data-job]")?.dataset.job;
    $("jobs-none").hidden = jobs.length > 0;
    $("interrupted").hidden = run.status !== "interrupted" || atWork();
    $("jobs").replaceChildren(...[...jobs].reverse().map((j) => {
      const active = j.state === "waiting" || j.state === "working";
      const words = j.error || (j.state === "done" ? j.result?.says : j.state === "stopped" ? "stopped" : j.progress) || j.state;
      return el("li", { className: j.state }, el("span", { className: "job" }, el("b", { textContent: { build: "Build", score: "Score", search: "Search" }[j.kind] || j.kind }), ` ${j.name}`),
        active ? el("progress", { max: 1, "aria-label": `${j.kind} of ${j.name}`, ...(isKnown(j.share) ? { value: j.share } : {}) }) : null,
        el("span", { className: j.error ? "words refused" : "words", textContent: words }),
        active ? el("button", { type: "button", className: "act", textContent: "Stop", "data-job": j.id, "aria-label": `Stop: ${j.kind} ${j.name}`, onclick: () => post("DELETE", `/api/jobs/${j.id}`) }) : null,
        j.file ? el("a", { href: `/api/jobs/${j.id}/file`, download: "", className: "act", "data-job": j.id, textContent: "Download" }) : null);
    }));
    if (focused) $("jobs").querySelector(`[data-job="${focused}"]`)?.focus();
  }
  async function post(method, path, body) {
    try { await call(method, path, body); } catch (error) { if (error.told) refuse(error.message); return; }
    await look();
  }
  const begin = (kind, more = {}) => post("POST", "/api/jobs", { kind, ...question(now()), ...more });
  function searchOn() {
    const pins = { keep_float: [], keep_int: [], keep_int16: [] };
    for (const [place, name] of Object.entries(now().decided)) pins[PIN[name]].push(run.nodes[place].name);
    const trials = $("trials");
    if (trials.reportValidity()) begin("search", { pins, trials: trials.valueAsNumber });
  }

  // ------------------------------------------------------------------------------------------ hands
  function drawAll() { drawBar(); drawRepairs(); drawFigures(); drawGraph(); drawList(); drawPlot(); }
  const on = (id, event, deed) => $(id).addEventListener(event, deed);
  on("undo", "click", () => walk(-1));
  on("redo", "click", () => walk(1));
  on("reset", "click", () => step(fresh(now().from, now().target)));
  on("start", "change", () => step(fresh($("start").value, now().target)));
  on("target", "change", () => step({ ...now(), target: $("target").value === run.target ? null : $("target").value }));
  on("compare", "change", () => { state.compare = $("compare").value; update(); });
  on("keep", "click", () => { state.keptOnes.push(now()); state.compare = `kept ${state.keptOnes.length - 1}`; say("Kept."); update(); });
  on("build", "click", () => begin("build"));
  on("score", "click", () => begin("score"));
  on("search", "click", searchOn);
  on("filter", "input", drawList);
  on("axis", "change", () => { state.axis = $("axis").value; keep(); drawPlot(); });
  for (const [name, deed] of [["scope", () => tellOp(drawing.chosen())], ["view", drawPlot], ["goal", () => update()]]) {
    document.querySelectorAll(`input[name=${name}]`).forEach((input) => input.addEventListener("change", () => { state[name] = input.value; keep(); deed(); }));
  }
  on("zoom-in", "click", () => drawing.zoom(0.8));
  on("zoom-out", "click", () => drawing.zoom(1.25));
  on("zoom-fit", "click", () => drawing.fit());
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.matches("input[type=search], input[type=number]")) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    walk(key === "y" || event.shiftKey ? 1 : -1);
  });
  addEventListener("pointerdown", (event) => { if (!event.target.closest("#repairs-menu")) $("repairs-menu").open = false; });
  addEventListener("resize", () => { closeMenu(false); if (answer) drawing.begin(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (answer) drawPlot(); });
  update();
  look();
})();
