// The tables. Every text goes in as text.
"use strict";
const tables = (() => {
  const { data } = compute;
  const at = (id) => document.getElementById(id);
  const sorted = { column: null, descending: false };

  // An element with properties (`class` and attributes among them) and children, which may be texts.
  function make(name, properties = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key in made) made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }
  const text = (content, classes = "") => make("td", { className: classes }, content);

  function number(value, digits = 4) {
    if (value === null || Number.isNaN(value)) return "–";
    if (value === 0 || (Number.isInteger(value) && Math.abs(value) < 1e6)) return String(value);
    const size = Math.abs(value);
    if (size < 1e-3 || size >= 1e6) return value.toExponential(digits - 2).replace("-", "−");
    return String(Number(value.toPrecision(digits)));
  }
  const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;

  function statuses(runs) {
    const counts = [...compute.grouped(runs, (run) => run.status)].sort((a, b) => b[1].length - a[1].length);
    return counts.map(([status, found]) => `${found.length} ${status.replace(/_/g, " ")}`).join(", ");
  }

  function named(solver) {
    const dot = make("span", { className: "dot" });
    dot.style.background = solver.colour;
    return make("th", { className: "name", scope: "row", title: solver.name }, dot, solver.name);
  }

  // Titles that begin with < are those of texts.
  function fill(id, titles, lines) {
    const heads = titles.map((title) => {
      const className = title.startsWith("<") ? "text" : "";
      return make("th", { scope: "col", className }, title.replace("<", ""));
    });
    at(id).replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
  }

  // One line per solver over all problems.
  function drawSolvers(rows, ratios) {
    const solvers = view.shown(), areas = rows.length ? compute.areas(ratios, solvers.length) : [];
    const lines = solvers.map((solver, n) => {
      const best = ratios.filter((row) => row[n] === 1).length;
      const solved = rows.filter((row) => row.costs[n] < Infinity).length;
      const [area, low, high] = ["area", "low", "high"].map((name) => areas[n]?.[name].toFixed(2));
      const interval = area ? `${area} (${low} to ${high})` : "–";
      const counts = [String(best), String(solved), interval].map((one) => text(one));
      const ended = text(statuses(data.runs.filter((run) => run.solver === solver)), "text");
      return make("tr", {}, named(data.solvers[solver]), ...counts, ended);
    });
    fill("solver-table", ["<solver", `best on (of ${rows.length})`, "solved", "area", "<runs"], lines);
  }

  // A median, and how many runs it is of. `candidate` is what competes for bold: only where every run got there.
  function cell(values, { good = "low", descriptive = false, show = number } = {}) {
    const known = descriptive ? values.filter((value) => value !== null) : values;
    const value = compute.median(known), reached = known.filter(Number.isFinite).length;
    const finite = Number.isFinite(value), all = finite && reached === known.length;
    const part = `${reached} of ${known.length}`;
    const shown = !known.length ? "–" : finite ? show(value) + (all ? "" : ` (${part})`) : reached ? part : "never";
    return { value, text: shown, candidate: all && !descriptive ? (good === "low" ? value : -value) : Infinity };
  }

  // The columns of the results: `get` gives the values of some runs of one solver on one problem.
  function columns() {
    const unit = view.chosen.measure === "seconds" ? "s" : view.chosen.measure;
    const has = (name) => data.runs.some((run) => run[name] !== null);
    const figure = (title, name, failed, options) => {
      const measured = new Set(data.runs.filter((run) => run[name] !== null).map((run) => run.problem));
      const value = (run) => (run.status === "done" ? run[name] ?? failed : failed);
      return { title, options, has: has(name), get: (runs) => (measured.has(runs[0].problem) ? runs.map(value) : []) };
    };
    const cost = (tau) => {
      const key = (run) => `${run.problem}/${run.seed}`, rows = view.costs({ tau, per: "seed" });
      const found = new Map(rows.map((row) => [key(row), row.costs]));
      const value = (run) => found.get(key(run))?.[view.shown().indexOf(run.solver)] ?? [];
      return { title: `${unit} to τ=${tau}`, has: true, get: (runs) => runs.flatMap(value) };
    };
    const described = (title, name, show) => (
      { title, has: has(name), get: (runs) => runs.map((run) => run[name]), options: { descriptive: true, show } });
    return [
      figure("final loss", "final_loss", Infinity),
      figure("best loss", "best_loss", Infinity),
      figure("validation loss", "final_validation_loss", Infinity),
      figure("accuracy", "final_accuracy", -Infinity, { good: "high", show: percent }),
      ...data.tableTaus.map(cost),
      described("evaluations", "evaluations", number),
      described("accepted", "accepted", percent),
    ].filter((column) => column.has);
  }

  function compare(a, b) {
    if (typeof a === "string") return a.localeCompare(b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a === b ? 0 : a < b ? -1 : 1;
  }

  function resultHead(shown) {
    const heads = ["solver", "runs", ...shown.map((column) => column.title)].map((title, n) => {
      const button = make("button", { type: "button" }, title);
      button.addEventListener("click", () => {
        sorted.descending = sorted.column === n && !sorted.descending;
        sorted.column = n;
        drawResults();
      });
      const head = make("th", { scope: "col", className: ["name", "text"][n] ?? "" }, button);
      if (sorted.column === n) head.setAttribute("aria-sort", sorted.descending ? "descending" : "ascending");
      return head;
    });
    return make("thead", {}, make("tr", {}, ...heads));
  }

  function resultBody(problem, shown) {
    const rows = [...compute.grouped(view.runs(problem), (run) => run.solver)].sort(([a], [b]) => a - b)
      .map(([solver, runs]) => ({
        solver: data.solvers[solver],
        ended: statuses(runs),
        failed: runs.some((run) => run.status !== "done"),
        cells: shown.map((column) => cell(column.get(runs), column.options)),
      }));
    const best = shown.map((_, n) => Math.min(...rows.map((row) => row.cells[n].candidate)));
    const key = (row) => [row.solver.name, row.ended, ...row.cells.map((one) => one.value)][sorted.column];
    if (sorted.column !== null) rows.sort((a, b) => (sorted.descending ? -1 : 1) * compare(key(a), key(b)));
    const style = (one, n) => {
      if (one.candidate < Infinity && one.candidate === best[n] && rows.length > 1) return "best";
      return Number.isFinite(one.value) ? "" : "never";
    };
    const lines = rows.map((row) => make("tr", {}, named(row.solver), text(row.ended, row.failed ? "text bad" : "text"),
      ...row.cells.map((one, n) => text(one.text, style(one, n)))));
    const name = make("span", {}, data.problems[problem]);
    const title = make("th", { className: "problem", scope: "rowgroup", colSpan: shown.length + 2 }, name);
    return make("tbody", {}, make("tr", {}, title), ...lines);
  }

  function drawResults() {
    const shown = columns();
    const bodies = data.problems.map((_, problem) => resultBody(problem, shown));
    at("result-table").replaceChildren(resultHead(shown), ...bodies);
  }

  function drawFailures() {
    const failed = data.runs.filter((run) => run.status !== "done");
    at("failed").hidden = !failed.length;
    fill("failures", ["<solver", "<problem", "seed", "<ended", "epochs", "<error"], failed.map((run) => make("tr", {},
      named(data.solvers[run.solver]), text(data.problems[run.problem], "text"), text(String(run.seed)),
      text(run.status.replace(/_/g, " "), "text"), text(number(run.epochs)), text(run.error, "text long"))));
  }

  function drawFacts() {
    at("facts").replaceChildren(...data.facts.map(([name, values]) => (
      make("tr", {}, make("th", { scope: "row", className: "text" }, name), text(values, "text long")))));
  }

  return { make, percent, statuses, drawSolvers, drawResults, drawFailures, drawFacts };
})();
