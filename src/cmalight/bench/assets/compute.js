// The numbers behind the figures, for the solvers and problems that are shown. Definitions: those of analysis.py.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const points = Object.fromEntries(Object.entries(data.points).map(([name, text]) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  return [name, new Float64Array(bytes.buffer)];
}));
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const NO_MATCH = "No problem matches the filter.";
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const sum = (values) => values.reduce((a, b) => a + b, 0);

function quantile(values, fraction) {
  const ordered = Float64Array.from(values).sort(), place = fraction * (ordered.length - 1);
  const low = ordered[Math.floor(place)], high = ordered[Math.ceil(place)];
  return low === high ? low : low + (high - low) * (place - Math.floor(place));
}

// The measured points of a run, in order.
function pointsOf(run, x, y) {
  const places = [];
  for (let at = run.begin; at < run.end; at++) if (Number.isFinite(points[y]?.[at])) places.push(at);
  return { x: places.map((at) => points[x][at]), y: places.map((at) => points[y][at]) };
}

const runsOf = ({ solvers, problems }) => data.runs.filter(
  (run) => solvers.includes(run.solver) && problems.includes(run.problem));

// One row per problem, or per problem and seed, that every solver shown has a result of; one cost per solver.
function costsOf(view) {
  const { solvers, tau, measure, loss, per } = view;
  const starts = [...Map.groupBy(runsOf(view), (run) => `${run.problem}/${run.seed}`).values()];
  const rows = starts.filter((runs) => runs.length === solvers.length).map((runs) => {
    const measured = runs.map((run) => (run.status === "done" ? pointsOf(run, measure, loss) : { x: [], y: [] }));
    const lowest = least(measured.map(({ y }) => least(y)));
    const target = lowest + tau * (Math.max(...measured.flatMap(({ y }) => y.slice(0, 1))) - lowest);
    const costs = solvers.map((solver) => {
      const { x, y } = measured[runs.findIndex((run) => run.solver === solver)];
      return x[y.findIndex((value) => value <= target)] ?? Infinity;
    });
    return { problem: runs[0].problem, seed: runs[0].seed, costs };
  });
  if (per === "seed") return rows;
  return [...Map.groupBy(rows, (row) => row.problem)].map(([problem, seeds]) => (
    { problem, costs: solvers.map((_, n) => quantile(seeds.map((row) => row.costs[n]), 0.5)) }));
}

function ratiosOf(rows) {
  return rows.map(({ costs }) => costs.map((cost) => {
    if (cost === Infinity) return Infinity;
    return cost === least(costs) ? 1 : cost / least(costs);
  }));
}

// The steps of a profile: the fraction of `values` (one for each problem) that are at most x.
function fractionsOf(values, start) {
  const x = [...new Set([start, ...values.filter((value) => value < Infinity).sort((a, b) => a - b)])];
  return { x, y: x.map((level) => values.filter((value) => value <= level).length / values.length) };
}

// A hash of a counter, as in Python: the same resamples.
function resampled(cases, resamples) {
  return Float64Array.from({ length: cases * resamples }, (_, n) => {
    let x = Math.imul(n, 0x9e3779b9);
    for (const [shift, factor] of [[16, 0x85ebca6b], [13, 0xc2b2ae35]]) x = Math.imul(x ^ (x >>> shift), factor);
    return Math.floor((((x ^ (x >>> 16)) >>> 0) * cases) / 2 ** 32);
  });
}

// The area under the performance profile of one solver, and its bootstrap interval over source data sets, if enough.
function areaOf(ratios, rows) {
  const { limit, resamples, fewest } = data.area;
  const gains = ratios.map((ratio) => Math.min(1, Math.max(0, 1 - Math.log(ratio) / Math.log(limit))));
  const area = sum(gains) / gains.length;
  const sets = [...Map.groupBy(gains.keys(), (n) => data.problems[rows[n].problem].source).values()];
  if (sets.length < fewest) return [area];
  const drawn = resampled(sets.length, resamples), sums = sets.map((own) => sum(own.map((n) => gains[n])));
  const means = Array.from({ length: resamples }, (_, k) => {
    const chosen = [...drawn.subarray(k * sets.length, (k + 1) * sets.length)];
    return sum(chosen.map((one) => sums[one])) / sum(chosen.map((one) => sets[one].length));
  });
  const beyond = data.tails[sets.length - 2];
  return [area, quantile(means, beyond), quantile(means, 1 - beyond)];
}

// Median and quartiles over the seeds: at each x the last value of each run; after its end a failed run is infinite.
function medianOf(runs, x, y) {
  const all = runs.map((run) => ({ ...pointsOf(run, x, y), after: run.status === "done" ? undefined : Infinity }));
  const places = [...new Set(all.flatMap((one) => one.x))].sort((a, b) => a - b);
  const at = all.map(() => -1);
  return places.flatMap((place) => {
    const values = all.map((one, n) => {
      while (one.x[at[n] + 1] <= place) at[n]++;
      return (place > (one.x.at(-1) ?? -1) ? one.after : undefined) ?? one.y[at[n]];
    });
    if (values.includes(undefined)) return [];
    return { x: place, low: quantile(values, 0.25), middle: quantile(values, 0.5), high: quantile(values, 0.75) };
  });
}

// The median of what a solver's runs of a problem reached, with failed runs infinitely bad; NaN if nothing is known.
function reachedOf(problem, solver, name) {
  const runs = data.runs.filter((run) => run.problem === problem);
  if (!runs.some((run) => run[name] !== null)) return NaN;
  const own = runs.filter((run) => run.solver === solver);
  return own.length ? quantile(own.map((run) => (run.status === "done" ? run[name] ?? Infinity : Infinity)), 0.5) : NaN;
}

// One loss on unseen data for each problem that has such data and each solver shown.
function unseenOf(view, rows) {
  const losses = [...new Set(rows.map((row) => row.problem))].map((problem) => (
    view.solvers.map((solver) => reachedOf(problem, solver, "final_validation_loss"))));
  return losses.filter((row) => !row.includes(NaN));
}

const isLowest = (row) => row.map((value) => value < Infinity && value === least(row));

// The sentences on top, in the words that Python has for them.
function ahead(view, won, noun, verb) {
  const wins = view.solvers.map((_, n) => won.filter((row) => row[n]).length), most = Math.max(...wins);
  if (!most) return "";
  const names = view.solvers.filter((_, n) => wins[n] === most).map((solver) => data.solvers[solver]);
  const last = names.pop(), text = `${last} ${verb} on ${most} of ${count(won.length, noun)}`;
  return names.length ? `${names.join(", ")} and ${text} each.` : `${text}.`;
}

function summaryOf(view, rows, ratios) {
  if (!view.solvers.length) return "No solver is shown.";
  if (!view.problems.length) return NO_MATCH;
  if (!rows.length) return "No problem has a result of every solver yet.";
  const noun = view.per === "seed" ? "start" : "problem";
  const won = ratios.map((row) => row.map((ratio) => ratio === 1));
  const unseen = ahead(view, unseenOf(view, rows).map(isLowest), "problem", "ended lowest");
  const first = ahead(view, won, noun, `reached the target ${data.best[view.measure]}`)
    || `No solver reached the target on any of ${count(rows.length, noun)}.`;
  return `${first} ${unseen ? `On unseen data, ${unseen}` : "No loss on unseen data was measured for every solver."}`;
}
