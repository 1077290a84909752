// The page: its controls, which are also its address, and what is drawn anew when one of them changes.
const at = (id) => document.getElementById(id);
const form = at("view"), controls = form.elements;
const NO_SOLVER = "No solver is shown: press one above.";

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const number = (value) => (value === null || Number.isNaN(value) ? "–" : String(Number(value.toPrecision(4))));
const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;
const label = (name) => controls[name].selectedOptions[0].text;

function statuses(runs) {
  const counts = [...Map.groupBy(runs, (run) => run.status)].sort((a, b) => b[1].length - a[1].length);
  return counts.map(([status, found]) => `${found.length} ${status.replace(/_/g, " ")}`).join(", ");
}

// What the reader has chosen: one value per control, and the numbers of the solvers that are shown.
function chosen() {
  const values = new FormData(form), hidden = values.getAll("hide");
  const solvers = data.solvers.map((_, solver) => solver).filter((solver) => !hidden.includes(data.solvers[solver]));
  return { ...Object.fromEntries(values), tau: Number(values.get("tau")), solvers };
}

function drawSummary(view, ratios) {
  at("summary").textContent = summaryOf(ratios, view);
  const seeds = new Set(data.runs.map((run) => run.seed)).size, loss = label("loss");
  const median = view.per === "problem" && seeds > 1 ? `, median over ${seeds} seeds,` : "";
  at("target").textContent = `Cost: ${label("measure")}${median} until the ${loss} has closed all but `
    + `${percent(view.tau)} (τ = ${view.tau}) of the gap between the start and the lowest ${loss} that a solver `
    + "shown here reached. A failed run never gets there.";
}

function drawAllCurves(view) {
  const shown = (run) => data.problems[run.problem] === view.problem && view.solvers.includes(run.solver);
  const runs = data.runs.filter(shown), why = runs.length ? "Nothing was measured." : NO_SOLVER;
  const options = { ...view, unit: label("x"), why };
  drawCurves("curves", runs, { ...options, y: "train_loss", title: "training loss" });
  if (view.value) drawCurves("other", runs, { ...options, y: view.value, title: label("value").toLowerCase() });
  const failed = runs.filter((run) => run.status !== "done").length;
  const single = view.seeds || new Set(runs.map((run) => run.seed)).size < 2;
  const counted = view.seeds ? "a cross marks where" : "from there on they count as infinite";
  at("curves-hint").textContent = (single ? "One line per run." : "Median over the seeds, with the quartiles shaded.")
    + (failed ? ` ${failed} of ${runs.length} runs failed: ${counted}.` : "");
}

function drawProfiles(view, rows, ratios) {
  const { solvers, per } = view;
  const why = solvers.length ? "No problem has a result of every solver shown." : NO_SOLVER;
  const profiles = (values, start) => (rows.length ? solvers.map((_, n) => sharesOf(values(n), start)) : []);
  drawPerformance("performance", view, profiles((n) => ratios.map((row) => row[n]), 1), why);
  drawData("data-profile", view, profiles((n) => rows.map((row) => row.costs[n]), 0), label("measure"), why);
  const over = per === "problem" ? "data set and network; the median over the seeds" : "data set, network and seed";
  at("profile-hint").textContent = `Over the ${count(rows.length, per === "problem" ? "problem" : "start")} (${over}) `
    + "that every solver shown has a result of. Area: under the performance profile up to a ratio of "
    + `${data.area.limit}, with its ${percent(data.area.level)} bootstrap interval; 1 is the best on every problem.`;
}

const text = (content, className = "") => make("td", { className }, content);

function solverHead(solver) {
  const dot = make("span", { className: "dot" });
  dot.style.background = lookOf(solver).color;
  return make("th", { className: "name", scope: "row", title: data.solvers[solver] }, dot, data.solvers[solver]);
}

function head(...titles) {
  return make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))));
}

// One line per solver over all problems.
function drawSolvers({ solvers }, rows, ratios) {
  const lines = solvers.map((solver, n) => {
    const own = ratios.map((row) => row[n]), solved = own.filter((ratio) => ratio < Infinity).length;
    const [area, low, high] = rows.length ? areaOf(own).map((value) => value.toFixed(2)) : ["–", "–", "–"];
    const cells = [own.filter((ratio) => ratio === 1).length, solved, `${area} (${low} to ${high})`].map(String);
    const ended = statuses(data.runs.filter((run) => run.solver === solver));
    return make("tr", {}, solverHead(solver), ...[...cells, ended].map((content) => text(content)));
  });
  at("solver-table").replaceChildren(
    head("solver", `best on (of ${rows.length})`, "solved", "area", "runs"), make("tbody", {}, ...lines));
}

// A median, and how many runs it is of. `candidate` is what competes for bold: only where every run got there.
function cell(values, { sign = 1, describes = false, show = number }) {
  const known = describes ? values.filter((value) => value !== null) : values;
  if (!known.length) return { text: "–", candidate: Infinity };
  const value = quantile(known, 0.5), reached = known.filter(Number.isFinite).length, all = reached === known.length;
  const part = `${reached} of ${known.length}`, partly = reached ? part : "never";
  const shown = Number.isFinite(value) ? show(value) + (all ? "" : ` (${part})`) : partly;
  return { text: shown, candidate: all && !describes ? sign * value : Infinity, never: !Number.isFinite(value) };
}

// The columns of the results: `get` gives the values of the runs of one solver on one problem.
function columnsOf(view) {
  const figure = (title, name, more = {}) => {
    const failed = (more.sign ?? 1) * Infinity;
    const problems = new Set(data.runs.filter((run) => run[name] !== null).map((run) => run.problem));
    const value = (run) => (more.describes ? run[name] : run.status === "done" ? run[name] ?? failed : failed);
    const get = (runs) => (problems.has(runs[0].problem) ? runs.map(value) : []);
    return { title, get, has: problems.size, ...more };
  };
  const unit = view.measure === "seconds" ? "s" : label("measure").split(" ")[0];
  const cost = (tau) => {
    const key = (run) => `${run.problem}/${run.seed}`;
    const found = new Map(costsOf({ ...view, tau, per: "seed" }).map((row) => [key(row), row.costs]));
    const value = (run) => found.get(key(run))?.[view.solvers.indexOf(run.solver)] ?? [];
    return { title: `${unit} to τ=${tau}`, get: (runs) => runs.flatMap(value), has: true };
  };
  return [
    figure("final loss", "final_loss"),
    figure("best loss", "best_loss"),
    figure("validation loss", "final_validation_loss"),
    figure("accuracy", "final_accuracy", { sign: -1, show: percent }),
    ...data.tableTaus.map(cost),
    figure("evaluations", "evaluated_passes", { describes: true }),
    figure("accepted", "accepted", { describes: true, show: percent }),
  ].filter((column) => column.has);
}

function drawResults(view) {
  const columns = columnsOf(view);
  const bodies = data.problems.map((name, problem) => {
    const own = data.runs.filter((run) => run.problem === problem && view.solvers.includes(run.solver));
    const rows = [...Map.groupBy(own, (run) => run.solver)].sort(([a], [b]) => a - b)
      .map(([solver, runs]) => ({ solver, runs, cells: columns.map((column) => cell(column.get(runs), column)) }));
    const best = columns.map((_, n) => least(rows.map((row) => row.cells[n].candidate)));
    const style = ({ candidate, never }, n) => {
      if (candidate < Infinity && candidate === best[n] && rows.length > 1) return "best";
      return never ? "never" : "";
    };
    const lines = rows.map(({ solver, runs, cells }) => make("tr", {}, solverHead(solver),
      text(statuses(runs), runs.some((run) => run.status !== "done") ? "bad" : ""),
      ...cells.map((one, n) => text(one.text, style(one, n)))));
    const title = make("th", { scope: "rowgroup", colSpan: columns.length + 2 }, make("span", {}, name));
    return make("tbody", {}, make("tr", { className: "problem" }, title), ...lines);
  });
  at("result-table").replaceChildren(head("solver", "runs", ...columns.map((column) => column.title)), ...bodies);
}

function drawAll() {
  const view = chosen(), rows = costsOf(view), ratios = ratiosOf(rows);
  drawSummary(view, ratios);
  drawAllCurves(view);
  drawProfiles(view, rows, ratios);
  drawSolvers(view, rows, ratios);
  drawResults(view);
}

// The solvers: check boxes that are the legend of every figure; those that are checked are hidden.
function solverSwitch(name, solver) {
  const { color, dash } = lookOf(solver), swatch = make("i");
  swatch.style.borderTop = `4px ${DASHES[dash]} ${color}`;
  const box = make("input", { type: "checkbox", name: "hide", value: name });
  return make("label", { title: `Hide or show ${name}` }, box, swatch, make("span", {}, name));
}

function addDownloads(figure) {
  const plot = figure.querySelector(".plot"), caption = figure.querySelector("figcaption");
  const buttons = ["svg", "png"].map((format) => {
    const button = make("button", { type: "button", title: `Download this figure as ${format}` }, format.toUpperCase());
    button.addEventListener("click", () => {
      const what = caption.querySelector("select") ? label("value") : caption.firstChild.textContent;
      const of = plot.id === "curves" || plot.id === "other" ? controls.problem.value : `τ = ${controls.tau.value}`;
      download(plot, format, `${what}, ${of}`);
    });
    return button;
  });
  caption.append(make("span", { className: "files" }, ...buttons));
}

// The controls as the address says; what it does not say, or says wrongly, is as usual.
function readAddress() {
  form.reset();
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    for (const control of document.getElementsByName(name)) {
      if (control.type === "checkbox") control.checked ||= control.value === value;
      else if ([...control.options ?? []].some((option) => option.value === value)) control.value = value;
    }
  }
  drawAll();
}

at("solvers").append(...data.solvers.map(solverSwitch));
controls.problem.append(...data.problems.map((name) => new Option(name)));
controls.tau.append(...data.taus.map((tau) => new Option(tau, tau, tau === 0.01)));
for (const name of ["value", "loss"]) {
  for (const option of [...controls[name].options]) if (!points[option.value]) option.remove();
}
controls.loss.parentElement.hidden = controls.loss.options.length < 2;
at("other").parentElement.hidden = !controls.value.options.length;
document.querySelectorAll("figure").forEach(addDownloads);
const usual = new FormData(form);
form.addEventListener("input", () => {
  const changed = [...new FormData(form)].filter(([name, value]) => usual.get(name) !== value);
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
  drawAll();
});
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", readAddress);
readAddress();
document.documentElement.dataset.ready = "yes";
