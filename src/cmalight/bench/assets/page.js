// The page: its controls, which are also its address, and what is drawn anew when one of them changes.
const at = (id) => document.getElementById(id);
const form = at("view"), controls = form.elements;
const NO_SOLVER = "No solver is shown: check one above.";

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const number = (value) => (value === null || Number.isNaN(value) ? "–" : String(Number(value.toPrecision(4))));
const percent = (fraction) => `${Number((100 * fraction).toPrecision(3))} %`;
const label = (name) => controls[name].selectedOptions[0].text;

function statuses(runs) {
  const counts = [...Map.groupBy(runs, (run) => run.status)].sort((a, b) => b[1].length - a[1].length);
  return counts.map(([status, found]) => `${found.length} ${status.replace(/_/g, " ")}`).join(", ");
}

// What the reader has chosen: one value per control, and the numbers of the solvers and problems that are shown.
function chosen() {
  const values = new FormData(form), shown = values.getAll("show"), words = values.get("filter").toLowerCase().split(/\s+/);
  const solvers = [...data.solvers.keys()].filter((solver) => shown.includes(data.solvers[solver]));
  const matches = ({ name, group }) => words.every((word) => `${name} ${group}`.toLowerCase().includes(word));
  const problems = [...data.problems.keys()].filter((problem) => matches(data.problems[problem]));
  return { ...Object.fromEntries(values), tau: Number(values.get("tau")), solvers, problems };
}

function whyEmpty({ solvers, problems }, otherwise) {
  if (!solvers.length) return NO_SOLVER;
  return problems.length ? otherwise : NO_MATCH;
}

function drawSummary(view, rows, ratios) {
  at("summary").textContent = summaryOf(view, rows, ratios);
  const seeds = new Set(data.runs.map((run) => run.seed)).size, loss = label("loss");
  const median = view.per === "problem" && seeds > 1 ? `, median over ${seeds} seeds,` : "";
  at("target").textContent = `Cost: ${label("measure")}${median} until the ${loss} has closed all but `
    + `${percent(view.tau)} (τ = ${view.tau}) of the gap between the start and the lowest ${loss} that a solver `
    + "shown here reached; a failed run never gets there. On unseen data: the validation loss at the end of the runs.";
  at("filtered").textContent = view.problems.length < data.problems.length
    ? `${view.problems.length} of ${count(data.problems.length, "problem")} shown` : "";
}

// The performance profiles of the paper's Figs. 2 to 4: one row of figures per group of problems.
function drawProfiles(view, rows) {
  const why = whyEmpty(view, "No problem has a result of every solver shown.");
  const profiles = (own, values, start) => (own.length ? view.solvers.map((_, n) => fractionsOf(values(n), start)) : []);
  data.tableTaus.forEach((tau, column) => {
    const all = costsOf({ ...view, tau });
    ["", ...data.groups].forEach((group, line) => {
      const own = all.filter((row) => !group || data.problems[row.problem].group === group), ratios = ratiosOf(own);
      drawPerformance(`profile-${line}-${column}`, view, profiles(own, (n) => ratios.map((row) => row[n]), 1), why);
    });
  });
  drawData("data-profile", view, profiles(rows, (n) => rows.map((row) => row.costs[n]), 0), label("measure"), why);
  const over = view.per === "problem" ? "data set and network; the median over the seeds" : "data set, network and seed";
  const sets = new Set(rows.map((row) => data.problems[row.problem].source)).size;
  at("profile-hint").textContent = `Over the ${count(rows.length, view.per === "problem" ? "problem" : "start")} (${over}) `
    + `that every solver shown has a result of. Area: under the performance profile at τ = ${view.tau} up to a ratio of `
    + `${data.area.limit}; 1 is the best on every problem. `
    + (sets < data.area.fewest
      ? `No interval is given: ${count(sets, "source data set")}, and fewer than ${data.area.fewest} carry none.`
      : `In parentheses: its ${percent(data.area.level)} bootstrap interval over ${sets} source data sets.`)
    + " The cuts and options of one data set are one source.";
}

const text = (content, className = "") => make("td", { className }, content);

// A line with its marker, as in the figures.
function swatch(solver) {
  const { color, dash, symbol } = styleOf(solver), svg = "http://www.w3.org/2000/svg";
  const part = (name, values) => {
    const made = document.createElementNS(svg, name);
    Object.entries(values).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  };
  const picture = part("svg", { width: 34, height: 12, viewBox: "-17 -6 34 12", "aria-hidden": "true" });
  picture.append(part("path", { d: "M-17,0H17", stroke: color, "stroke-width": 2.4, "stroke-dasharray": DASHES[dash] }));
  picture.append(part("path", { d: SYMBOLS[symbol], fill: color }));
  return picture;
}

function solverHead(solver, scope = "row") {
  const name = data.solvers[solver];
  return make("th", { className: "name", scope, title: name }, swatch(solver), make("span", {}, name));
}

function head(...cells) {
  return make("thead", {}, make("tr", {}, ...cells.map((one) => (typeof one === "string" ? make("th", { scope: "col" }, one) : one))));
}

// One line per solver over all problems.
function drawSolvers(view, rows, ratios) {
  const unseen = unseenOf(view, rows), lowest = unseen.map(isLowest);
  const lines = view.solvers.map((solver, n) => {
    const own = ratios.map((row) => row[n]), solved = rows.filter((row) => row.costs[n] < Infinity).length;
    const [area, low, high] = rows.length ? areaOf(own, rows).map((value) => value.toFixed(2)) : ["–"];
    const worse = unseen.filter((row) => least(row) > 0).map((row) => row[n] / least(row)).filter((ratio) => ratio >= 1);
    const cells = [
      own.filter((ratio) => ratio === 1).length, solved, low === undefined ? area : `${area} (${low} to ${high})`,
      lowest.filter((row) => row[n]).length, worse.length ? number(quantile(worse, 0.5)) : "–",
      statuses(runsOf(view).filter((run) => run.solver === solver)),
    ];
    return make("tr", {}, solverHead(solver), ...cells.map((content) => text(String(content))));
  });
  at("solver-table").replaceChildren(head("solver", `best on (of ${rows.length})`, "solved", "area",
    `lowest on unseen data (of ${unseen.length})`, "unseen loss / lowest", "runs"), make("tbody", {}, ...lines));
}

// The box plots of the paper's Fig. 1.
function drawAllBoxes(view) {
  const runs = runsOf(view), why = whyEmpty(view, "No solver shown reports it.");
  const perEpoch = (run) => (run.epochs && run.evaluations !== null ? run.evaluations / run.epochs : null);
  drawBoxes("box-evaluations", view, runs, perEpoch, { title: "evaluations of f per epoch", rangemode: "tozero" }, why);
  drawBoxes("box-accepted", view, runs, (run) => run.accepted, { title: "accepted epochs", tickformat: ".0%", range: [-0.03, 1.03] }, why);
}

// Each cost, or other number, over the least of its row; the number itself if the least is not positive.
function drawHeat(view, rows) {
  const numbers = (problem) => view.solvers.map((solver) => reachedOf(problem, solver, view.heat));
  const shown = view.heat === "cost" ? rows : view.problems.map((problem) => ({ problem, costs: numbers(problem) }));
  const lines = shown.map(({ problem, seed, costs }) => {
    const best = least(costs.filter((value) => !Number.isNaN(value)));
    const cells = costs.map((value) => {
      const ratio = value / best, made = text(value === Infinity ? "never" : number(best > 0 ? ratio : value));
      const warmth = Math.min(1, Math.log10(Math.max(1, ratio)) / 2);
      if (value === Infinity) made.style.background = "#d5d8de";
      else if (best > 0 && ratio >= 1) made.style.background = `hsl(32 90% ${97 - 37 * warmth}%)`;
      made.className = value === best && value < Infinity ? "best" : "";
      made.title = number(value);
      return made;
    });
    const name = data.problems[problem].name + (seed === undefined ? "" : `, seed ${seed}`);
    return make("tr", {}, make("th", { className: "name", scope: "row", title: name }, make("span", {}, name)), ...cells);
  });
  at("heat").replaceChildren(head("problem", ...view.solvers.map((solver) => solverHead(solver, "col"))), make("tbody", {}, ...lines));
}

// Training loss and accuracy against time with the spread of the starts: the paper's Fig. 5, for one problem.
function drawAllCurves(view) {
  const shown = (run) => data.problems[run.problem].name === view.problem && view.solvers.includes(run.solver);
  const runs = data.runs.filter(shown), why = runs.length ? "Nothing was measured." : NO_SOLVER;
  const options = { ...view, unit: label("x"), why };
  const classes = runs.some((run) => run.final_accuracy !== null), unseen = classes ? "accuracy" : "validation_loss";
  const value = view.value === "unseen" ? unseen : view.value;
  const title = { accuracy: "validation accuracy", validation_loss: "validation loss", lr: "learning rate" }[value];
  drawCurves("curves", runs, { ...options, y: "train_loss", title: "training loss" });
  drawCurves("other", runs, { ...options, y: value, title });
  const failed = runs.filter((run) => run.status !== "done").length;
  const single = view.seeds || new Set(runs.map((run) => run.seed)).size < 2;
  const counted = view.seeds ? "a cross marks the end" : "from their end on they count as infinite";
  at("curves-hint").textContent = (single ? "One line per run." : "Median over the seeds, with the quartiles shaded.")
    + (failed ? ` ${failed} of ${runs.length} runs failed: ${counted}.` : "");
}

// A median, and how many runs it is of. `candidate` is what competes for bold: only if every run got there.
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
  const column = (title, name, more = {}) => {
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
    column("final loss", "final_loss"),
    column("best loss", "best_loss"),
    column("validation loss", "final_validation_loss"),
    column("accuracy", "final_accuracy", { sign: -1, show: percent }),
    ...data.tableTaus.map(cost),
    column("evaluations", "evaluated_passes", { describes: true }),
    column("accepted", "accepted", { describes: true, show: percent }),
  ].filter((one) => one.has);
}

function drawResults(view) {
  const columns = columnsOf(view);
  const bodies = view.problems.map((problem) => {
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
    const title = make("th", { scope: "rowgroup", colSpan: columns.length + 2 }, make("span", {}, data.problems[problem].name));
    return make("tbody", {}, make("tr", { className: "problem" }, title), ...lines);
  });
  at("result-table").replaceChildren(head("solver", "runs", ...columns.map((column) => column.title)), ...bodies);
}

// The menu of single problems has those that match the filter; if none does, all.
function filterMenu({ problems }) {
  const names = problems.map((problem) => data.problems[problem].name), menu = controls.problem;
  for (const option of menu.options) option.hidden = names.length > 0 && !names.includes(option.value);
  if (menu.selectedOptions[0].hidden) menu.value = names[0];
}

function drawAll() {
  filterMenu(chosen());
  const view = chosen(), rows = costsOf(view), ratios = ratiosOf(rows);
  drawSummary(view, rows, ratios);
  drawProfiles(view, rows);
  drawSolvers(view, rows, ratios);
  drawAllBoxes(view);
  drawHeat(view, rows);
  drawAllCurves(view);
  drawResults(view);
}

// The solvers: check boxes that are the legend of every figure; those that are checked are shown.
function solverSwitch(name, solver) {
  const box = make("input", { type: "checkbox", name: "show", value: name, defaultChecked: !data.hidden.includes(name) });
  return make("label", { title: name }, box, swatch(solver), make("span", {}, name));
}

function figure(id, caption) {
  return make("figure", {}, make("figcaption", {}, caption), make("div", { className: "plot", id }));
}

function addDownloads(figure) {
  const plot = figure.querySelector(".plot"), caption = figure.querySelector("figcaption");
  const buttons = ["svg", "png"].map((format) => {
    const button = make("button", { type: "button", title: `Download this figure as ${format}` }, format.toUpperCase());
    button.addEventListener("click", () => {
      const what = caption.querySelector("select") ? label("value") : caption.firstChild.textContent;
      const of = plot.id === "curves" || plot.id === "other" ? `, ${controls.problem.value}` : "";
      download(plot, format, what + (plot.id === "data-profile" ? `, τ = ${controls.tau.value}` : of));
    });
    return button;
  });
  caption.append(make("span", { className: "files" }, ...buttons));
}

// The controls as the address says; what it does not say, or says wrongly, is as usual.
function readAddress() {
  form.reset();
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    for (const control of document.getElementsByName(name === "hide" ? "show" : name)) {
      if (control.name === "show") control.checked = control.value === value ? name === "show" : control.checked;
      else if (control.type === "checkbox") control.checked = true;
      else if (!control.options || [...control.options].some((option) => option.value === value)) control.value = value;
    }
  }
  drawAll();
}

function writeAddress() {
  const changed = [...form.elements].filter((control) => control.name).flatMap((control) => {
    if (control.type === "checkbox") {
      if (control.checked === control.defaultChecked) return [];
      return [[control.name === "show" && !control.checked ? "hide" : control.name, control.value]];
    }
    return usual.get(control.name) === control.value ? [] : [[control.name, control.value]];
  });
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
}

at("solvers").append(...data.solvers.map(solverSwitch));
at("profiles").append(...["", ...data.groups].flatMap((group, line) => data.tableTaus.map((tau, column) => (
  figure(`profile-${line}-${column}`, `${group ? `${group[0].toUpperCase()}${group.slice(1)}` : "All"} problems, τ = ${tau}`)))));
controls.problem.append(...data.problems.map(({ name }) => new Option(name)));
controls.tau.append(...data.taus.map((tau) => new Option(tau, tau, tau === 0.01)));
for (const option of [...controls.loss.options]) if (!points[option.value]) option.remove();
controls.loss.parentElement.hidden = controls.loss.options.length < 2;
document.querySelectorAll("figure").forEach(addDownloads);
form.reset();
const usual = new FormData(form);
form.addEventListener("input", () => { writeAddress(); drawAll(); });
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", readAddress);
readAddress();
document.documentElement.dataset.ready = "yes";
