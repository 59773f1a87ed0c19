"use strict";
// A graph of ops as boxes: laid out by dagre, drawn as SVG, moved and zoomed. Names are set as text only. Knows no page.
//
// graphView(canvas, hands) -> { draw, choose, focus, fit, zoom, begin, boxes }
// draw({ label, types, sources, boxes: [{ kind, label }], clusters, islands, marks }) shows a graph:
//   types and sources: of each op its type and the numbers of the ops that it reads from;
//   clusters: of each op the number of the frame that keeps it together, from 1, 0 for none; moves the ops;
//   islands: the same as a ground beneath the ops, which stay where they are;
//   marks: [from, to, words] for edges with a mark on them.
// hands: onChoose(i), onEnter(i), onLeave(), onOpen(i, box, event) of a click or Enter, onKey(i, key) -> whether it was taken.
function graphView(canvas, hands) {
  const HEIGHT = 30, READABLE = 0.55, ROOM = 9;
  let view, whole, layout, laidOutAs, scene, boxes = [], chosen = 0, begun = false;

  const make = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  function draw(wanted) {
    scene = wanted;
    const key = JSON.stringify([scene.types, scene.sources, scene.clusters]);
    if (key === laidOutAs) { dress(); return; }
    laidOutAs = key;
    layout = laidOut();
    const { width, height } = layout.graph();
    const svg = make("svg", { role: "group", tabindex: -1 });
    const wires = make("g", { class: "wires", "aria-hidden": true });
    for (const edge of layout.edges()) wires.append(make("polyline", { points: path(layout.edge(edge).points) }));
    boxes = scene.types.map((type, i) => {
      const at = layout.node(String(i));
      const box = make("g", { role: "button", tabindex: -1 });
      box.append(make("rect", { x: at.x - at.width / 2, y: at.y - HEIGHT / 2, width: at.width, height: HEIGHT, rx: 5 }), make("text", { x: at.x, y: at.y + 4.2 }, type));
      box.addEventListener("focus", () => choose(i));
      box.addEventListener("mouseenter", () => hands.onEnter?.(i));
      box.addEventListener("mouseleave", () => hands.onLeave?.(i));
      box.dataset.x = at.x;
      box.dataset.y = at.y;
      return box;
    });
    svg.append(make("g", { class: "ground", "aria-hidden": true }), wires, make("g", { class: "marks", "aria-hidden": true }), ...boxes);
    canvas.replaceChildren(svg);
    whole = { x: 0, y: 0, width, height };
    dress();
    begin();
    choose(Math.min(chosen, boxes.length - 1));
  }

  const path = (points) => points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

  // What changes while the ops stay where they are: colours, names, islands and marks.
  function dress() {
    const svg = canvas.firstChild;
    svg.setAttribute("aria-label", scene.label);
    boxes.forEach((box, i) => {
      box.setAttribute("class", `op ${scene.boxes[i].kind}${i === chosen ? " chosen" : ""}`);
      box.setAttribute("aria-label", scene.boxes[i].label);
    });
    svg.querySelector(".ground").replaceChildren(...(scene.clusters ? frames() : []), ...(scene.islands ? grounds() : []));
    svg.querySelector(".marks").replaceChildren(...(scene.marks || []).map(mark));
  }

  // Clusters keep their ops together.
  function laidOut() {
    const made = new dagre.graphlib.Graph({ compound: Boolean(scene.clusters) });
    made.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: 12, marginy: scene.clusters || scene.islands ? 20 : 12 });
    made.setDefaultEdgeLabel(() => ({}));
    scene.types.forEach((type, i) => made.setNode(String(i), { width: 7.4 * type.length + 22, height: HEIGHT }));
    scene.sources.forEach((sources, i) => sources.forEach((source) => made.setEdge(String(source), String(i))));
    if (scene.clusters) {
      for (let cluster = 1; cluster <= Math.max(0, ...scene.clusters); cluster += 1) made.setNode(`piece ${cluster}`, {});
      scene.clusters.forEach((cluster, i) => { if (cluster) made.setParent(String(i), `piece ${cluster}`); });
    }
    dagre.layout(made);
    return made;
  }

  function frames() {
    return Array.from({ length: Math.max(0, ...scene.clusters) }, (_, i) => {
      const at = layout.node(`piece ${i + 1}`), frame = make("g", { class: "piece" });
      const [x, y] = [at.x - at.width / 2, at.y - at.height / 2];
      frame.append(make("rect", { x, y, width: at.width, height: at.height, rx: 8 }), make("text", { x: x + 2, y: y - 5 }, `piece ${i + 1}`));
      return frame;
    });
  }

  // An island is the ground under its ops and under the edges between them.
  function grounds() {
    return Array.from({ length: Math.max(0, ...scene.islands) }, (_, k) => k + 1).map((island) => {
      const ground = make("g", { class: `island ${island % 2 ? "odd" : "even"}` });
      for (const edge of layout.edges()) {
        if (scene.islands[edge.v] === island && scene.islands[edge.w] === island) ground.append(make("polyline", { points: path(layout.edge(edge).points) }));
      }
      const own = scene.types.map((_, i) => i).filter((i) => scene.islands[i] === island);
      for (const i of own) {
        const at = layout.node(String(i));
        ground.append(make("rect", { x: at.x - at.width / 2 - ROOM, y: at.y - HEIGHT / 2 - ROOM, width: at.width + 2 * ROOM, height: HEIGHT + 2 * ROOM, rx: 12 }));
      }
      const first = own.map((i) => layout.node(String(i))).sort((a, b) => a.y - b.y)[0];
      if (first) ground.append(make("text", { x: first.x + first.width / 2 + ROOM + 6, y: first.y - 4 }, `piece ${island}`));
      return ground;
    });
  }

  function mark([from, to, words]) {
    const { points } = layout.edge(String(from), String(to));
    const { x, y } = points[Math.floor(points.length / 2)], r = 5;
    const made = make("path", { d: `M${x - r},${y} L${x},${y - r} L${x + r},${y} L${x},${y + r} Z` });
    made.append(make("title", {}, words));
    return made;
  }

  // A graph that would be too small to read as a whole is seen from its first ops on. A canvas without a size begins when it has one.
  function begin() {
    begun = sized();
    if (!boxes.length || !begun) return;
    fit();
    if (scale() < READABLE) {
      const width = canvas.clientWidth, height = canvas.clientHeight;
      view = { x: Number(boxes[0].dataset.x) - width / 2, y: 0, width, height };
      show();
    }
  }

  const sized = () => canvas.clientWidth > 0 && canvas.clientHeight > 0;
  new ResizeObserver(() => { if (!begun) begin(); }).observe(canvas);

  const scale = () => canvas.clientWidth / view.width;
  function show() { canvas.firstChild.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`); }

  function fit() {
    if (!sized()) return;
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
    if (!begun) return;
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
    hands.onChoose?.(i);
  }

  // ------------------------------------------------------------------------------------------- what a person does
  let held = null, dragged = false;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [(event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height]; };
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY, from: { ...view } }; dragged = false; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
    if (!dragged && Math.hypot(dx, dy) < 4) return;
    if (!dragged) canvas.setPointerCapture(event.pointerId);
    dragged = true;
    view = { ...held.from, x: held.from.x - dx / scale(), y: held.from.y - dy / scale() };
    show();
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(end, () => { held = null; });
  canvas.addEventListener("click", (event) => {
    const box = event.target.closest(".op"), i = boxes.indexOf(box);
    if (i < 0 || dragged) return;
    choose(i);
    hands.onOpen?.(i, box);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // else the page scrolls
    event.preventDefault();
    zoom(Math.exp(event.deltaY / 300), place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const factor = { "+": 0.8, "=": 0.8, "-": 1.25 }[event.key];
    const bare = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (factor && bare) zoom(factor);
    else if (step) boxes[Math.min(Math.max(chosen + step, 0), boxes.length - 1)].focus({ preventScroll: true });
    else if ((event.key === "Enter" || event.key === " ") && hands.onOpen) hands.onOpen(chosen, boxes[chosen]);
    else if (!bare || !hands.onKey?.(chosen, event.key)) return;
    event.preventDefault();
  });

  return { draw, choose, fit, zoom, begin, chosen: () => chosen, boxes: () => boxes, size: () => whole, focus: (i) => boxes[i].focus({ preventScroll: true }) };
}
