// The figures: what Plotly draws on the page is what a download gives.
"use strict";
const figures = (() => {
  const INK = "#1b2230", GRID = "#e6e9ef", LINE = "#aab2c0";
  const touch = matchMedia("(pointer: coarse)").matches;
  const FONT = "system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif";
  const CONFIG = { responsive: true, displayModeBar: false, doubleClick: "reset", scrollZoom: false };

  // Plotly reads markup in texts; names are shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function power(value) {
    const exponent = Math.floor(Math.log10(value) + 1e-9), digit = Number((value / 10 ** exponent).toPrecision(2));
    if (exponent >= -3 && exponent <= 4) return String(Number(value.toPrecision(2)));
    const sign = exponent < 0 ? "−" : "";
    return `${digit === 1 ? "" : `${digit}×`}10<sup>${sign}${Math.abs(exponent)}</sup>`;
  }

  // Ticks of a logarithmic axis between two exponents: powers of ten, and more digits the fewer of these there are.
  const DIGITS = [
    [3, [1]], [1.2, [1, 3]], [1, [1, 2, 5]], [0.4, [1, 1.5, 2, 3, 5, 7]], [0, [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]],
  ];
  function logTicks([from, to]) {
    const span = to - from, digits = DIGITS.find(([least]) => span > least)?.[1] ?? [1];
    const every = Math.max(1, Math.ceil(span / 7)), tickvals = [];
    for (let exponent = Math.floor(from); exponent <= Math.ceil(to); exponent++) {
      if (exponent % every === 0) for (const digit of digits) tickvals.push(digit * 10 ** exponent);
    }
    const inside = tickvals.filter((value) => Math.log10(value) >= from && Math.log10(value) <= to);
    if (inside.length < 2) return { tickmode: "auto", exponentformat: "power" };
    const minor = { ticks: "outside", ticklen: 3, tickcolor: LINE, dtick: every === 1 ? "D1" : 1 };
    return { tickmode: "array", tickvals, ticktext: tickvals.map(power), minor };
  }

  function logAxis(values, margin = 0.04) {
    const logs = values.filter((value) => value > 0 && value < Infinity).map(Math.log10);
    if (!logs.length) return { type: "log" };
    const low = logs.reduce((a, b) => Math.min(a, b)), high = logs.reduce((a, b) => Math.max(a, b));
    const room = Math.max(margin * (high - low), 0.02), range = [low - room, high + room];
    return { type: "log", range, ...logTicks(range) };
  }

  function layout(xaxis, yaxis) {
    const ticks = { ticks: "outside", tickcolor: LINE, ticklen: 5 };
    const axis = { gridcolor: GRID, linecolor: LINE, zeroline: false, automargin: true, ...ticks };
    const titled = ({ title, ...rest }) => (
      { ...axis, ...rest, title: { text: title, standoff: 8, font: { size: 13 } } });
    return {
      margin: { l: 56, r: 12, t: 10, b: 44 }, showlegend: false, hovermode: "closest",
      dragmode: touch ? false : "zoom", font: { family: FONT, size: 13, color: INK },
      paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", hoverlabel: { namelength: -1 },
      xaxis: titled(xaxis), yaxis: titled(yaxis),
    };
  }

  function draw(element, traces, shape, why) {
    element.classList.toggle("empty", !traces.length);
    if (!traces.length) {
      Plotly.purge(element);
      element.textContent = why;
      return;
    }
    if (!element.data) {
      element.textContent = "";
      Plotly.newPlot(element, traces, shape, CONFIG);
      element.on("plotly_relayout", (change) => retick(element, change));
    } else Plotly.react(element, traces, shape, CONFIG);
  }

  // Ticks that fit the range that somebody has zoomed to.
  function retick(element, change) {
    const update = {};
    for (const name of ["xaxis", "yaxis"]) {
      const axis = element.layout[name];
      const zoomed = Object.keys(change).some((key) => key.startsWith(`${name}.range`));
      if (axis.type !== "log" || !zoomed) continue;
      for (const [key, value] of Object.entries(logTicks(axis.range))) update[`${name}.${key}`] = value;
    }
    if (Object.keys(update).length) Plotly.relayout(element, update);
  }

  function line(solver, { look, ...more }) {
    const style = { color: solver.colour, dash: solver.dash, width: 2.2, ...look };
    return { type: "scatter", mode: "lines", name: plain(solver.name), line: style, ...more };
  }

  function profile(element, rows, { xaxis, end, why }) {
    const traces = rows.map(({ solver, steps }) => line(solver, {
      x: [...steps.x, end], y: [...steps.y, steps.y[steps.y.length - 1]], look: { shape: "hv" },
      hovertemplate: "%{y:.0%} within %{x:.4g}",
    }));
    const yaxis = { title: "share of problems", range: [-0.03, 1.04], tickformat: ".0%" };
    draw(element, traces, layout(xaxis, yaxis), why);
  }

  function performance(element, rows, why) {
    const end = 1.1 * Math.max(2, ...rows.map(({ steps }) => steps.x[steps.x.length - 1]));
    const range = [-0.02 * Math.log10(end), Math.log10(end)];
    const xaxis = { title: "cost / least cost of a solver", type: "log", range, ...logTicks(range) };
    profile(element, rows, { xaxis, end, why });
  }

  function data(element, rows, unit, why) {
    const places = rows.flatMap(({ steps }) => steps.x).filter((x) => x > 0);
    const log = places.length && Math.max(...places) > 50 * Math.min(...places);
    const end = (log ? 1.3 : 1.05) * Math.max(1e-9, ...places);
    const scale = log ? logAxis([...places, end]) : { range: [-0.02 * end, end] };
    profile(element, rows, { xaxis: { title: unit, ...scale }, end, why });
  }

  // One thin line per run, with a cross where a run failed.
  function seedLines(solver, seeds) {
    return seeds.flatMap(({ x, y, failed, name }) => {
      const own = line(solver, { x, y, name: plain(name), opacity: 0.8, look: { width: 1.4 } });
      const marker = { symbol: "x", size: 10, color: solver.colour };
      const end = { mode: "markers", x: x.slice(-1), y: y.slice(-1), marker, name: plain(`${name}: failed`) };
      return failed && x.length ? [own, { type: "scatter", ...end }] : [own];
    });
  }

  // The median, over a band between the quartiles; where they are infinite there is none.
  function medianLines(solver, curve) {
    const known = curve.x.map((_, n) => n).filter((n) => curve.high[n] < Infinity), back = known.slice().reverse();
    const band = {
      type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, name: plain(`${solver.name}: quartiles`),
      x: [...known, ...back].map((n) => curve.x[n]),
      y: [...known.map((n) => curve.high[n]), ...back.map((n) => curve.low[n])],
      fill: "toself", fillcolor: `${solver.colour}22`, line: { width: 0 },
    };
    const median = line(solver, { x: curve.x, y: curve.middle.map((value) => (value < Infinity ? value : null)) });
    return known.some((n) => curve.high[n] > curve.low[n]) ? [band, median] : [median];
  }

  function curves(element, rows, { title, unit, logX, percent, why }) {
    const lines = ({ solver, curve, seeds }) => (seeds ? seedLines(solver, seeds) : medianLines(solver, curve));
    const traces = rows.flatMap(lines);
    const values = (name) => traces.flatMap((trace) => trace[name]).filter((value) => value !== null);
    const log = !percent && values("y").some((value) => value > 0) && values("y").every((value) => value >= 0);
    const yaxis = { title, ...(log ? logAxis(values("y")) : percent ? { tickformat: ".0%" } : {}) };
    const xaxis = { title: unit, ...(logX ? logAxis(values("x"), 0.01) : { rangemode: "tozero" }) };
    draw(element, traces, layout(xaxis, yaxis), why);
  }

  // The figure as a file: as it is on the page, with a legend and a title of its own.
  async function download(element, format, title) {
    const size = { width: 900, height: 560 };
    const layout = {
      ...element.layout, ...size, showlegend: true, legend: { orientation: "h", y: -0.22 },
      title: { text: plain(title), font: { size: 15 } }, margin: { l: 70, r: 20, t: 50, b: 60 },
    };
    const figure = { data: element.data, layout };
    const address = format === "json"
      ? `data:application/json,${encodeURIComponent(JSON.stringify(figure))}`
      : await Plotly.toImage(figure, { format, ...size, scale: format === "png" ? 2 : 1 });
    const file = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "figure";
    const link = document.createElement("a");
    link.href = address;
    link.download = `${file}.${format}`;
    link.click();
  }

  return { performance, data, curves, download };
})();
