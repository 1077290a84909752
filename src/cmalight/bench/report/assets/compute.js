// The numbers behind the figures, for the solvers that are shown. The same definitions as cmalight/bench/analysis.py.
"use strict";
const compute = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ARRAYS = { float32: Float32Array, float64: Float64Array };
  const COST_COLUMN = { seconds: "seconds", work: "work", evaluations: "evaluations", epochs: "epoch" };

  const points = Object.fromEntries(Object.entries(data.points).map(([name, { dtype, bdata }]) => {
    const bytes = Uint8Array.from(atob(bdata), (sign) => sign.charCodeAt(0));
    return [name, new ARRAYS[dtype](bytes.buffer)];
  }));

  function grouped(items, key) {
    const groups = new Map();
    for (const item of items) {
      if (!groups.has(key(item))) groups.set(key(item), []);
      groups.get(key(item)).push(item);
    }
    return groups;
  }

  function quantile(values, share) {
    const ordered = Float64Array.from(values).sort();
    const place = share * (ordered.length - 1), low = ordered[Math.floor(place)], high = ordered[Math.ceil(place)];
    return low === high ? low : low + (high - low) * (place - Math.floor(place));
  }
  const median = (values) => (values.length ? quantile(values, 0.5) : NaN);

  // The measured values of a run: [column of the x axis, value] in order.
  function measured(run, x, y) {
    const found = { x: [], y: [] };
    for (let at = run.begin; at < run.end; at++) {
      if (!Number.isFinite(points[y][at])) continue;
      found.x.push(points[x][at]);
      found.y.push(points[y][at]);
    }
    return found;
  }

  // One row per problem, or per problem and seed: its costs, one for each solver of `shown` (numbers).
  // Infinite: failed or not reached. Seeds that a solver has no result of are left out.
  function costs({ shown, tau, measure, loss, per }) {
    const compared = data.runs.filter((run) => shown.includes(run.solver));
    const starts = grouped(compared, (run) => `${run.problem}/${run.seed}`);
    const rows = [];
    for (const runs of starts.values()) {
      if (runs.length < shown.length) continue;
      const nothing = { x: [], y: [] };
      const traces = runs.map((run) => (run.status === "done" ? measured(run, COST_COLUMN[measure], loss) : nothing));
      const known = traces.filter((trace) => trace.y.length);
      const lowest = Math.min(...known.map((trace) => trace.y.reduce((a, b) => Math.min(a, b))));
      const start = Math.max(...known.map((trace) => trace.y[0]));
      const target = lowest + tau * (start - lowest);
      const row = new Array(shown.length);
      runs.forEach((run, at) => {
        const first = traces[at].y.findIndex((value) => value <= target);
        row[shown.indexOf(run.solver)] = first < 0 ? Infinity : traces[at].x[first];
      });
      rows.push({ problem: runs[0].problem, seed: runs[0].seed, costs: row });
    }
    if (per === "seed") return rows;
    return [...grouped(rows, (row) => row.problem)].map(([problem, seeds]) => (
      { problem, costs: shown.map((_, at) => median(seeds.map((row) => row.costs[at]))) }));
  }

  function ratios(rows) {
    return rows.map(({ costs }) => {
      const best = Math.min(...costs);
      return costs.map((cost) => {
        if (cost === Infinity) return Infinity;
        return cost === best ? 1 : best > 0 ? cost / best : Infinity;
      });
    });
  }

  // The steps of a profile: the share of `values` (one for each problem) that are at most x.
  function shares(values, start) {
    const ordered = values.filter((value) => value < Infinity).sort((a, b) => a - b);
    const x = [start], y = [0];
    ordered.forEach((value, at) => {
      if (value > x[x.length - 1]) { x.push(value); y.push(0); }
      y[y.length - 1] = (at + 1) / values.length;
    });
    return { x, y };
  }

  // A hash of a counter, as in Python: the same resamples.
  function resample(problems, resamples) {
    const drawn = new Int32Array(problems * resamples);
    for (let n = 0; n < drawn.length; n++) {
      let x = Math.imul(n, 0x9e3779b9) >>> 0;
      x = Math.imul(x ^ (x >>> 16), 0x85ebca6b) >>> 0;
      x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35) >>> 0;
      x = (x ^ (x >>> 16)) >>> 0;
      drawn[n] = Math.floor((x * problems) / 4294967296);
    }
    return drawn;
  }

  // Area under each performance profile with its bootstrap interval.
  function areas(found, solvers) {
    const { limit, resamples, level } = data.area, n = found.length, drawn = resample(n, resamples);
    return Array.from({ length: solvers }, (_, solver) => {
      const gains = found.map((row) => Math.min(1, Math.max(0, 1 - Math.log(row[solver]) / Math.log(limit))));
      const means = Array.from({ length: resamples }, (__, k) => {
        let sum = 0;
        for (let at = 0; at < n; at++) sum += gains[drawn[k * n + at]];
        return sum / n;
      });
      const area = gains.reduce((a, b) => a + b, 0) / n;
      return { area, low: quantile(means, (1 - level) / 2), high: quantile(means, (1 + level) / 2) };
    });
  }

  // Median and quartiles over the seeds: at each x the last value of each run; after its end a failed run is infinite.
  function curve(runs, x, y) {
    const traces = runs.map((run) => ({ ...measured(run, x, y), end: run.status === "done" ? null : Infinity }));
    const grid = [...new Set(traces.flatMap((trace) => trace.x))].sort((a, b) => a - b);
    const at = traces.map(() => -1), rows = { x: [], low: [], middle: [], high: [] };
    for (const place of grid) {
      const values = traces.map((trace, n) => {
        while (at[n] + 1 < trace.x.length && trace.x[at[n] + 1] <= place) at[n]++;
        const ended = at[n] === trace.x.length - 1 && place > (trace.x[at[n]] ?? -1);
        return ended && trace.end !== null ? trace.end : trace.y[at[n]];
      });
      if (values.includes(undefined)) continue;
      rows.x.push(place);
      rows.low.push(quantile(values, 0.25));
      rows.middle.push(quantile(values, 0.5));
      rows.high.push(quantile(values, 0.75));
    }
    return rows;
  }

  function lowest(runs, y) {
    const values = runs.filter((run) => run.status === "done").flatMap((run) => measured(run, "epoch", y).y);
    return values.reduce((a, b) => Math.min(a, b), Infinity);
  }

  function summary(found, names, measure, per) {
    if (!found.length) return "There is no problem yet that every solver has a result of.";
    const total = `${found.length} ${per === "seed" ? "start" : "problem"}${found.length > 1 ? "s" : ""}`;
    const wins = names.map((_, solver) => found.filter((row) => row[solver] === 1).length), most = Math.max(...wins);
    if (!most) return `No solver reached the target on any of ${total}.`;
    const ahead = names.filter((_, solver) => wins[solver] === most), one = ahead.length === 1;
    const joined = one ? ahead[0] : `${ahead.slice(0, -1).join(", ")} and ${ahead[ahead.length - 1]}`;
    return `${joined} ${data.words[measure][one ? 0 : 1]} on ${most} of ${total}${one ? "" : " each"}.`;
  }

  return { data, points, costs, ratios, shares, areas, curve, measured, lowest, median, summary, grouped };
})();
