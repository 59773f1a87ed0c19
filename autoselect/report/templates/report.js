"use strict";
// Names of tensors are data: they reach the page as text nodes, and the charts with their markup escaped.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const DASH = "–";
  const { metric, models, references } = data;
  models.forEach((model, place) => { model.place = place; });
  const scored = models.filter((m) => m.state === "complete" && m.score !== null);
  const distinct = scored.filter((m, i) => m.front || (!m.reused && !scored.some((o, j) => j < i && o.id === m.id)));
  const front = models.filter((m) => m.front);

  // ------------------------------------------------------------------------------------------ numbers as text
  const scale = Math.max(0, ...[...scored, ...references].map((m) => Math.abs(m.score)));
  const decimals = scale < 10 ? 4 : scale < 100 ? 3 : scale < 1000 ? 2 : 1;
  const minus = (text) => text.replace(/^-/, "−");
  const plain = (value, places) => minus(Number(value.toFixed(places)) === 0 ? (0).toFixed(places) : value.toFixed(places));
  const known = (format) => (value) => (value === null || value === undefined ? DASH : format(value));
  const show = {
    score: known((v) => (metric.share ? `${plain(100 * v, 1)} %` : scale < 0.01 || scale >= 1e6 ? v.toExponential(2) : plain(v, decimals))),
    drop: known((v) => (metric.share ? plain(100 * v, 1) : scale < 0.01 || scale >= 1e6 ? v.toExponential(2) : plain(v, decimals))),
    size: known((v) => (v < 1000 ? `${v.toFixed(0)} B` : v < 1e6 ? `${(v / 1e3).toFixed(1)} kB` : `${(v / 1e6).toFixed(2)} MB`)),
    penalty: known((v) => (v >= 1e5 ? v.toExponential(2) : plain(v, 2))),
    count: known((v) => String(Math.round(v))),
  };
  const dropText = (v) => (metric.share ? `${show.drop(v)} points` : show.drop(v));
  const heldoutText = (h) => (h ? `${show.score(h[0]).replace(" %", "")} (${h.slice(1).map((v) => show.score(v).replace(" %", "")).join("–")})` : DASH);
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // ------------------------------------------------------------------------------------------------ state
  const drops = scored.map((m) => m.drop).filter((d) => d !== null);
  const largest = Math.max(0, ...drops);
  const state = { limit: Infinity, rows: "front", filter: "", sort: { front: ["score", false], all: ["number", true] }, chosen: null };
  const accepted = (m) => state.limit === Infinity || (m.drop !== null && m.drop <= state.limit + 1e-12);

  // ------------------------------------------------------------------------------------------------ charts
  const objectives = {
    score: { label: metric.label + (metric.share ? ", %" : ""), better: metric.maximize ? "more" : "less", of: (m) => (metric.share ? 100 * m.score : m.score), text: show.score },
  };
  const texts = { size_bytes: show.size, crossing_bytes: show.size, arena_bytes: show.size, segments: show.count, float_ops: show.count };
  for (const { key, label, bytes, noisy } of data.costs) {
    const of = bytes ? (m) => (m[key] === null ? null : m[key] / 1e3) : (m) => m[key];
    const text = texts[key] || (key === "penalty" || key === "npu_cycles" ? show.penalty : known((v) => `${v.toPrecision(3)}${noisy ? " ms" : ""}`));
    objectives[key] = { label: `${key === "size_bytes" ? "file size" : label}${bytes ? ", kB" : noisy ? ", ms here (noisy)" : ""}`, short: label, column: noisy ? `${label} (noisy)` : label, better: "less", of, text };
  }
  const keys = Object.keys(objectives);
  const further = keys.filter((key) => !["score", "size_bytes", "penalty"].includes(key));
  const furtherText = (m) => further.map((key) => `, ${objectives[key].short} ${objectives[key].text(m[key])}`).join("");
  const isKnown = (v) => v !== null && v !== undefined;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axisStyle = (title) => ({
    title: { text: title, font: { size: 13 } }, gridcolor: css("--line"), zerolinecolor: css("--line"),
    linecolor: css("--strong"), tickcolor: css("--strong"), automargin: true,
  });
  // Paper has a width of its own, which the page is not laid out for while the charts are drawn: that of A4, in pixels.
  const PAPER = 660;
  let printing = matchMedia("print").matches;
  const widthOf = (id) => (printing ? PAPER : $(id).clientWidth);
  const layoutStyle = () => ({
    ...(printing ? { width: PAPER, autosize: false } : { width: undefined, autosize: true }),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
    hoverlabel: { align: "left", bgcolor: css("--paper"), bordercolor: css("--strong"), font: { color: css("--ink"), size: 12 } },
  });
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

  const hover = (m) => {
    const lines = [`<b>${escaped(m.label || m.id)}</b>${m.picks && m.picks.length ? ` ${m.picks.join(", ")}` : ""}`];
    lines.push(`${escaped(metric.label)} ${show.score(m.score)}, drop ${dropText(m.drop)}`, `${show.size(m.size_bytes)}, penalty ${show.penalty(m.penalty)}${furtherText(m)}`);
    if (m.heldout) lines.push(`held out ${heldoutText(m.heldout)}`);
    if (m.nodes) {
      lines.push(m.nodes.length ? `out of integers: ${m.nodes.length}` : "all nodes in integers");
      m.nodes.slice(0, 8).forEach((n) => lines.push(`  ${escaped(data.nodes[n][0])}`));
      if (m.nodes.length > 8) lines.push(`  … and ${m.nodes.length - 8} more`);
    }
    return lines.join("<br>");
  };

  function points(rows, x, y, more) {
    return {
      type: "scatter", mode: "markers", x: rows.map(objectives[x].of), y: rows.map(objectives[y].of),
      customdata: rows.map((m) => (m.place === undefined ? -1 : m.place)), text: rows.map(hover), hovertemplate: "%{text}<extra></extra>", ...more,
    };
  }

  function traces(x, y, third, narrow) {
    const values = front.map(third ? objectives[third].of : () => 0);
    const low = Math.min(...values), width = Math.max(...values) - low || 1;
    const size = (v) => 8 + (10 * (v - low)) / width;
    const others = distinct.filter((m) => !m.front);
    const picked = front.filter((m) => m.picks.length && accepted(m));
    const chosen = models.filter((m) => m.place === state.chosen && m.score !== null);
    return [
      points(others, x, y, { name: "trial", marker: { color: css("--strong"), size: 6, opacity: others.map((m) => (accepted(m) ? 0.75 : 0.12)) } }),
      points(front, x, y, {
        name: "front",
        marker: {
          color: values, colorscale: "Cividis", size: values.map(size), opacity: front.map((m) => (accepted(m) ? 1 : 0.12)), line: { color: css("--ink"), width: 1 },
          showscale: Boolean(third),
          colorbar: { title: { text: third ? objectives[third].label : "", side: narrow ? "top" : "right" }, thickness: 10, outlinewidth: 0, ...(narrow ? { orientation: "h", y: 1.14, yanchor: "bottom", len: 1 } : { len: 0.9 }) },
        },
      }),
      points(references, x, y, {
        name: "baseline",
        marker: { symbol: references.map((r) => ({ float: "diamond", "all-integer": "square", "all-DRQ": "triangle-up" })[r.label]), size: 12, color: css("--paper"), line: { color: css("--ink"), width: 2 } },
      }),
      points(picked, x, y, { name: "pick", hoverinfo: "skip", hovertemplate: undefined, marker: { symbol: "circle-open", size: 24, color: css("--hybrid"), line: { width: 2.5 } } }),
      points(chosen, x, y, { name: "chosen", hoverinfo: "skip", hovertemplate: undefined, marker: { symbol: "circle-open", size: 31, color: css("--float"), line: { width: 3 } } }),
    ];
  }

  function labels(x, y, ranges, narrow) {
    const named = [...references.map((m) => [m, m.label]), ...front.filter((m) => m.picks.length && accepted(m)).map((m) => [m, m.picks.join(", ")])];
    const style = { showarrow: true, arrowhead: 0, arrowwidth: 1, arrowcolor: css("--quiet"), standoff: 8, font: { size: 12, color: css("--ink") }, bgcolor: css("--paper"), borderpad: 1 };
    const area = [widthOf("front") - (narrow ? 72 : 150), $("front").clientHeight - (narrow ? 164 : 76)];
    const taken = [];
    return named.filter(([m]) => [x, y].every((key) => isKnown(objectives[key].of(m)))).map(([m, text]) => {
      const at = [x, y].map((key) => objectives[key].of(m));
      const place = at.map((v, i) => Math.min(Math.max((v - ranges[i][0]) / (ranges[i][1] - ranges[i][0]), 0), 1));
      const far = [x, y].filter((_, i) => !inside(at[i], ranges[i])).map((key) => objectives[key].text(key === "score" ? m.score : m[key]));
      const words = far.length ? `${text}, at ${far.join(" and ")}` : text;
      const [ax, ay] = freePlace(place, words, area, taken);
      const anchored = far.length ? { xref: "x domain", yref: "y domain", x: place[0], y: place[1], arrowhead: 2, startstandoff: 0, standoff: 0 } : { x: at[0], y: at[1] };
      return { ...style, ...anchored, text: escaped(words), ax, ay };
    });
  }

  // The nearest place beside a point, in pixels, where a label meets neither another label nor the edge.
  function freePlace(place, words, area, taken) {
    const width = 6.6 * words.length + 8, height = 18, at = [place[0] * area[0], (1 - place[1]) * area[1]];
    const tries = [];
    for (const radius of [28, 50, 74, 100]) {
      for (const [dx, dy] of [[0, -1], [0, 1], [0.8, -0.8], [-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8], [1, 0], [-1, 0]]) {
        tries.push([dx * (radius + (dx ? width / 2 : 0)), dy * radius]);
      }
    }
    const box = ([dx, dy]) => [at[0] + dx - width / 2, at[1] + dy - height / 2, at[0] + dx + width / 2, at[1] + dy + height / 2];
    const fits = (b) => b[0] > 0 && b[1] > -18 && b[2] < area[0] && b[3] < area[1] && !taken.some((t) => b[0] < t[2] && t[0] < b[2] && b[1] < t[3] && t[1] < b[3]);
    const found = tries.find((t) => fits(box(t))) || tries[0];
    taken.push(box(found));
    return found;
  }
  const ends = (values) => [Math.min(...values), Math.max(...values)];
  const inside = (value, [low, high]) => value >= low && value <= high;

  // The front decides what is in view. A baseline far from it stays outside, and is named at the edge: float files are
  // several times as large, and would squeeze everything else into a corner.
  function view(key) {
    const of = objectives[key].of;
    const shown = (front.length ? front : references).map(of).filter(isKnown);
    if (!shown.length) return [0, 1];
    let [low, high] = ends(shown);
    const room = 0.6 * (high - low) || 0.05 * Math.abs(high) || 1;
    const near = [...references, ...distinct].map(of).filter((v) => isKnown(v) && v >= low - room && v <= high + room);
    [low, high] = ends([low, high, ...near]);
    const edge = 0.09 * (high - low) || room;
    return [low - edge, high + edge];
  }

  function limitLine(x, y) {
    const whole = references.find((r) => r.label === "float");
    if (state.limit === Infinity || !whole || (x !== "score" && y !== "score")) return [];
    const at = objectives.score.of({ score: whole.score + (metric.maximize ? -state.limit : state.limit) });
    const line = { type: "line", line: { color: css("--quiet"), width: 1.2, dash: "dash" } };
    return [y === "score" ? { ...line, xref: "paper", x0: 0, x1: 1, y0: at, y1: at } : { ...line, yref: "paper", y0: 0, y1: 1, x0: at, x1: at }];
  }

  function drawFront() {
    const x = $("x-axis").value, y = $("y-axis").value;
    const third = keys.find((key) => key !== x && key !== y);
    const narrow = widthOf("front") < 560;
    const ranges = [view(x), view(y)];
    const axis = (key, range) => ({ ...axisStyle(`${objectives[key].label} (${objectives[key].better} is better)`), range });
    Plotly.react($("front"), traces(x, y, third, narrow), {
      ...layoutStyle(), showlegend: false, margin: { l: 56, r: 16, t: narrow ? 112 : 24, b: 52 }, xaxis: axis(x, ranges[0]), yaxis: axis(y, ranges[1]),
      annotations: labels(x, y, ranges, narrow), shapes: limitLine(x, y), uirevision: `${x} ${y}`,
    }, config);
    $("front").setAttribute("aria-label", `${distinct.length} scored models, ${front.length} of them on the front: ${objectives[y].label} over ${objectives[x].label}${third ? `; ${objectives[third].label} as colour and size` : ""}. The table below holds the same models.`);
  }

  function drawHypervolume() {
    if (!data.hypervolume.length) { $("hypervolume").replaceWith(element("p", "empty", "Too few candidates are scored.")); return; }
    Plotly.react($("hypervolume"), [{
      type: "scatter", mode: "lines", line: { shape: "hv", color: css("--integer"), width: 2.5 }, x: data.hypervolume.map((p) => p[0]), y: data.hypervolume.map((p) => 100 * p[1]),
      hovertemplate: "after %{x} evaluations: %{y:.1f} %<extra></extra>",
    }], { ...layoutStyle(), margin: { l: 52, r: 12, t: 10, b: 44 }, xaxis: { ...axisStyle("evaluations"), rangemode: "tozero" }, yaxis: { ...axisStyle("% of the final value"), range: [0, 104] } }, { ...config, displayModeBar: false });
    const half = data.hypervolume.find((p) => p[1] >= 0.95);
    $("hypervolume").setAttribute("aria-label", `Hypervolume over ${data.hypervolume.length} evaluations; 95 % of the final value after ${half[0]}.`);
  }

  // ------------------------------------------------------------------------------------------------ table
  function element(tag, name, text) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  const columns = [
    { key: "number", label: "trial", of: (m) => m.number, text: show.count, number: true, rows: "all" },
    { key: "id", label: "model", of: (m) => m.id || "", head: true },
    { key: "score", label: metric.label, of: (m) => m.score, text: show.score, number: true, down: metric.maximize },
    { key: "drop", label: metric.share ? "drop, points" : "drop", of: (m) => m.drop, text: show.drop, number: true },
    { key: "size_bytes", label: "size", of: (m) => m.size_bytes, text: show.size, number: true },
    { key: "penalty", label: "penalty", of: (m) => m.penalty, text: show.penalty, number: true },
    ...further.filter((key) => key !== "segments").map((key) => ({ key, label: objectives[key].column, of: (m) => m[key], text: objectives[key].text, number: true })),
    { key: "segments", label: "segments", of: (m) => m.segments, text: show.count, number: true },
    { key: "nodes", label: "nodes out", of: (m) => (m.fallback ? m.nodes.length : null), text: show.count, number: true },
    { key: "heldout", label: "held out (95 %)", of: (m) => m.heldout && m.heldout[0], text: null, number: true, down: metric.maximize, rows: "front" },
    { key: "origin", label: "from", of: (m) => m.origin, rows: "all" },
    { key: "state", label: "state", of: (m) => (m.reused ? `${m.state}, known` : m.state + (m.feasible ? "" : ", beyond a limit")), rows: "all" },
  ];
  state.sort.front[1] = !metric.maximize;
  const haystack = models.map((m) => [m.id, m.origin, m.state, ...m.picks, ...m.nodes.map((n) => data.nodes[n][1])].join(" ").toLowerCase());
  const visibleColumns = () => columns.filter((c) => !c.rows || c.rows === state.rows);

  function visibleRows() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = (state.rows === "front" ? front : models).filter((m) => accepted(m) && words.every((w) => haystack[m.place].includes(w)));
    const [key, ascending] = state.sort[state.rows];
    const column = columns.find((c) => c.key === key);
    const missing = (v) => v === null || v === undefined || v === "";
    return rows.sort((a, b) => {
      const p = column.of(a), q = column.of(b);
      if (missing(p) || missing(q)) return missing(p) - missing(q) || a.place - b.place;
      const order = typeof p === "string" ? p.localeCompare(q) : p - q;
      return (ascending ? order : -order) || a.place - b.place;
    });
  }

  function drawHead() {
    const [key, ascending] = state.sort[state.rows];
    const row = element("tr");
    for (const column of visibleColumns()) {
      const cell = element("th", column.number ? "number" : "");
      cell.scope = "col";
      if (column.key === key) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const button = element("button", "", column.label);
      button.type = "button";
      button.dataset.key = column.key;
      button.addEventListener("click", () => {
        const [now, up] = state.sort[state.rows];
        state.sort[state.rows] = [column.key, now === column.key ? !up : !column.down];
        drawTable();
        $("table").querySelector(`thead button[data-key="${column.key}"]`).focus();
      });
      cell.append(button);
      row.append(cell);
    }
    $("table").tHead.replaceChildren(row);
  }

  function drawTable() {
    drawHead();
    const rows = visibleRows();
    const reachable = rows.some((m) => m.place === state.chosen) ? state.chosen : rows.length ? rows[0].place : null;
    const body = document.createDocumentFragment();
    for (const model of rows) {
      const row = element("tr", [model.place === state.chosen ? "chosen" : "", model.front || state.rows === "front" ? "" : "lesser"].join(" ").trim());
      row.dataset.place = model.place;
      for (const column of visibleColumns()) row.append(cellOf(model, column, reachable));
      body.append(row);
    }
    $("table").tBodies[0].replaceChildren(body);
    const all = state.rows === "front" ? front.length : models.length;
    $("shown").textContent = rows.length === all ? "" : `${rows.length} of ${all}`;
  }

  function cellOf(model, column, reachable) {
    const cell = element("td", column.number ? "number" : "");
    if (!column.head) {
      cell.textContent = column.key === "heldout" ? heldoutText(model.heldout) : column.text ? column.text(column.of(model)) : column.of(model);
      return cell;
    }
    const button = element("button", "", model.id || DASH);
    button.type = "button";
    button.tabIndex = model.place === reachable ? 0 : -1;
    button.setAttribute("aria-pressed", model.place === state.chosen);
    cell.append(button, ...model.picks.flatMap((pick) => [" ", element("span", "tag", pick)]));
    return cell;
  }

  // --------------------------------------------------------------------------------------------- choosing
  function choose(place, { scroll = false } = {}) {
    state.chosen = place;
    const model = models[place];
    if (!visibleRows().includes(model)) {
      if (!model.front) { state.rows = "all"; document.querySelector('input[name="rows"][value="all"]').checked = true; }
      state.filter = $("filter").value = "";
    }
    drawTable();
    drawFront();
    drawDetails(model);
    document.querySelectorAll(".strip").forEach((strip) => strip.classList.toggle("chosen", strip.dataset.id === model.id));
    const row = $("table").querySelector(`tr[data-place="${place}"]`);
    if (scroll && row) row.scrollIntoView({ block: "nearest" });
  }

  function drawDetails(model) {
    const box = $("details");
    const title = model.id ? `${model.id}${model.picks.length ? `, ${model.picks.join(", ")}` : ""}` : `trial ${model.number}`;
    const found = [element("h3", "", title)];
    const told = model.state === "complete" ? `${metric.label} ${show.score(model.score)}, drop ${dropText(model.drop)}, ${show.size(model.size_bytes)}, penalty ${show.penalty(model.penalty)}${furtherText(model)}` : model.state === "dropped" ? `dropped after ${show.count(model.samples)} samples; ${show.size(model.size_bytes)}, penalty ${show.penalty(model.penalty)}` : `failed: ${model.error}`;
    found.push(element("p", "quiet", told));
    if (model.fallback) found.push(element("p", "", model.nodes.length ? `Out of integers (${model.fallback === "drq" ? "DRQ where there is a kernel" : "float"}): ${model.nodes.length} of ${data.nodes.length} nodes` : "All nodes are in integers."));
    const list = element("ul");
    model.nodes.forEach((n) => list.append(element("li", "", data.nodes[n][1])));
    if (model.nodes.length) found.push(list);
    if (model.front) found.push(commandOf(model));
    box.replaceChildren(...found);
    box.hidden = false;
  }

  function commandOf(model) {
    const box = element("div", "command");
    const known = document.querySelector(`#card-${CSS.escape(model.id)} .copy`);
    const name = model.picks[0] || model.id;
    const command = known ? known.dataset.copy : data.command.replaceAll("{}", name);
    const button = element("button", "copy", "Copy");
    button.type = "button";
    button.dataset.copy = command;
    box.append(element("code", "", command), button);
    return box;
  }

  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  }

  // ------------------------------------------------------------------------------------------------ slider
  function setLimit() {
    const slider = $("limit"), share = slider.value / slider.max;
    // Squared, so that small drops, which matter most, have most of the way.
    state.limit = share >= 1 ? Infinity : largest * share * share;
    const text = state.limit === Infinity ? "any" : dropText(state.limit);
    $("limit-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    const within = front.filter(accepted);
    const least = (key) => within.reduce((a, b) => (b[key] < a[key] ? b : a));
    const name = (m) => (m.picks.length ? m.picks.join(", ") : m.id);
    $("advised").textContent = !front.length ? "" : !within.length ? `No model of the front loses at most ${text}.`
      : `${state.limit === Infinity ? "Of all" : `Losing at most ${text}: ${within.length} of`} ${front.length} on the front, smallest ${show.size(least("size_bytes").size_bytes)} (${name(least("size_bytes"))}), lowest penalty ${show.penalty(least("penalty").penalty)} (${name(least("penalty"))}).`;
    drawTable();
    drawFront();
  }

  // ------------------------------------------------------------------------------------------------- nodes
  function orderNodes() {
    const body = document.querySelector("#nodes tbody"), key = $("node-order").value;
    const rows = [...body.rows].sort((a, b) => (key === "place" ? 0 : b.dataset[key] - a.dataset[key]) || a.dataset.place - b.dataset.place);
    body.replaceChildren(...rows);
  }

  // ------------------------------------------------------------------------------------------------- start
  for (const [id, start] of [["x-axis", keys.includes("penalty") ? "penalty" : keys[1]], ["y-axis", "score"]]) {
    for (const key of keys) $(id).append(new Option(key === "score" ? metric.label : objectives[key].short, key, false, key === start));
  }
  const axes = [$("x-axis"), $("y-axis")];
  let before = axes.map((a) => a.value);
  axes.forEach((axis, i) => axis.addEventListener("change", () => {
    // Two axes never show the same objective: the other takes over what this one showed.
    if (axes[0].value === axes[1].value) axes[1 - i].value = before[i];
    before = axes.map((a) => a.value);
    drawFront();
  }));
  $("count-front").textContent = front.length;
  $("count-all").textContent = models.length;
  $("limit").addEventListener("input", setLimit);
  $("filter").addEventListener("input", () => { state.filter = $("filter").value; drawTable(); });
  document.querySelectorAll('input[name="rows"]').forEach((radio) => radio.addEventListener("change", () => { state.rows = radio.value; drawTable(); }));
  $("table").tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (!row) return;
    choose(Number(row.dataset.place));
    $("table").querySelector("tr.chosen button").focus({ preventScroll: true });
  });
  $("table").tBodies[0].addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = step && event.target.closest("tr")[step];
    if (!next) return;
    event.preventDefault();
    choose(Number(next.dataset.place), { scroll: true });
    $("table").querySelector("tr.chosen button").focus({ preventScroll: true });
  });
  document.addEventListener("click", (event) => { const button = event.target.closest("button.copy"); if (button) copy(button); });
  if ($("node-order")) $("node-order").addEventListener("change", orderNodes);

  function drawAll() { drawFront(); drawHypervolume(); }
  setLimit();
  setTimeout(drawHypervolume); // below the fold: the front and the table come first
  $("front").on("plotly_click", (event) => { const place = event.points[0].customdata; if (place >= 0) choose(place, { scroll: true }); });
  const closed = [...document.querySelectorAll("details:not([open])")];
  const print = (begins) => {
    printing = begins;
    closed.forEach((part) => { part.open = begins; });
    drawAll();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.ready = "true";
})();
