// The figures: what Plotly draws on the page is what a download gives.
// Colours with a contrast of at least 4.5 to 1 on white; dashes and markers tell lines apart without them.
const COLOURS = [
  "#0060A8", "#B33C00", "#00704F", "#A3337A", "#7A5B00", "#332288", "#00717D", "#882255", "#4D4D4D", "#566000",
];
const DASHES = { solid: "", dash: "8 4", dot: "2 3", dashdot: "8 3 2 3", longdash: "14 4", longdashdot: "14 3 2 3" };
const SYMBOLS = {
  circle: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", square: "M-4,-4h8v8h-8z", diamond: "M0,-5l5,5l-5,5l-5,-5z",
  "triangle-up": "M0,-5l5,9h-10z", cross: "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z", "triangle-down": "M0,5l5,-9h-10z",
  hourglass: "M-5,-5h10l-10,10h10z",
};
const INK = "#1b2230", GRID = "#e6e9ef", LINE = "#aab2c0";
const LOG = { type: "log", tickformat: "~g", nticks: 4, minor: { ticks: "outside", ticklen: 3, tickcolor: LINE } };
const LOG_X = { ...LOG, nticks: 3 }; // labels beside each other need more room
const MOST_MARKERS = 7; // on a line

function styleOf(solver) {
  const pick = (choices) => choices[solver % choices.length];
  return { color: pick(COLOURS), dash: pick(Object.keys(DASHES)), symbol: pick(Object.keys(SYMBOLS)) };
}

// Plotly reads markup in texts; names are shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (text) => plain(text.length > 24 ? `${text.slice(0, 23)}…` : text);

function draw(id, traces, xaxis, yaxis, why, more = {}) {
  const axis = ({ title, ...own }) => ({
    gridcolor: GRID, linecolor: LINE, zeroline: false, automargin: true, ticks: "outside", tickcolor: LINE,
    title: { text: title, standoff: 8, font: { size: 13 } }, ...own,
  });
  const missing = { text: why, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 };
  const layout = {
    margin: { l: 56, r: 12, t: 10, b: 44 }, showlegend: false, hovermode: "closest", hoverlabel: { namelength: -1 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", xaxis: axis(xaxis), yaxis: axis(yaxis),
    font: { family: "system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif", size: 13, color: INK },
    annotations: traces.length ? [] : [missing], ...more,
  };
  Plotly.react(id, traces, layout, { responsive: true, displayModeBar: false, doubleClick: "reset" });
}

function line(solver, x, y, { look, ...more } = {}) {
  const { color, dash, symbol } = styleOf(solver);
  return {
    type: "scatter", mode: "lines+markers", name: plain(data.solvers[solver]), x, y, line: { color, dash, width: 2.2, ...look },
    marker: { color, symbol, size: 8, maxdisplayed: MOST_MARKERS }, ...more,
  };
}

// `profiles` has the steps of each solver.
function drawProfile(id, { solvers, per }, profiles, end, xaxis, why) {
  const traces = profiles.map(({ x, y }, n) => line(solvers[n], [...x, end], [...y, y.at(-1)], {
    look: { shape: "hv" }, hovertemplate: "%{y:.0%} within %{x:.4g}",
  }));
  const title = `fraction of ${per === "seed" ? "starts" : "problems"}`;
  draw(id, traces, xaxis, { title, range: [-0.03, 1.04], tickformat: ".0%" }, why);
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

// One box per solver over its runs: `value` gives the number of a run, or null.
function drawBoxes(id, view, runs, value, xaxis, why) {
  const numbers = (solver) => runs.filter((run) => run.solver === solver).map(value).filter((one) => one !== null);
  const solvers = view.solvers.toReversed().filter((solver) => numbers(solver).length);
  const names = solvers.map((solver) => data.solvers[solver]);
  const traces = solvers.map((solver, n) => {
    const { color, symbol } = styleOf(solver), marker = { color, symbol, size: 6 };
    const look = { marker, line: { width: 1.6 }, boxpoints: "outliers" };
    return { type: "box", orientation: "h", x: numbers(solver), name: plain(names[n]), ...look };
  });
  const ticks = { tickvals: names.map(plain), ticktext: names.map(short) };  // two names may be short alike
  draw(id, traces, xaxis, { title: "", ...ticks }, why, { margin: { l: 10, r: 12, t: 10, b: 44 } });
}

// One thin line per run, with a cross at the end of a run that failed.
function seedLines(solver, runs, x, y, lowest) {
  return runs.flatMap((run) => {
    const own = pointsOf(run, x, y), name = `${data.solvers[solver]}, seed ${run.seed}`;
    const values = own.y.map((value) => value - lowest);
    const thin = line(solver, own.x, values, { name: plain(name), opacity: 0.8, look: { width: 1.4 } });
    const cross = line(solver, own.x.slice(-1), values.slice(-1), {
      mode: "markers", name: plain(`${name}: failed`), marker: { symbol: "x", size: 11, color: styleOf(solver).color },
    });
    return run.status !== "done" && own.x.length ? [thin, cross] : [thin];
  });
}

// The median, over a band between the quartiles; there is none if they are infinite.
function medianLines(solver, runs, x, y, lowest) {
  const found = medianOf(runs, x, y), known = found.filter(({ high }) => high < Infinity), back = known.toReversed();
  const edge = [...known.map(({ high }) => high - lowest), ...back.map(({ low }) => low - lowest)];
  const band = line(solver, [...known, ...back].map((one) => one.x), edge, {
    hoverinfo: "skip", showlegend: false, name: plain(`${data.solvers[solver]}: quartiles`), mode: "lines",
    fill: "toself", fillcolor: `${styleOf(solver).color}22`, look: { width: 0 },
  });
  const middles = found.map(({ middle }) => (middle < Infinity ? middle - lowest : null));
  const median = line(solver, found.map((one) => one.x), middles);
  return known.some(({ low, high }) => high > low) ? [band, median] : [median];
}

function drawCurves(id, runs, { x, y, title, unit, gap, seeds, logx, why }) {
  const isGap = gap && y.endsWith("loss");
  const done = runs.filter((run) => run.status === "done");
  const lowest = isGap ? least(done.flatMap((run) => pointsOf(run, x, y).y)) : 0;
  const bySolver = [...Map.groupBy(runs, (run) => run.solver)].sort(([a], [b]) => a - b);
  const traces = bySolver.flatMap(([solver, own]) => (seeds ? seedLines : medianLines)(solver, own, x, y, lowest));
  const values = traces.flatMap((trace) => trace.y).filter((value) => value !== null);
  const log = y !== "accuracy" && values.every((value) => value >= 0) && values.some((value) => value > 0);
  const scale = log ? LOG : { tickformat: y === "accuracy" ? ".0%" : "" };
  const yaxis = { title: isGap ? `${title} − lowest` : title, ...scale };
  draw(id, values.length ? traces : [], { title: unit, ...(logx ? LOG_X : { rangemode: "tozero" }) }, yaxis, why);
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
