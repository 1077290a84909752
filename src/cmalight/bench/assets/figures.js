// The figures: what Plotly draws on the page is what a download gives.
// Colours of Okabe and Ito, and of Tol, that can be told apart without colour vision and on white.
const COLOURS = [
  "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#332288", "#56B4E9", "#882255", "#666666", "#999933",
];
const DASHES = { solid: "solid", dash: "dashed", dot: "dotted" }; // Plotly's words, and those of CSS
const INK = "#1b2230", GRID = "#e6e9ef", LINE = "#aab2c0";
const LOG = { type: "log", tickformat: "~g", nticks: 4, minor: { ticks: "outside", ticklen: 3, tickcolor: LINE } };
const LOG_X = { ...LOG, nticks: 3 }; // labels beside each other need more room

function lookOf(solver) {
  const dashes = Object.keys(DASHES), dash = dashes[Math.floor(solver / COLOURS.length) % dashes.length];
  return { color: COLOURS[solver % COLOURS.length], dash };
}

// Plotly reads markup in texts; names are shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function draw(id, traces, xaxis, yaxis, why) {
  const axis = ({ title, ...more }) => ({
    gridcolor: GRID, linecolor: LINE, zeroline: false, automargin: true, ticks: "outside", tickcolor: LINE,
    title: { text: title, standoff: 8, font: { size: 13 } }, ...more,
  });
  const missing = { text: why, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 };
  const layout = {
    margin: { l: 56, r: 12, t: 10, b: 44 }, showlegend: false, hovermode: "closest", hoverlabel: { namelength: -1 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", xaxis: axis(xaxis), yaxis: axis(yaxis),
    font: { family: "system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif", size: 13, color: INK },
    annotations: traces.length ? [] : [missing],
  };
  Plotly.react(id, traces, layout, { responsive: true, displayModeBar: false, doubleClick: "reset" });
}

function line(solver, x, y, { look, ...more } = {}) {
  const style = { ...lookOf(solver), width: 2.2, ...look };
  return { type: "scatter", mode: "lines", name: plain(data.solvers[solver]), x, y, line: style, ...more };
}

// `profiles` has the steps of each solver.
function drawProfile(id, { solvers, per }, profiles, end, xaxis, why) {
  const traces = profiles.map(({ x, y }, n) => line(solvers[n], [...x, end], [...y, y.at(-1)], {
    look: { shape: "hv" }, hovertemplate: "%{y:.0%} within %{x:.4g}",
  }));
  draw(id, traces, xaxis, { title: `share of ${per === "seed" ? "starts" : "problems"}`, range: [-0.03, 1.04], tickformat: ".0%" }, why);
}

function drawPerformance(id, view, profiles, why) {
  const end = 1.1 * Math.max(2, ...profiles.map(({ x }) => x.at(-1)));
  const range = [-0.02 * Math.log10(end), Math.log10(end)];
  drawProfile(id, view, profiles, end, { title: "cost / least cost of a solver", ...LOG_X, range }, why);
}

function drawData(id, view, profiles, unit, why) {
  const places = profiles.flatMap(({ x }) => x).filter((x) => x > 0), most = Math.max(1e-9, ...places);
  const log = most > 50 * least(places), end = (log ? 1.3 : 1.05) * most;
  const scale = log ? { ...LOG_X, range: [least(places) / 1.3, end].map(Math.log10) } : { range: [-0.02 * end, end] };
  drawProfile(id, view, profiles, end, { title: unit, ...scale }, why);
}

// One thin line per run, with a cross where a run failed.
function seedLines(solver, runs, x, y, lowest) {
  return runs.flatMap((run) => {
    const own = course(run, x, y), name = `${data.solvers[solver]}, seed ${run.seed}`;
    const values = own.y.map((value) => value - lowest);
    const thin = line(solver, own.x, values, { name: plain(name), opacity: 0.8, look: { width: 1.4 } });
    const cross = line(solver, own.x.slice(-1), values.slice(-1), {
      mode: "markers", name: plain(`${name}: failed`), marker: { symbol: "x", size: 10, color: lookOf(solver).color },
    });
    return run.status !== "done" && own.x.length ? [thin, cross] : [thin];
  });
}

// The median, over a band between the quartiles; where they are infinite there is none.
function medianLines(solver, runs, x, y, lowest) {
  const found = medianOf(runs, x, y), known = found.x.map((_, n) => n).filter((n) => found.high[n] < Infinity);
  const value = (name) => (n) => (found[name][n] < Infinity ? found[name][n] - lowest : null);
  const back = known.toReversed(), edge = [...known.map(value("high")), ...back.map(value("low"))];
  const band = line(solver, [...known, ...back].map((n) => found.x[n]), edge, {
    hoverinfo: "skip", showlegend: false, name: plain(`${data.solvers[solver]}: quartiles`),
    fill: "toself", fillcolor: `${lookOf(solver).color}22`, look: { width: 0 },
  });
  const median = line(solver, found.x, found.x.map((_, n) => value("middle")(n)));
  return known.some((n) => found.high[n] > found.low[n]) ? [band, median] : [median];
}

function drawCurves(id, runs, { x, y, title, unit, gap, seeds, logx, why }) {
  const isGap = gap && y.endsWith("loss");
  const done = runs.filter((run) => run.status === "done");
  const lowest = isGap ? least(done.flatMap((run) => course(run, x, y).y)) : 0;
  const bySolver = [...Map.groupBy(runs, (run) => run.solver)].sort(([a], [b]) => a - b);
  const traces = bySolver.flatMap(([solver, own]) => (seeds ? seedLines : medianLines)(solver, own, x, y, lowest));
  const values = traces.flatMap((trace) => trace.y).filter((value) => value !== null);
  const log = y !== "accuracy" && values.every((value) => value >= 0) && values.some((value) => value > 0);
  const scale = log ? LOG : { tickformat: y === "accuracy" ? ".0%" : "" };
  const yaxis = { title: isGap ? `${title} − lowest` : title, ...scale };
  draw(id, traces, { title: unit, ...(logx ? LOG_X : { rangemode: "tozero" }) }, yaxis, why);
}

// The figure as a file: as it is on the page, with a legend and a title of its own.
function download(plot, format, title) {
  const layout = {
    ...plot.layout, showlegend: true, legend: { orientation: "h", y: -0.22 }, title: { text: plain(title) },
    margin: { l: 70, r: 20, t: 50, b: 60 },
  };
  const filename = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  Plotly.downloadImage({ data: plot.data, layout }, { format, filename, width: 900, height: 560 });
}
