// Plots: figures from numbers, in one look.
"use strict";
const plots = (() => {
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const GRID = "#e8ebf0", INK = "#1d2330";

  // Plotly reads markup in its texts: names are shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function layout(x, y, more = {}) {
    const axis = { gridcolor: GRID, linecolor: "#b9c0cc", zeroline: false, ticks: "outside", tickcolor: "#b9c0cc" };
    for (const one of [x, y]) if (one.title) one.title = { ...one.title, font: { size: 13 }, standoff: 8 };
    return {
      margin: { l: 66, r: 14, t: 8, b: 46 },
      font: { family: "system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif", size: 13, color: INK },
      paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: false, hovermode: "closest",
      hoverlabel: { namelength: -1 },
      xaxis: { ...axis, ...x }, yaxis: { ...axis, ...y }, ...more,
    };
  }

  function show(element, traces, figure, why) {
    if (traces.length) {
      element.classList.remove("empty");
      if (!element.data) element.textContent = "";
      Plotly.react(element, traces, figure, CONFIG);
      return;
    }
    Plotly.purge(element);
    element.classList.add("empty");
    element.textContent = why;
  }

  function line(solver, more) {
    return { type: "scatter", mode: "lines", name: plain(solver.name), line: { color: solver.colour, dash: solver.dash, width: 2.2 }, ...more };
  }

  const shareAxis = { title: { text: "share of problems" }, range: [-0.02, 1.03], tickformat: ".0%" };

  function stepped(solver, steps, end) {
    return line(solver, {
      x: [...steps.x, end], y: [...steps.y, steps.y[steps.y.length - 1]],
      line: { color: solver.colour, dash: solver.dash, width: 2.2, shape: "hv" },
    });
  }

  function performance(element, curves, why) {
    const largest = Math.max(2, ...curves.map((one) => one.steps.x[one.steps.x.length - 1]));
    const end = largest ** 1.06;
    const x = { type: "log", range: [-0.01 * Math.log10(end), Math.log10(end)], title: { text: "cost / least cost of any solver" }, ...ticks(end) };
    show(element, curves.map((one) => stepped(one.solver, one.steps, end)), layout(x, shareAxis), why);
  }

  function ticks(end) {
    const values = [], marks = end > 200 ? [1] : end > 20 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    for (let power = 1; power <= end; power *= 10) for (const mark of marks) if (mark * power <= end) values.push(mark * power);
    return { tickvals: values, ticktext: values.map((value) => (value < 1e4 ? `${value}` : value.toExponential(0).replace("e+", "e"))) };
  }

  function dataProfile(element, curves, unit, why) {
    const end = Math.max(1e-9, ...curves.map((one) => one.steps.x[one.steps.x.length - 1])) * 1.04;
    const x = { title: { text: unit }, range: [-0.01 * end, end] };
    show(element, curves.map((one) => stepped(one.solver, one.steps, end)), layout(x, shareAxis), why);
  }

  function areas(element, rows, why) {
    const shown = rows.slice().reverse();
    const traces = shown.map((row) => ({
      type: "scatter", mode: "markers", name: plain(row.solver.name), x: [row.area], y: [shown.indexOf(row)],
      marker: { color: row.solver.colour, size: 10 },
      error_x: { type: "data", symmetric: false, array: [row.high - row.area], arrayminus: [row.area - row.low], color: row.solver.colour, thickness: 2, width: 5 },
      hovertemplate: `%{x:.3f}  (${row.low.toFixed(3)} to ${row.high.toFixed(3)})`,
    }));
    element.style.height = `${70 + 30 * Math.max(rows.length, 3)}px`;
    const x = { range: [-0.02, 1.02], title: { text: "area (1: always the best)" } };
    const label = fitted(element, shown.map((row) => [row.solver.name, ""]));
    const y = { showgrid: false, ticks: "", range: [-0.5, shown.length - 0.5], tickvals: shown.map((_, at) => at), ticktext: label.texts, tickfont: label.font };
    show(element, traces, layout(x, y, { margin: label.margin }), why);
  }

  function boxes(element, rows, field, percent, why) {
    const traces = rows.map(({ solver, box }) => ({
      type: "box", name: plain(solver.name), x0: plain(solver.name), q1: [box[field].low], median: [box[field].median], q3: [box[field].high],
      lowerfence: [box[field].whiskers[0]], upperfence: [box[field].whiskers[1]],
      ...(box[field].beyond.length ? { y: [box[field].beyond], boxpoints: "outliers" } : {}),
      line: { color: solver.colour, width: 2 }, fillcolor: `${solver.colour}33`, marker: { color: solver.colour, size: 4 }, width: 0.5,
    }));
    const y = percent ? { tickformat: ".0%", rangemode: "tozero", title: { text: "accepted epochs" } } : { rangemode: "tozero", title: { text: "evaluations / epoch" } };
    show(element, traces, layout({ type: "category", automargin: true }, y), why);
  }

  function curves(element, rows, { unit, title, log, logX, percent }, why) {
    const traces = [];
    for (const { solver, curve } of rows) {
      const known = curve.x.map((_, i) => i).filter((i) => Number.isFinite(curve.median[i]) && (!logX || curve.x[i] > 0));
      const x = known.map((i) => curve.x[i]), pick = (values) => known.map((i) => values[i]);
      traces.push({
        type: "scatter", mode: "lines", x: [...x, ...x.slice().reverse()], y: [...pick(curve.high), ...pick(curve.low).reverse()],
        fill: "toself", fillcolor: `${solver.colour}26`, line: { width: 0 }, hoverinfo: "skip", name: plain(solver.name),
      });
      traces.push(line(solver, { x, y: pick(curve.median) }));
    }
    const heights = traces.flatMap((trace) => trace.y).filter((one) => one > 0);
    const decades = Math.log10(Math.max(...heights) / Math.min(...heights));
    const y = log ? { type: "log", exponentformat: "power", dtick: decades > 3 ? 1 : "D2" } : percent ? { tickformat: ".0%" } : { type: "linear" };
    const figure = layout({ title: { text: unit }, type: logX ? "log" : "linear", exponentformat: "power", rangemode: "tozero" }, { ...y, title: { text: title } });
    show(element, traces, figure, why);
  }

  // Names beside an axis: short enough for the window, with a margin that holds them.
  function fitted(element, names) {
    const size = element.clientWidth < 350 ? 9.5 : 12, width = 0.58 * size;
    const most = Math.max(14, Math.floor((0.4 * element.clientWidth) / width));
    const texts = names.map(([name, end]) => (name.length + end.length > most ? `${name.slice(0, most - end.length - 1)}…${end}` : name + end));
    const longest = Math.max(0, ...texts.map((text) => text.length));
    return { texts: texts.map(plain), font: { size }, margin: { l: Math.max(66, 16 + width * longest), r: 14, t: 8, b: 46 } };
  }

  function strips(element, rows, outcomes, why) {
    const names = rows.map((row) => plain(`${row.solver.name}, seed ${row.seed}`));
    const edge = (row) => Array.from({ length: row.codes.length + 1 }, (_, i) => (i * row.epochs) / row.codes.length);
    const scale = outcomes.flatMap((one, i) => [[i / outcomes.length, one.colour], [(i + 1) / outcomes.length, one.colour]]);
    const traces = rows.map((row, at) => line(row.solver, {
      x: edge(row), y: [...row.steps, row.steps[row.steps.length - 1]], line: { color: row.solver.colour, width: 1.8, shape: "hv", dash: row.solver.dash }, opacity: 1 - 0.17 * row.order, name: names[at],
    }));
    rows.forEach((row, at) => traces.push({
      type: "heatmap", x: edge(row), y: [at - 0.5, at + 0.5], z: [Array.from(row.codes)], zmin: -0.5, zmax: outcomes.length - 0.5, colorscale: scale,
      showscale: false, xaxis: "x", yaxis: "y2", ygap: 3, hoverinfo: "text", text: [Array.from(row.codes, (code) => plain(outcomes[code].text))],
    }));
    element.style.height = `${230 + 24 * rows.length}px`;
    const share = rows.length ? (24 * rows.length) / (170 + 24 * rows.length) : 0.3;
    const sizes = rows.flatMap((row) => Array.from(row.steps)).filter((one) => one > 0);
    const decades = Math.log10(Math.max(...sizes) / Math.min(...sizes));
    const label = fitted(element, rows.map((row) => [row.solver.name, `, seed ${row.seed}`]));
    const figure = layout(
      { title: { text: "epoch" }, anchor: "y2", rangemode: "tozero" },
      { type: "log", exponentformat: "power", dtick: decades > 3 ? undefined : "D2", title: { text: "step size ζ" }, domain: [Math.min(share + 0.06, 0.9), 1] },
      { margin: label.margin, yaxis2: { domain: [0, share], range: [rows.length - 0.5, -0.5], tickvals: names.map((_, at) => at), ticktext: label.texts, ticks: "", zeroline: false, tickfont: label.font, showgrid: false } },
    );
    show(element, traces, figure, why);
  }

  return { performance, dataProfile, areas, boxes, curves, strips };
})();
