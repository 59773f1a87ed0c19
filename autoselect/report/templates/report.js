"use strict";
// Names of tensors are data: they reach the page as text nodes, and the charts with their markup escaped.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const DASH = "–";
  const { metric, models, references } = data;
  const unpacked = (bits) => [...bits].reverse().flatMap((digit, i) => [0, 1, 2, 3].filter((b) => (parseInt(digit, 16) >> b) & 1).map((b) => 4 * i + b));
  models.forEach((model, place) => { model.place = place; model.nodes = unpacked(model.nodes); });
  const scored = models.filter((m) => m.state === "complete" && m.score !== null);
  const first = new Map([...scored].reverse().map((m) => [m.id, m]));
  const distinct = scored.filter((m) => m.front || (!m.reused && first.get(m.id) === m));
  const front = models.filter((m) => m.front);

  // ------------------------------------------------------------------------------------------ numbers as text
  const scale = Math.max(0, ...[...scored, ...references].map((m) => Math.abs(m.score)));
  const decimals = scale < 10 ? 4 : scale < 100 ? 3 : scale < 1000 ? 2 : 1;
  const minus = (text) => text.replace(/^-/, "−");
  // A number in the middle of two goes to the even one, as in the tables of the terminal.
  const fixed = (value, places) => {
    const last = value * 10 ** places;
    const isTie = Number.isInteger(value * 2 ** (places + 1)) && Math.abs(last % 1) === 0.5;
    return (isTie && Math.trunc(last) % 2 === 0 ? Math.trunc(last) / 10 ** places : value).toFixed(places);
  };
  const plain = (value, places) => minus(Number(fixed(value, places)) === 0 ? (0).toFixed(places) : fixed(value, places));
  const known = (format) => (value) => (value === null || value === undefined ? DASH : format(value));
  const show = {
    score: known((v) => (metric.share ? `${plain(100 * v, 1)} %` : scale < 0.01 || scale >= 1e6 ? v.toExponential(2) : plain(v, decimals))),
    drop: known((v) => (metric.share ? plain(100 * v, 1) : scale < 0.01 || scale >= 1e6 ? v.toExponential(2) : plain(v, decimals))),
    size: known((v) => (v < 1000 ? `${v.toFixed(0)} B` : v < 1e6 ? `${(v / 1e3).toFixed(1)} kB` : `${(v / 1e6).toFixed(2)} MB`)),
    penalty: known((v) => (Math.abs(v) >= 1000 ? minus(Math.round(v).toLocaleString("en-US")) : v >= 1e-6 && v < 1 ? String(Number(v.toPrecision(3))) : plain(v, 2))),
    count: known((v) => String(Math.round(v))),
  };
  const dropText = (v) => (metric.share ? `${show.drop(v)} points` : show.drop(v));
  const intervalText = (h) => (h ? `${show.score(h[1]).replace(" %", "")}–${show.score(h[2])}` : DASH);
  const on = (m) => (m.heldout ? "held-out samples" : "search samples");
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // ------------------------------------------------------------------------------------------------ state
  const drops = scored.map((m) => m.drop).filter((d) => d !== null);
  const largest = Math.max(0, ...drops);
  const state = { limit: Infinity, rows: "front", filter: "", sort: { front: ["score", false], all: ["number", true] }, chosen: null };
  const accepted = (m) => state.limit === Infinity || (m.drop !== null && m.drop <= state.limit + 1e-12);

  // ------------------------------------------------------------------------------------------------ charts
  const objectives = {
    score: {
      label: `${metric.label}${metric.share ? ", %" : ""}, ${metric.samples}`, better: metric.maximize ? "more" : "less",
      of: (m) => (metric.share ? 100 * m.score : m.score), text: show.score, possible: metric.possible.map((v) => (v !== null && metric.share ? 100 * v : v)),
    },
  };
  const texts = { size_bytes: show.size, crossing_bytes: show.size, arena_bytes: show.size, ddr_bytes: show.size, segments: show.count, partitions: show.count, float_ops: show.count, left_ops: show.count };
  // Where a chip's compiler decides, segments are its partitions.
  const pieces = data.on_chip ? "partitions" : "segments";
  for (const { key, label, bytes, noisy, possible } of data.costs) {
    const of = bytes ? (m) => (m[key] === null ? null : m[key] / 1e3) : (m) => m[key];
    const text = texts[key] || (key === "penalty" || key === "npu_cycles" ? show.penalty : known((v) => `${v.toPrecision(3)}${noisy ? " ms" : ""}`));
    objectives[key] = { label: `${key === "size_bytes" ? "file size" : label}${bytes ? ", kB" : noisy ? ", ms here (noisy)" : ""}`, short: label, column: noisy ? `${label} (noisy)` : label, better: "less", of, text, possible };
  }
  const keys = Object.keys(objectives);
  const further = keys.filter((key) => !["score", "size_bytes", "penalty"].includes(key));
  const furtherText = (m) => further.map((key) => `, ${objectives[key].short} ${objectives[key].text(m[key])}`).join("");
  const isKnown = (v) => v !== null && v !== undefined;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axisStyle = (title) => ({
    title: { text: title, font: { size: 13 } }, gridcolor: css("--line"), zerolinecolor: css("--line"),
    linecolor: css("--strong"), tickcolor: css("--strong"), automargin: true, fixedrange: narrow(),
  });
  // Paper has a width of its own, which the page is not laid out for while the charts are drawn: that of A4, in pixels.
  const PAPER = 660;
  let printing = matchMedia("print").matches;
  const narrow = () => (printing ? PAPER : $("front").clientWidth) < 560;
  const layoutStyle = (id) => ({
    ...(printing ? { width: PAPER, height: $(id).clientHeight, autosize: false } : { width: undefined, height: undefined, autosize: true }),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--quiet"), activecolor: css("--ink") }, hoverlabel: { align: "left", bgcolor: css("--paper"), bordercolor: css("--strong"), font: { color: css("--ink"), size: 12 } },
  });
  const config = () => ({ responsive: true, displaylogo: false, displayModeBar: !narrow() && !printing, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });

  const hover = (m) => {
    const lines = [`<b>${escaped(m.label || m.id)}</b>${m.picks && m.picks.length ? ` ${m.picks.join(", ")}` : ""}`];
    lines.push(`${escaped(metric.label)} ${show.score(m.score)}${m.heldout ? ` (95 %: ${intervalText(m.heldout)})` : ""}, drop ${dropText(m.drop)}, ${on(m)}`, `${show.size(m.size_bytes)}, penalty ${show.penalty(m.penalty)}${furtherText(m)}`);
    if (m.nodes) {
      lines.push(m.nodes.length ? `out of integers: ${m.nodes.length}` : m.float_ops ? `float ops: ${m.float_ops}` : "all nodes in integers");
      m.nodes.slice(0, 8).forEach((n) => lines.push(`  ${escaped(data.nodes[n][0])}`));
      if (m.nodes.length > 8) lines.push(`  … and ${m.nodes.length - 8} more`);
    }
    return lines.join("<br>");
  };

  const SYMBOLS = { float: "diamond", fiq: "square", "fiq+repairs": "cross", int16: "triangle-down", drq: "triangle-up" };
  const SHAPES = { float: "◇", fiq: "□", "fiq+repairs": "+", int16: "▽", drq: "△" };
  function points(rows, x, y, more) {
    return {
      type: "scatter", mode: "markers", cliponaxis: false, x: rows.map(objectives[x].of), y: rows.map(objectives[y].of),
      customdata: rows.map((m) => (m.place === undefined ? -1 : m.place)), text: rows.map(hover), hovertemplate: "%{text}<extra></extra>", ...more,
    };
  }

  const sizeOf = (third) => {
    const values = front.map(third ? objectives[third].of : () => 0);
    const low = Math.min(...values), width = Math.max(...values) - low || 1;
    return (m) => 8 + (10 * ((third ? objectives[third].of(m) : 0) - low)) / width;
  };

  function traces(x, y, third) {
    const values = front.map(third ? objectives[third].of : () => 0);
    const others = state.rows === "all" ? distinct.filter((m) => !m.front) : [];
    const picked = front.filter((m) => m.picks.length && accepted(m));
    const chosen = models.filter((m) => m.place === state.chosen && m.score !== null);
    return [
      points(others, x, y, { name: "trial", marker: { color: css("--strong"), size: 6, opacity: others.map((m) => (accepted(m) ? 0.75 : 0.12)) } }),
      points(front, x, y, {
        name: "front",
        marker: {
          color: values, colorscale: "Cividis", size: front.map(sizeOf(third)), opacity: front.map((m) => (accepted(m) ? 1 : 0.12)), line: { color: css("--ink"), width: 1 },
          showscale: Boolean(third),
          colorbar: { title: { text: third ? objectives[third].label : "", side: narrow() ? "top" : "right" }, thickness: 10, outlinewidth: 0, ...(narrow() ? { orientation: "h", y: 1.14, yanchor: "bottom", len: 1 } : { len: 0.9 }) },
        },
      }),
      points(references, x, y, {
        name: "baseline",
        marker: { symbol: references.map((r) => SYMBOLS[r.reference]), size: 12, color: css("--paper"), line: { color: css("--ink"), width: 2 } },
      }),
      points(picked, x, y, { name: "pick", hoverinfo: "skip", hovertemplate: undefined, marker: { symbol: "circle-open", size: 24, color: css("--hybrid"), line: { width: 2.5 } } }),
      points(chosen, x, y, { name: "chosen", hoverinfo: "skip", hovertemplate: undefined, marker: { symbol: "circle-open", size: 31, color: css("--float"), line: { width: 3 } } }),
    ];
  }

  // ------------------------------------------------------------------------------------------------ labels
  const pen = document.createElement("canvas").getContext("2d");
  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const around = ([x, y], r) => [x - r, y - r, x + r, y + r];

  // Names each reference and pick beside its marker, where it covers neither a marker nor another name, and where no line
  // from a name to its marker runs through another name. What finds no such place is named below the chart instead.
  function placeLabels() {
    const { xaxis, yaxis } = $("front")._fullLayout, x = $("x-axis").value, y = $("y-axis").value;
    const third = keys.find((key) => key !== x && key !== y), size = sizeOf(third);
    const area = [0, 0, xaxis._length, yaxis._length];
    const values = (m) => [x, y].map((key) => objectives[key].of(m));
    const seen = (m) => values(m).every(isKnown);
    const raw = (m) => { const [u, v] = values(m); return [xaxis.d2p(u), yaxis.d2p(v)]; };
    const at = (m) => raw(m).map((v, i) => Math.min(Math.max(v, 0), area[2 + i]));
    const far = (m) => raw(m).map((v, i) => v < -1 || v > area[2 + i] + 1);
    const others = state.rows === "all" ? distinct.filter((m) => !m.front) : [];
    const radius = (m) => (m.reference ? 9 : !m.front ? 4 : m.place === state.chosen ? 19 : m.picks.length ? 15 : size(m) / 2 + 2);
    const markers = [...references, ...front, ...others].filter((m) => seen(m) && !far(m).includes(true)).map((m) => around(at(m), radius(m)));
    const named = [...front.filter((m) => m.picks.length && accepted(m)).map((m) => [m, m.picks.join(", ")]), ...references.map((m) => [m, m.label])].filter(([m]) => seen(m));
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const taken = [], lines = [], homeless = [];
    const annotations = named.flatMap(([m, name]) => {
      const beyond = [x, y].filter((_, i) => far(m)[i]).map((key) => objectives[key].text(key === "score" ? m.score : m[key]));
      const text = beyond.length ? `${name}, at ${beyond.join(" and ")}` : name;
      const found = freePlace(at(m), beyond.length ? 0 : radius(m), pen.measureText(text).width + 8, area, markers, taken, lines);
      if (!found) { homeless.push(`${name}, ${[x, y].map((key) => (key === "score" ? `${metric.label} ${show.score(m.score)}` : `${objectives[key].short} ${objectives[key].text(m[key])}`)).join(", ")}`); return []; }
      const anchor = beyond.length
        ? { xref: "x domain", yref: "y domain", x: at(m)[0] / area[2], y: 1 - at(m)[1] / area[3], arrowhead: 2, standoff: 0 }
        : { x: values(m)[0], y: values(m)[1], arrowhead: 0, standoff: m.reference ? 7 : radius(m) - 3 };
      return [{ ...anchor, ax: found[0], ay: found[1], text: escaped(text), showarrow: true, arrowwidth: 1, arrowcolor: css("--quiet"), font: { size: 12, color: css("--ink") }, bgcolor: css("--paper"), borderpad: 1 }];
    });
    Plotly.relayout($("front"), { annotations });
    const marks = references.map((r) => `${SHAPES[r.reference]} ${r.label}`).join("; ");
    $("legend").textContent = [
      `Scores are those on the ${metric.samples === "held out" ? "held-out" : "search"} samples. Circles are the front, a ring marks picks${marks ? `. Baselines: ${marks}` : ""}.`,
      others.length ? `Small grey points are other trials, by their scores on the search samples.` : "",
      homeless.length ? `Without room for a name: ${homeless.join("; ")}.` : "",
    ].filter(Boolean).join(" ");
  }

  // The offset of a label's middle from its point, in pixels: the nearest free one, or null.
  function freePlace(point, radius, width, area, markers, taken, lines) {
    const half = [width / 2, 10];
    let best = null, least = Infinity;
    for (let distance = radius + 3; distance < 330; distance += 9) {
      for (let turn = 0; turn < 24; turn += 1) {
        const way = [Math.cos((turn * Math.PI) / 12), Math.sin((turn * Math.PI) / 12)];
        const offset = way.map((w, i) => w * (distance + half[i]));
        const middle = offset.map((v, i) => point[i] + v);
        const box = [middle[0] - half[0], middle[1] - half[1], middle[0] + half[0], middle[1] + half[1]];
        if (box[0] < area[0] || box[1] < area[1] || box[2] > area[2] || box[3] > area[3] || [...markers, ...taken].some((b) => meets(box, b))) continue;
        const cost = Math.hypot(...offset);
        if (cost >= least || lines.some((step) => meets(step, box))) continue;
        const far = Math.ceil(cost / 6);
        const line = Array.from({ length: far }, (_, n) => around(offset.map((v, i) => point[i] + (v * n) / far), 2)).filter((step) => !meets(step, box));
        if (line.some((step) => taken.some((b) => meets(step, b)))) continue;
        const crossed = cost + 60 * markers.filter((b) => !meets(around(point, 1), b) && line.some((step) => meets(step, b))).length;
        if (crossed < least) { best = [offset, box, line]; least = crossed; }
      }
    }
    if (!best) return null;
    taken.push(best[1]);
    lines.push(...best[2]);
    return best[0];
  }
  const ends = (values) => [Math.min(...values), Math.max(...values)];
  const inside = (value, [low, high]) => value >= low && value <= high;

  // The front decides what is in view, unless it is a single point or line. A baseline far from it stays outside, and is named at the edge: float files are
  // several times as large, and would squeeze everything else into a corner.
  function view(key) {
    const of = objectives[key].of;
    const known = (rows) => rows.map(of).filter(isKnown);
    const shown = new Set(known(front)).size > 1 ? known(front) : known([...front, ...references]);
    if (!shown.length) return [0, 1];
    let [low, high] = ends(shown);
    const room = 0.6 * (high - low) || 0.05 * Math.abs(high) || 1;
    const near = [...references, ...distinct].map(of).filter((v) => isKnown(v) && v >= low - room && v <= high + room);
    [low, high] = ends([low, high, ...near]);
    const edge = 0.09 * (high - low) || room;
    const [least, most] = objectives[key].possible;
    return [least === null ? low - edge : Math.max(low - edge, least), most === null ? high + edge : Math.min(high + edge, most)];
  }

  function limitLine(x, y) {
    const whole = references.find((r) => r.reference === "float");
    if (state.limit === Infinity || !whole || (x !== "score" && y !== "score")) return [];
    const at = objectives.score.of({ score: whole.score + (metric.maximize ? -state.limit : state.limit) });
    const line = { type: "line", line: { color: css("--quiet"), width: 1.2, dash: "dash" } };
    return [y === "score" ? { ...line, xref: "paper", x0: 0, x1: 1, y0: at, y1: at } : { ...line, yref: "paper", y0: 0, y1: 1, x0: at, x1: at }];
  }

  function drawFront() {
    const x = $("x-axis").value, y = $("y-axis").value;
    const third = keys.find((key) => key !== x && key !== y);
    const axis = (key) => ({ ...axisStyle(`${objectives[key].label} (${objectives[key].better} is better)`), range: view(key) });
    Plotly.react($("front"), traces(x, y, third), {
      ...layoutStyle("front"), showlegend: false, margin: { l: 56, r: 16, t: narrow() ? 112 : 40, b: 52 }, xaxis: axis(x), yaxis: axis(y),
      annotations: [], shapes: limitLine(x, y), uirevision: `${x} ${y}`,
    }, config());
    placeLabels();
    $("front").setAttribute("aria-label", `${distinct.length} scored models, ${front.length} of them on the front: ${objectives[y].label} over ${objectives[x].label}${third ? `; ${objectives[third].label} as colour and size` : ""}. The table below holds the same models.`);
  }

  function drawHypervolume() {
    if (!data.hypervolume.length) { $("hypervolume").replaceWith(element("p", "empty", "Too few candidates are scored and meet all limits.")); return; }
    Plotly.react($("hypervolume"), [{
      type: "scatter", mode: "lines", line: { shape: "hv", color: css("--integer"), width: 2.5 }, x: data.hypervolume.map((p) => p[0]), y: data.hypervolume.map((p) => 100 * p[1]),
      hovertemplate: "after %{x} evaluations: %{y:.1f} %<extra></extra>",
    }], { ...layoutStyle("hypervolume"), margin: { l: 52, r: 12, t: 10, b: 44 }, xaxis: { ...axisStyle("evaluations"), rangemode: "tozero" }, yaxis: { ...axisStyle("% of the final value"), range: [0, 100] } }, { ...config(), displayModeBar: false });
    const half = data.hypervolume.find((p) => p[1] >= 0.95);
    $("hypervolume").setAttribute("aria-label", `Hypervolume over ${data.hypervolume.length} evaluations; 95 % of the final value after ${half[0]}.`);
  }

  // What would be recommended at each allowed drop; a click chooses that model.
  function drawAllowed() {
    if (!data.allowed) return;
    const { axis, own, drops, ids, penalty, low, high } = data.allowed;
    const step = { type: "scatter", mode: "lines", x: drops, hoverinfo: "skip" };
    const edge = { ...step, line: { shape: "hv", width: 0 } };
    const band = low[0] === null ? [] : [
      { ...edge, name: "low", y: low },
      { ...edge, name: "high", y: high, fill: "tonexty", fillcolor: `${css("--integer")}40` },
    ];
    const text = ids.map((id, i) => `${escaped(id)}: penalty ${show.penalty(penalty[i])}${band.length ? `, nine in ten ${show.penalty(low[i])}–${show.penalty(high[i])}` : ""}`);
    Plotly.react($("allowed-plot"), [...band, {
      ...step, name: "recommended", mode: "lines+markers", y: penalty, text, hoverinfo: undefined, hovertemplate: `%{text}<br>${escaped(axis)}: %{x}<extra></extra>`,
      line: { shape: "hv", color: css("--integer"), width: 2.5 }, marker: { color: css("--integer"), size: 5 },
    }], {
      ...layoutStyle("allowed-plot"), showlegend: false, margin: { l: 52, r: 12, t: 10, b: 44 }, xaxis: { ...axisStyle(axis), rangemode: "tozero" }, yaxis: { ...axisStyle("penalty (less is better)"), rangemode: "tozero" },
      shapes: [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: own, x1: own, line: { color: css("--quiet"), width: 1.2, dash: "dash" } }],
    }, { ...config(), displayModeBar: false });
  }

  // ------------------------------------------------------------------------------------------------ table
  function element(tag, name, text) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  const columns = [
    { key: "number", label: "trial", of: (m) => m.number, text: show.count, number: true, rows: "all", minor: true },
    { key: "id", label: "model", of: (m) => m.id || "", head: true },
    { key: "score", label: `${metric.label}, ${metric.samples}`, of: (m) => m.score, text: show.score, number: true, down: metric.maximize, rows: "front" },
    { key: "interval", label: "95 % interval", of: (m) => m.heldout && m.heldout[1], of_text: (m) => intervalText(m.heldout), number: true, down: metric.maximize, rows: "front", minor: true },
    { key: "drop", label: metric.share ? "drop, points" : "drop", of: (m) => m.drop, text: show.drop, number: true, rows: "front", minor: true },
    { key: "heldout", label: `${metric.label}, held out`, of: (m) => m.heldout && m.heldout[0], text: show.score, number: true, down: metric.maximize, rows: "all", minor: true },
    { key: "search", label: `${metric.label}, search`, of: (m) => m.search, text: show.score, number: true, down: metric.maximize, rows: "all" },
    { key: "search_drop", label: metric.share ? "drop there, points" : "drop there", of: (m) => m.search_drop, text: show.drop, number: true, rows: "all", minor: true },
    { key: "size_bytes", label: "size", of: (m) => m.size_bytes, text: show.size, number: true },
    { key: "penalty", label: "penalty", of: (m) => m.penalty, text: show.penalty, number: true },
    ...further.filter((key) => !["segments", "partitions", "left_ops"].includes(key)).map((key) => ({ key, label: objectives[key].column, of: (m) => m[key], text: objectives[key].text, number: true })),
    { key: "segments", label: pieces, of: (m) => m.segments, text: show.count, number: true, minor: true, least: true },
    ...(data.on_chip ? [{ key: "left_ops", label: "left on CPU", of: (m) => m.left_ops, text: show.count, number: true, minor: true, least: true }] : []),
    { key: "nodes", label: "nodes out", of: (m) => (m.fallback ? m.nodes.length : null), text: show.count, number: true, minor: true, least: true },
    { key: "origin", label: "from", of: (m) => m.origin, rows: "all", minor: true },
    { key: "state", label: "state", of: (m) => (m.reused ? `${m.state}, known` : m.state + (m.feasible ? "" : ", beyond a limit")), rows: "all" },
  ];
  state.sort.front[1] = !metric.maximize;
  const searched = [];  // made when somebody looks for words: with names of nodes they are long
  const haystack = (m) => (searched[m.place] ??= [m.id, m.origin, m.state, ...m.picks, ...m.nodes.map((n) => data.nodes[n][1])].join(" ").toLowerCase());
  const classOf = (column) => [column.number && "number", column.minor && "minor", column.least && "least"].filter(Boolean).join(" ");
  const visibleColumns = () => columns.filter((c) => (!c.rows || c.rows === state.rows) && (metric.samples !== "search" || !["interval", "heldout"].includes(c.key)));

  function visibleRows() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = (state.rows === "front" ? front : models).filter((m) => accepted(m) && words.every((w) => haystack(m).includes(w)));
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
      const cell = element("th", classOf(column));
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
    const cell = element("td", classOf(column));
    if (!column.head) {
      cell.textContent = column.of_text ? column.of_text(model) : column.text ? column.text(column.of(model)) : column.of(model);
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
    const interval = model.heldout ? ` (95 %: ${intervalText(model.heldout)})` : "";
    const told = model.state === "complete" ? `On the ${on(model)}: ${metric.label} ${show.score(model.score)}${interval}, drop ${dropText(model.drop)}, ${show.size(model.size_bytes)}, penalty ${show.penalty(model.penalty)}${furtherText(model)}` : model.state === "dropped" ? `dropped after ${show.count(model.samples)} samples; ${show.size(model.size_bytes)}, penalty ${show.penalty(model.penalty)}` : `failed: ${model.error}`;
    found.push(element("p", "quiet", told));
    if (model.fallback) found.push(element("p", "", model.nodes.length ? `Out of integers (${model.fallback === "drq" ? "DRQ where there is a kernel" : "float"}): ${model.nodes.length} of ${data.nodes.length} nodes` : model.float_ops ? `No node was left out; ${show.count(model.float_ops)} of the ops have no integer kernel here and stay float.` : "All nodes are in integers."));
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
    $("advised").textContent = !front.length ? "" : !within.length ? `No model of the front loses at most ${text}.`
      : `${within.length} of ${front.length} on the front${state.limit === Infinity ? "" : ` lose at most ${text}`}: smallest ${show.size(least("size_bytes").size_bytes)} (${nameOf(least("size_bytes"))}), lowest penalty ${show.penalty(least("penalty").penalty)} (${nameOf(least("penalty"))}).`;
    drawTable();
    drawFront();
  }

  // ----------------------------------------------------------------------------------------- side by side
  const measures = [
    [`${metric.label}, ${metric.samples}`, (m) => m.score, (m) => `${show.score(m.score)}${m.heldout ? ` (${intervalText(m.heldout)})` : ""}`, (d) => show.drop(d) + (metric.share ? " points" : "")],
    ["file size", (m) => m.size_bytes, (m) => show.size(m.size_bytes), (d) => show.size(d)],
    ["penalty", (m) => m.penalty, (m) => show.penalty(m.penalty), show.penalty],
    ...further.map((key) => [objectives[key].label, (m) => m[key], (m) => objectives[key].text(m[key]), objectives[key].text]),
    ...(further.includes(pieces) ? [] : [[pieces, (m) => m.segments, (m) => show.count(m.segments), show.count]]),
    ...(!data.on_chip || further.includes("left_ops") ? [] : [["ops left on the CPU", (m) => m.left_ops, (m) => show.count(m.left_ops), show.count]]),
    ...(further.includes("float_ops") ? [] : [["float ops", (m) => m.float_ops, (m) => show.count(m.float_ops), show.count]]),
  ];

  const kindsOf = (model) => (data.kinds[model.id] || []).flatMap(([kind, length]) => Array(length).fill(kind));

  function compare() {
    const pair = ["one", "other"].map((id) => models[$(id).value]);
    const rowOf = (tag, texts) => {
      const row = element("tr");
      texts.forEach((text, i) => { const cell = element(i && tag === "td" ? "td" : "th", ["", "number", "number", "number minor"][i], text); cell.scope = tag === "th" ? "col" : "row"; row.append(cell); });
      return row;
    };
    $("compared").tHead.replaceChildren(rowOf("th", ["", ...pair.map((m) => m.picks[0] || m.id), "difference"]));
    const rows = measures.filter(([, of]) => pair.some((m) => isKnown(of(m)))).map(([label, of, text, difference]) => {
      const [p, q] = pair.map(of), known = isKnown(p) && isKnown(q);
      return rowOf("td", [label, ...pair.map(text), known ? `${q < p ? "−" : q > p ? "+" : ""}${difference(Math.abs(q - p))}` : DASH]);
    });
    const kinds = pair.map(kindsOf), differ = data.nodes.map((_, n) => n).filter((n) => kinds[0][n] !== kinds[1][n]);
    rows.push(...differ.map((n) => rowOf("td", [data.nodes[n][0], ...kinds.map((k) => data.words[k[n]] || DASH), ""])));
    $("compared").tBodies[0].replaceChildren(...rows);
    $("differing").textContent = differ.length ? `${differ.length} of ${data.nodes.length} nodes are of different kinds; they are listed below the figures.` : "All nodes are of the same kinds; the models differ in how they were quantized.";
  }
  const nameOf = (m) => (m.picks.length ? m.picks.join(", ") : m.id);

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
  if ($("one")) {
    const ordered = [...front].sort((a, b) => b.picks.length - a.picks.length || a.place - b.place);
    const first = ordered.find((m) => m.picks.includes("recommended")) || ordered[0];
    const second = ordered.find((m) => m !== first && m.picks.includes("accurate")) || ordered.find((m) => m !== first);
    for (const [id, start] of [["one", first], ["other", second]]) {
      for (const m of ordered) $(id).append(new Option(nameOf(m), m.place, false, m === start));
      $(id).addEventListener("change", compare);
    }
    compare();
  }
  $("count-front").textContent = front.length;
  $("count-all").textContent = models.length;
  $("limit").addEventListener("input", setLimit);
  $("filter").addEventListener("input", () => { state.filter = $("filter").value; drawTable(); });
  document.querySelectorAll('input[name="rows"]').forEach((radio) => radio.addEventListener("change", () => { state.rows = radio.value; drawTable(); drawFront(); }));
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

  function drawAll() { drawFront(); drawHypervolume(); drawAllowed(); }
  setLimit();
  setTimeout(() => { // below the fold: the front and the table come first
    drawHypervolume();
    drawAllowed();
    if (!data.allowed) return;
    $("allowed-plot").on("plotly_click", (event) => {
      const model = front.find((m) => m.id === data.allowed.ids[event.points[0].pointIndex]);
      if (model) choose(model.place, { scroll: true });
    });
  });
  $("front").on("plotly_relayout", (change) => { if (!("annotations" in change)) placeLabels(); });
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
