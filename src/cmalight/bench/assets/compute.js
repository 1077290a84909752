// The numbers behind the figures, for the solvers that are shown. The definitions are those of analysis.py.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const points = Object.fromEntries(Object.entries(data.points).map(([name, text]) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  return [name, new Float64Array(bytes.buffer)];
}));
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);

function quantile(values, share) {
  const ordered = Float64Array.from(values).sort(), place = share * (ordered.length - 1);
  const low = ordered[Math.floor(place)], high = ordered[Math.ceil(place)];
  return low === high ? low : low + (high - low) * (place - Math.floor(place));
}

// The measured points of a run, in order.
function course(run, x, y) {
  const places = [];
  for (let at = run.begin; at < run.end; at++) if (Number.isFinite(points[y][at])) places.push(at);
  return { x: places.map((at) => points[x][at]), y: places.map((at) => points[y][at]) };
}

// One row per problem, or per problem and seed, that every solver shown has a result of; one cost per solver.
function costsOf({ solvers, tau, measure, loss, per }) {
  const compared = data.runs.filter((run) => solvers.includes(run.solver));
  const starts = [...Map.groupBy(compared, (run) => `${run.problem}/${run.seed}`).values()];
  const rows = starts.filter((runs) => runs.length === solvers.length).map((runs) => {
    const courses = runs.map((run) => (run.status === "done" ? course(run, measure, loss) : { x: [], y: [] }));
    const lowest = least(courses.map(({ y }) => least(y)));
    const target = lowest + tau * (Math.max(...courses.flatMap(({ y }) => y.slice(0, 1))) - lowest);
    const costs = solvers.map((solver) => {
      const { x, y } = courses[runs.findIndex((run) => run.solver === solver)];
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

// The steps of a profile: the share of `values` (one for each problem) that are at most x.
function sharesOf(values, start) {
  const x = [...new Set([start, ...values.filter((value) => value < Infinity).sort((a, b) => a - b)])];
  return { x, y: x.map((level) => values.filter((value) => value <= level).length / values.length) };
}

// A hash of a counter, as in Python: the same resamples.
function resampled(problems, resamples) {
  return Float64Array.from({ length: problems * resamples }, (_, n) => {
    let x = Math.imul(n, 0x9e3779b9);
    for (const [shift, factor] of [[16, 0x85ebca6b], [13, 0xc2b2ae35]]) x = Math.imul(x ^ (x >>> shift), factor);
    return Math.floor((((x ^ (x >>> 16)) >>> 0) * problems) / 2 ** 32);
  });
}

// The area under the performance profile of one solver, and its bootstrap interval.
function areaOf(ratios) {
  const { limit, resamples, level } = data.area, n = ratios.length, drawn = resampled(n, resamples);
  const gains = ratios.map((ratio) => Math.min(1, Math.max(0, 1 - Math.log(ratio) / Math.log(limit))));
  const mean = (values) => values.reduce((a, b) => a + b, 0) / n;
  const means = Array.from({ length: resamples }, (_, k) => mean(
    Array.from(drawn.subarray(k * n, k * n + n), (problem) => gains[problem])));
  return [mean(gains), quantile(means, (1 - level) / 2), quantile(means, (1 + level) / 2)];
}

// Median and quartiles over the seeds: at each x the last value of each run; after its end a failed run is infinite.
function medianOf(runs, x, y) {
  const courses = runs.map((run) => ({ ...course(run, x, y), after: run.status === "done" ? undefined : Infinity }));
  const places = [...new Set(courses.flatMap((one) => one.x))].sort((a, b) => a - b);
  const at = courses.map(() => -1), found = { x: [], low: [], middle: [], high: [] };
  for (const place of places) {
    const values = courses.map((one, n) => {
      while (one.x[at[n] + 1] <= place) at[n]++;
      return (place > (one.x.at(-1) ?? -1) ? one.after : undefined) ?? one.y[at[n]];
    });
    if (values.includes(undefined)) continue;
    found.x.push(place);
    found.low.push(quantile(values, 0.25));
    found.middle.push(quantile(values, 0.5));
    found.high.push(quantile(values, 0.75));
  }
  return found;
}

// The sentence on top, in the words that Python has for it.
function summaryOf(ratios, { solvers, measure, per }) {
  if (!solvers.length) return "No solver is shown.";
  if (!ratios.length) return "No problem has a result of every solver yet.";
  const total = count(ratios.length, per === "seed" ? "start" : "problem");
  const wins = solvers.map((_, n) => ratios.filter((row) => row[n] === 1).length), most = Math.max(...wins);
  if (!most) return `No solver reached the target on any of ${total}.`;
  const ahead = solvers.filter((_, n) => wins[n] === most).map((solver) => data.solvers[solver]);
  const [last, ...others] = ahead.toReversed();
  if (!others.length) return `${last} was ${data.best[measure]} on ${most} of ${total}.`;
  return `${others.toReversed().join(", ")} and ${last} were ${data.best[measure]} on ${most} of ${total} each.`;
}
