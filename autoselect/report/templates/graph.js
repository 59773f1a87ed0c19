"use strict";
// The graph of a model as boxes: laid out by dagre when it is first seen, drawn as SVG. Names are set as text only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const canvas = $("canvas");
  if (!canvas) return;
  const HEIGHT = 30, READABLE = 0.55;
  let graph, view, whole, boxes = [], chosen = 0;

  const make = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const nameOf = ([, , name]) => (typeof name === "number" ? data.nodes[name][1] : name);
  const number = (value) => value.toLocaleString("en");
  // What chips make of the graph that is shown; and the one that colours it, null where colours say how ops compute.
  const chips = () => graph.chips || [];
  const sideOf = () => chips().find((chip) => chip.name === $("graph-side").value) || null;

  function draw() {
    seen.disconnect();
    const begins = !graph;
    graph = data.graphs[$("graph-model").value];
    if (begins) chosen = Math.max(graph.ops.findIndex((op) => typeof op[2] === "number"), 0); // the first with figures
    const chip = sideOf();
    $("kind-legend").hidden = Boolean(chip);
    if ($("side-legend")) $("side-legend").hidden = !chip;
    const layout = laidOut(chip);
    const { width, height } = layout.graph();
    const svg = make("svg", { role: "group", "aria-label": `The ${graph.ops.length} ops of ${graph.picks.join(", ")}. The arrow keys walk along them.`, tabindex: -1 });
    const wires = make("g", { class: "wires", "aria-hidden": true });
    for (const edge of layout.edges()) {
      const points = layout.edge(edge).points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`);
      wires.append(make("polyline", { points: points.join(" ") }));
    }
    boxes = graph.ops.map((op, i) => {
      const at = layout.node(String(i)), [type, kind] = op;
      const runs = chip ? `, ${runsOn(chip, i)}` : "";
      const box = make("g", { class: `op ${chip ? (chip.pieces[i] ? "npu" : "cpu") : kind}`, role: "button", tabindex: -1, "aria-label": `${type}, ${data.words[kind] || kind}${runs}, ${nameOf(op)}` });
      box.append(make("rect", { x: at.x - at.width / 2, y: at.y - HEIGHT / 2, width: at.width, height: HEIGHT, rx: 5 }), make("text", { x: at.x, y: at.y + 4.2 }, type));
      box.addEventListener("focus", () => choose(i));
      box.addEventListener("mouseenter", () => tell(i));
      box.addEventListener("mouseleave", () => tell(chosen));
      box.dataset.x = at.x;
      box.dataset.y = at.y;
      return box;
    });
    svg.append(...(chip ? frames(layout, chip) : []), wires, ...boxes);
    canvas.replaceChildren(svg);
    whole = { x: 0, y: 0, width, height };
    begin();
    choose(Math.min(chosen, boxes.length - 1));
  }

  const count = (chip) => Math.max(0, ...chip.pieces);
  const runsOn = (chip, i) => (chip.pieces[i] ? `piece ${chip.pieces[i]} of ${count(chip)} on ${chip.name}` : "left on the CPU");

  // The pieces of a chip's work are clusters, which keep their ops together.
  function laidOut(chip) {
    const layout = new dagre.graphlib.Graph({ compound: Boolean(chip) });
    layout.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: 12, marginy: chip ? 20 : 12 });
    layout.setDefaultEdgeLabel(() => ({}));
    graph.ops.forEach(([type], i) => layout.setNode(String(i), { width: 7.4 * type.length + 22, height: HEIGHT }));
    graph.ops.forEach((op, i) => op[6].forEach((source) => layout.setEdge(String(source), String(i))));
    if (chip) {
      for (let piece = 1; piece <= count(chip); piece += 1) layout.setNode(`piece ${piece}`, {});
      chip.pieces.forEach((piece, i) => { if (piece) layout.setParent(String(i), `piece ${piece}`); });
    }
    dagre.layout(layout);
    return layout;
  }

  function frames(layout, chip) {
    return Array.from({ length: count(chip) }, (_, i) => {
      const at = layout.node(`piece ${i + 1}`), frame = make("g", { class: "piece", "aria-hidden": true });
      const [x, y] = [at.x - at.width / 2, at.y - at.height / 2];
      frame.append(make("rect", { x, y, width: at.width, height: at.height, rx: 8 }), make("text", { x: x + 2, y: y - 5 }, `piece ${i + 1}`));
      return frame;
    });
  }

  // A graph that would be too small to read as a whole is seen from its first ops on.
  function begin() {
    fit();
    if (scale() < READABLE) {
      const first = boxes[0];
      const width = canvas.clientWidth, height = canvas.clientHeight;
      view = { x: Number(first.dataset.x) - width / 2, y: 0, width, height };
      show();
    }
  }

  const scale = () => canvas.clientWidth / view.width;
  function show() { canvas.firstChild.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`); }

  function fit() {
    const share = canvas.clientWidth / canvas.clientHeight;
    const width = Math.max(whole.width, whole.height * share, canvas.clientWidth * 0.8), height = width / share;
    view = { x: (whole.width - width) / 2, y: Math.min((whole.height - height) / 2, 0), width, height };
    show();
  }

  function zoom(factor, [u, v] = [0.5, 0.5]) {
    const width = Math.min(Math.max(view.width * factor, 120), 4 * Math.max(whole.width, whole.height, canvas.clientWidth));
    const ratio = width / view.width, height = view.height * ratio;
    view = { x: view.x + u * (view.width - width), y: view.y + v * (view.height - height), width, height };
    show();
  }

  function reach(box) {
    const x = Number(box.dataset.x), y = Number(box.dataset.y);
    if (x > view.x && x < view.x + view.width && y > view.y && y < view.y + view.height) return;
    view.x = x - view.width / 2;
    view.y = y - view.height / 2;
    show();
  }

  function choose(i) {
    boxes[chosen]?.classList.remove("chosen");
    boxes.forEach((box, k) => box.setAttribute("tabindex", k === i ? 0 : -1));
    chosen = i;
    boxes[i].classList.add("chosen");
    reach(boxes[i]);
    tell(i);
  }

  function tell(i) {
    const op = graph.ops[i], [type, kind, name, shape, macs, bytes] = op;
    const node = typeof name === "number" ? data.nodes[name] : null;
    const all = graph.ops.reduce((sum, other) => sum + other[4], 0);
    const rows = [["kind", data.words[kind] || kind], ["output", shape]];
    for (const chip of chips()) {
      rows.push([`on ${chip.name}`, chip.pieces[i] ? `piece\u00a0${chip.pieces[i]} of\u00a0${count(chip)}` : "left on the CPU"]);
      if (!chip.pieces[i]) rows.push(["because", chip.reasons[chip.why[i]], "long"]);
    }
    if (macs) rows.push(["multiply-accumulates", `${number(macs)} (${(100 * macs / all).toFixed(1)} %)`]);
    if (bytes) rows.push(["constants", bytes < 1000 ? `${bytes} B` : `${(bytes / 1000).toFixed(1)} kB`]);
    if (node && node[2] !== null) rows.push(["error in int8, rmse/scale", node[2].toFixed(3)]);
    if (node && node[3] !== null) rows.push(["share of the damage", `${(100 * node[3]).toFixed(1)} %`]);
    const cure = node && node[4];
    if (cure) rows.push([cure.broken ? "broken in int8" : "parts in int8", cure.broken || cure.reason], ["cheapest cure", cure.name]);
    const list = document.createElement("dl");
    for (const [label, value, form] of rows) {
      const row = document.createElement("div"), term = document.createElement("dt"), text = document.createElement("dd");
      if (form) row.className = form;
      term.textContent = label;
      text.textContent = value;
      row.append(term, text);
      list.append(row);
    }
    const title = document.createElement("h3"), words = document.createElement("p");
    title.textContent = `${i}: ${type}`;
    words.className = "nodename";
    words.textContent = nameOf(op);
    $("op").replaceChildren(title, words, list);
  }

  // ------------------------------------------------------------------------------------------- what a person does
  let held = null;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [(event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height]; };
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false, op: event.target.closest(".op") }; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
    if (!held.moved && Math.hypot(dx, dy) < 4) return;
    if (!held.moved) canvas.setPointerCapture(event.pointerId);
    held.moved = true;
    view = { ...held.from, x: held.from.x - dx / scale(), y: held.from.y - dy / scale() };
    show();
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(end, () => { held = null; });
  canvas.addEventListener("click", (event) => { const box = event.target.closest(".op"); if (box) choose(boxes.indexOf(box)); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // else the page scrolls
    event.preventDefault();
    zoom(Math.exp(event.deltaY / 300), place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const factor = { "+": 0.8, "=": 0.8, "-": 1.25 }[event.key];
    if (!step && !factor) return;
    event.preventDefault();
    if (factor) zoom(factor);
    else boxes[Math.min(Math.max(chosen + step, 0), boxes.length - 1)].focus({ preventScroll: true });
  });
  $("zoom-in").addEventListener("click", () => zoom(0.8));
  $("zoom-out").addEventListener("click", () => zoom(1.25));
  $("zoom-fit").addEventListener("click", fit);
  $("graph-model").addEventListener("change", draw);
  if ($("graph-side")) $("graph-side").addEventListener("change", draw);
  addEventListener("resize", () => { if (graph && !matchMedia("print").matches) begin(); });
  // Paper shows the whole graph, on a page of its own where it is long.
  const print = (begins) => {
    if (!graph) draw();
    canvas.style.height = begins ? `${Math.min(0.6 * whole.height, 900)}px` : "";
    if (begins) fit(); else begin();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  const seen = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) draw(); }, { rootMargin: "300px" });
  seen.observe(canvas);
})();
