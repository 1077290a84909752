// The numbers: the same definitions as cmalight.bench.profiles and cmalight.bench.costs, for the solvers that are shown.
"use strict";
const compute = (() => {
  const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
  const MISSING = 65535;

  function unpack(packed) {
    const text = atob(packed.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const values = new TYPES[packed.type](bytes.buffer);
    if (!("log" in packed)) return values;
    const width = (packed.high - packed.low) / (MISSING - 1);
    return Float64Array.from(values, (step) => {
      if (step === MISSING) return NaN;
      const value = packed.low + step * width;
      return packed.log ? Math.exp(value) : value;
    });
  }

  function prepared(data) {
    const solving = {};
    for (const [name, values] of Object.entries(data.solving)) solving[name] = unpack(values);
    const runsOf = data.problems.name.map(() => []);
    solving.problem.forEach((problem, run) => runsOf[problem].push(run));
    const pairOf = data.pairs ? unpack(data.problems.family) : null;
    return { ...solving, runsOf, pairOf, taus: data.taus.length, evaluationInEpochs: data.evaluationInEpochs };
  }

  function spent(solving, point, measure) {
    if (measure === "work") return solving.epochs[point] + solving.evaluations[point] * solving.evaluationInEpochs;
    return solving[measure][point];
  }

  // The cost of each run of a problem, by solver, as if the solvers that are not shown had never run.
  function problemCosts(solving, problem, tau, measure, shown) {
    const runs = solving.runsOf[problem].filter((run) => shown[solving.solver[run]]);
    const done = runs.filter((run) => solving.done[run]);
    const costs = new Map(runs.map((run) => [solving.solver[run], Infinity]));
    if (!done.length) return costs;
    const lowest = done.reduce((a, b) => (solving.standing[b] < solving.standing[a] ? b : a));
    const target = solving.targets[lowest * solving.taus + tau];
    for (const run of done) {
      for (let point = solving.first[run]; point < solving.first[run + 1]; point++) {
        if (solving.rank[point] >= target) {
          costs.set(solving.solver[run], spent(solving, point, measure));
          break;
        }
      }
    }
    return costs;
  }

  // Rows of costs of the problems that every shown solver has a result of; member: which problems count.
  function costs(solving, { tau, measure, shown, member }) {
    const columns = [...shown.keys()].filter((solver) => shown[solver]);
    const problems = [], rows = [];
    solving.runsOf.forEach((_, problem) => {
      if (member && !member[problem]) return;
      const found = problemCosts(solving, problem, tau, measure, shown);
      if (!columns.length || found.size < columns.length) return;
      problems.push(problem);
      rows.push(columns.map((solver) => found.get(solver)));
    });
    return { columns, rows: solving.pairOf ? byPair(rows, problems.map((problem) => solving.pairOf[problem])) : rows };
  }

  // The medians over the starts of each pair of data set and network.
  function byPair(rows, pairs) {
    const found = new Map();
    rows.forEach((row, at) => found.set(pairs[at], [...(found.get(pairs[at]) || []), row]));
    return [...found.values()].map((starts) => starts[0].map((_, solver) => median(starts.map((row) => row[solver]))));
  }

  function ratios(rows) {
    return rows.map((row) => {
      const best = Math.min(...row);
      return row.map((cost) => {
        if (cost === Infinity) return Infinity;
        if (best === 0) return cost === 0 ? 1 : Infinity;
        return cost / best;
      });
    });
  }

  // The steps of one curve: at x the share jumps to y, and stays until the next.
  function steps(values, start) {
    const sorted = Float64Array.from(values.filter(Number.isFinite)).sort();
    const x = [start], y = [0];
    sorted.forEach((value, i) => {
      const share = (i + 1) / values.length;
      if (value === x[x.length - 1]) y[y.length - 1] = share;
      else { x.push(value); y.push(share); }
    });
    return { x, y };
  }

  function drawn(counter, problems) {
    let x = Math.imul(counter, 0x9e3779b9) >>> 0;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b) >>> 0;
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35) >>> 0;
    x = (x ^ (x >>> 16)) >>> 0;
    return Math.floor((x * problems) / 4294967296);
  }

  function quantile(sorted, q) {
    const place = q * (sorted.length - 1), below = Math.floor(place);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
  }

  function areas(rows, { limit, resamples, level }) {
    if (!rows.length) return [];
    const gains = ratios(rows).map((row) => row.map((r) => Math.min(1, Math.max(0, 1 - Math.log(r) / Math.log(limit)))));
    const problems = rows.length, solvers = rows[0].length;
    const means = Array.from({ length: solvers }, () => new Float64Array(resamples));
    for (let resample = 0, counter = 0; resample < resamples; resample++) {
      for (let i = 0; i < problems; i++, counter++) {
        const row = gains[drawn(counter, problems)];
        for (let s = 0; s < solvers; s++) means[s][resample] += row[s];
      }
    }
    return means.map((sums, s) => {
      const sorted = sums.map((sum) => sum / problems).sort();
      const area = gains.reduce((sum, row) => sum + row[s], 0) / problems;
      return { area, low: quantile(sorted, (1 - level) / 2), high: quantile(sorted, 1 - (1 - level) / 2) };
    });
  }

  function wins(rows, solvers) {
    return Array.from({ length: solvers }, (_, a) =>
      Array.from({ length: solvers }, (_, b) => rows.filter((row) => row[a] < row[b]).length));
  }

  function median(values) {
    const sorted = values.slice().sort((a, b) => a - b), middle = sorted.length >> 1;
    if (!sorted.length) return NaN;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }

  // The median seconds to each of `taus`, by `family/solver`, and how many of how many runs got there.
  function timesTo(solving, familyOf, taus, shown) {
    const found = new Map();
    solving.runsOf.forEach((_, problem) => {
      taus.forEach((tau, at) => {
        for (const [solver, cost] of problemCosts(solving, problem, tau, "seconds", shown)) {
          const key = `${familyOf[problem]}/${solver}`;
          if (!found.has(key)) found.set(key, taus.map(() => []));
          found.get(key)[at].push(cost);
        }
      });
    });
    const summed = (costs) => ({ median: median(costs), solved: costs.filter(Number.isFinite).length, runs: costs.length });
    for (const [key, lists] of found) found.set(key, lists.map(summed));
    return found;
  }

  return { unpack, prepared, costs, ratios, steps, areas, wins, timesTo, quantile };
})();
