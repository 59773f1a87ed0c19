"use strict";
// The graphs of the picks: laid out when they are first seen, and what each op is. See graph_view.js for the drawing.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const canvas = $("canvas");
  if (!canvas) return;
  let graph;

  const nameOf = ([, , name]) => (typeof name === "number" ? data.nodes[name][1] : name);
  const number = (value) => value.toLocaleString("en");
  // What chips make of the graph that is shown; and the one that colours it, null where colours say how ops compute.
  const chips = () => graph.chips || [];
  const sideOf = () => chips().find((chip) => chip.name === $("graph-side").value) || null;
  const count = (chip) => Math.max(0, ...chip.pieces);
  const runsOn = (chip, i) => (chip.pieces[i] ? `piece ${chip.pieces[i]} of ${count(chip)} on ${chip.name}` : "left on the CPU");
  const drawing = graphView(canvas, { onChoose: tell, onEnter: tell, onLeave: () => tell(drawing.chosen()) });

  function draw() {
    seen.disconnect();
    const begins = !graph;
    graph = data.graphs[$("graph-model").value];
    const chip = sideOf();
    $("kind-legend").hidden = Boolean(chip);
    if ($("side-legend")) $("side-legend").hidden = !chip;
    drawing.draw({
      label: `The ${graph.ops.length} ops of ${graph.picks.join(", ")}. The arrow keys walk along them.`,
      types: graph.ops.map(([type]) => type), sources: graph.ops.map((op) => op[6]), clusters: chip && chip.pieces,
      boxes: graph.ops.map((op, i) => ({
        kind: chip ? (chip.pieces[i] ? "npu" : "cpu") : op[1],
        label: `${op[0]}, ${data.words[op[1]] || op[1]}${chip ? `, ${runsOn(chip, i)}` : ""}, ${nameOf(op)}`,
      })),
    });
    if (begins) drawing.choose(Math.max(graph.ops.findIndex((op) => typeof op[2] === "number"), 0)); // the first with figures
    else tell(drawing.chosen());
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

  $("zoom-in").addEventListener("click", () => drawing.zoom(0.8));
  $("zoom-out").addEventListener("click", () => drawing.zoom(1.25));
  $("zoom-fit").addEventListener("click", drawing.fit);
  $("graph-model").addEventListener("change", draw);
  if ($("graph-side")) $("graph-side").addEventListener("change", draw);
  addEventListener("resize", () => { if (graph && !matchMedia("print").matches) drawing.begin(); });
  // Paper shows the whole graph, on a page of its own where it is long.
  const print = (begins) => {
    if (!graph) draw();
    canvas.style.height = begins ? `${Math.min(0.6 * drawing.size().height, 900)}px` : "";
    if (begins) drawing.fit(); else drawing.begin();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  const seen = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) draw(); }, { rootMargin: "300px" });
  seen.observe(canvas);
})();
