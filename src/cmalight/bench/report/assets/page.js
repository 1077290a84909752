// The page: its view (what is shown, which is also in the address), its controls and its tables.
"use strict";
const report = (() => {
  const { data, points } = compute;
  const at = (id) => document.getElementById(id);
  const UNITS = { seconds: "training seconds", epoch: "epochs", epochs: "epochs", work: "work (passes over the data)", evaluations: "evaluations (passes over the data)" };
  const VALUES = { validation_loss: "Validation loss", accuracy: "Validation accuracy", lr: "Learning rate" };
  const LOSSES = { train_loss: "training loss", validation_loss: "validation loss" };
  const values = Object.keys(VALUES).filter((name) => points[name]);
  const choices = {
    problem: data.problems, x: ["seconds", "epoch", "work", "evaluations"], value: values, measure: Object.keys(data.words),
    loss: Object.keys(LOSSES).filter((name) => points[name]), per: ["problem", "seed"], tau: data.taus.map(String), seeds: ["0", "1"], gap: ["0", "1"], logx: ["0", "1"],
  };
  const DEFAULTS = { problem: data.problems[0], x: "seconds", value: values[0], measure: "seconds", loss: "train_loss", per: "problem", tau: "0.01", seeds: "0", gap: "0", logx: "0" };
  const view = { ...DEFAULTS, hidden: new Set() };
  const sort = { column: null, descending: false };

  function element(name, text, classes) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (classes) made.className = classes;
    return made;
  }

  function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1)), names = data.solvers.map((solver) => solver.name);
    for (const [name, usual] of Object.entries(DEFAULTS)) view[name] = choices[name].includes(asked.get(name)) ? asked.get(name) : usual;
    view.hidden = new Set(asked.getAll("hide").filter((name) => names.includes(name)));
  }

  function writeAddress() {
    const said = new URLSearchParams();
    for (const [name, usual] of Object.entries(DEFAULTS)) if (view[name] !== usual) said.set(name, view[name]);
    for (const name of view.hidden) said.append("hide", name);
    history.replaceState(null, "", said.size ? `#${said}` : location.pathname + location.search);
  }

  const shown = () => data.solvers.map((_, number) => number).filter((number) => !view.hidden.has(data.solvers[number].name));
  const costs = (more = {}) => compute.costs({ shown: shown(), tau: Number(view.tau), measure: view.measure, loss: view.loss, per: view.per, ...more });
  const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;

  function number(value, digits = 4) {
    if (value === null || Number.isNaN(value)) return "–";
    if (value === 0 || (Number.isInteger(value) && Math.abs(value) < 1e6)) return String(value);
    const size = Math.abs(value);
    return size < 1e-3 || size >= 1e6 ? value.toExponential(digits - 2).replace("-", "−") : String(Number(value.toPrecision(digits)));
  }

  function drawSummary(found) {
    const names = shown().map((solver) => data.solvers[solver].name), seeds = new Set(data.runs.map((run) => run.seed)).size;
    at("summary").textContent = names.length ? compute.summary(found, names, view.measure, view.per) : "No solver is shown.";
    const what = `Cost: ${UNITS[view.measure]}${view.per === "problem" && seeds > 1 ? `, median over ${seeds} seeds,` : ""}`;
    at("target").textContent = `${what} until the ${LOSSES[view.loss]} has closed all but ${percent(view.tau)} (τ = ${view.tau}) of the gap between the start and the lowest ${LOSSES[view.loss]} that a solver shown here reached. A failed run never gets there.`;
  }

  function drawProfiles(found) {
    const solvers = shown().map((solver) => data.solvers[solver]), rows = costs();
    const why = solvers.length ? "No problem has a result of every solver shown." : "No solver is shown: press one above.";
    const steps = (values, start) => (rows.length ? solvers.map((solver, n) => ({ solver, steps: compute.shares(values(n), start) })) : []);
    figures.performance(at("performance"), steps((n) => found.map((row) => row[n]), 1), why);
    figures.data(at("data-profile"), steps((n) => rows.map((row) => row.costs[n]), 0), UNITS[view.measure], why);
    const over = view.per === "problem" ? `${rows.length} problems (data set and network; the median over the seeds)` : `${rows.length} starts (data set, network and seed)`;
    at("profile-hint").textContent = `Over the ${over} that every solver shown has a result of. Area: under the performance profile up to a ratio of ${data.area.limit}, with its ${percent(data.area.level)} bootstrap interval; 1 is the best on every problem.`;
    at("tau-text").textContent = view.tau;
    const areas = rows.length ? compute.areas(found, solvers.length) : [];
    const body = solvers.map((solver, n) => {
      const line = element("tr"), runs = data.runs.filter((run) => data.solvers[run.solver] === solver);
      const solved = rows.filter((row) => row.costs[n] < Infinity).length, best = found.filter((row) => row[n] === 1).length, area = areas[n];
      line.append(named(solver), element("td", String(best)), element("td", String(solved)), element("td", area ? `${area.area.toFixed(2)} (${area.low.toFixed(2)} to ${area.high.toFixed(2)})` : "–"), element("td", statuses(runs), "text"));
      return line;
    });
    table("solver-table", ["solver", `best on (of ${rows.length})`, "solved", "area", "runs"], body, [0, 4]);
  }

  function drawCurves() {
    const runs = data.runs.filter((run) => data.problems[run.problem] === view.problem && shown().includes(run.solver));
    const bySolver = compute.grouped(runs, (run) => run.solver);
    const rows = (value) => {
      const less = view.gap === "1" && value.endsWith("loss") ? compute.lowest(runs, value) : 0;
      const minus = (list) => (less ? list.map((one) => one - less) : list);
      return [...bySolver].sort(([a], [b]) => a - b).flatMap(([solver, own]) => {
        const look = data.solvers[solver];
        if (view.seeds === "1") return { solver: look, seeds: own.map((run) => {
          const trace = compute.measured(run, view.x, value);
          return { trace: { x: trace.x, y: minus(trace.y) }, failed: run.status !== "done", name: `${look.name}, seed ${run.seed}` };
        }) };
        const curve = compute.curve(own, view.x, value);
        return curve.x.length ? { solver: look, curve: { x: curve.x, low: minus(curve.low), middle: minus(curve.middle), high: minus(curve.high) } } : [];
      });
    };
    const why = shown().length ? "Nothing was measured." : "No solver is shown: press one above.";
    const title = (value, text) => (view.gap === "1" && value.endsWith("loss") ? `${text} − lowest` : text).toLowerCase();
    const options = (value, text) => ({ title: title(value, text), unit: UNITS[view.x], logX: view.logx === "1", percent: value === "accuracy", why });
    figures.curves(at("curves"), rows("train_loss"), options("train_loss", "Training loss"));
    if (values.length) figures.curves(at("curves-other"), rows(view.value), options(view.value, VALUES[view.value]));
    const failed = runs.filter((run) => run.status !== "done").length;
    at("curves-hint").textContent = (view.seeds === "1" || new Set(runs.map((run) => run.seed)).size < 2 ? "One line per run." : "Median over the seeds, with the quartiles shaded.")
      + (failed ? ` ${failed} of ${runs.length} runs failed: ${view.seeds === "1" ? "a cross marks where" : "from there on they count as infinite, and a median of them has no line"}.` : "");
  }

  function statuses(runs) {
    const counts = compute.grouped(runs, (run) => run.status);
    return [...counts].sort((a, b) => b[1].length - a[1].length).map(([status, found]) => `${found.length} ${status.replace(/_/g, " ")}`).join(", ");
  }

  function named(solver) {
    const cell = element("th", undefined, "name"), dot = element("span", undefined, "dot");
    dot.style.background = solver.colour;
    cell.scope = "row";
    cell.title = solver.name;
    cell.append(dot, solver.name);
    return cell;
  }

  function table(id, titles, lines, texts) {
    const head = element("thead"), row = element("tr"), body = element("tbody");
    titles.forEach((title, n) => { const cell = element("th", title, texts.includes(n) ? "text" : ""); cell.scope = "col"; row.append(cell); });
    head.append(row);
    body.append(...lines);
    at(id).replaceChildren(head, body);
  }

  // A median with the number of runs behind it: `bold` only where every run got there and none of the others is better.
  function cell(list, { good = "low", descriptive = false, show = number } = {}) {
    const known = list === null ? [] : descriptive ? list.filter((value) => value !== null) : list, value = compute.median(known);
    const reached = known.filter(Number.isFinite).length, all = reached === known.length && known.length > 0;
    const finite = Number.isFinite(value), part = `${reached} of ${known.length}`;
    const text = !known.length ? "–" : finite ? show(value) + (all ? "" : ` (${part})`) : reached ? part : "never";
    return { value, text, candidate: finite && all && !descriptive ? (good === "low" ? value : -value) : Infinity, bad: !finite && known.length > 0 };
  }

  function resultColumns() {
    const unit = { seconds: "s", work: "work", evaluations: "evaluations", epochs: "epochs" }[view.measure];
    const reached = data.tableTaus.map((tau) => new Map(costs({ tau, per: "seed" }).map((row) => [`${row.problem}/${row.seed}`, row.costs])));
    const given = (name) => new Set(data.runs.filter((run) => run[name] !== null).map((run) => run.problem));
    const figure = (name, failed, problems = given(name)) => (runs) => (problems.has(runs[0].problem) ? runs.map((run) => (run.status === "done" ? run[name] ?? failed : failed)) : null);
    const has = (name) => data.runs.some((run) => run[name] !== null);
    const loss = (title, name) => ({ title, get: figure(name, Infinity), has: has(name) });
    return [
      loss("final loss", "final_loss"), loss("best loss", "best_loss"), loss("validation loss", "final_validation_loss"),
      { title: "accuracy", get: figure("final_accuracy", -Infinity), has: has("final_accuracy"), options: { good: "high", show: percent } },
      ...data.tableTaus.map((tau, n) => ({
        title: `${unit} to τ=${tau}`, has: true,
        get: (runs) => runs.flatMap((run) => reached[n].get(`${run.problem}/${run.seed}`)?.[shown().indexOf(run.solver)] ?? []),
      })),
      { title: "evaluations", get: (runs) => runs.map((run) => run.evaluations), has: has("evaluations"), options: { descriptive: true } },
      { title: "accepted", get: (runs) => runs.map((run) => run.accepted), has: has("accepted"), options: { descriptive: true, show: percent } },
    ].filter((column) => column.has);
  }

  function drawResults() {
    const columns = resultColumns(), head = element("thead"), titles = element("tr");
    ["solver", "runs", ...columns.map((column) => column.title)].forEach((title, n) => {
      const heading = element("th", undefined, n === 0 ? "name" : n === 1 ? "text" : ""), button = element("button", title);
      heading.scope = "col";
      button.type = "button";
      button.addEventListener("click", () => { sort.descending = sort.column === n && !sort.descending; sort.column = n; drawResults(); });
      if (sort.column === n) heading.setAttribute("aria-sort", sort.descending ? "descending" : "ascending");
      heading.append(button);
      titles.append(heading);
    });
    head.append(titles);
    const bodies = data.problems.map((problem, place) => {
      const runs = compute.grouped(data.runs.filter((run) => run.problem === place && shown().includes(run.solver)), (run) => run.solver);
      const rows = [...runs].sort(([a], [b]) => a - b).map(([solver, own]) => ({ solver: data.solvers[solver], ended: statuses(own), failed: own.some((run) => run.status !== "done"), cells: columns.map((column) => cell(column.get(own), column.options)) }));
      const best = columns.map((_, n) => Math.min(...rows.map((row) => row.cells[n].candidate)));
      const key = (row) => (sort.column === 0 ? row.solver.name : sort.column === 1 ? row.ended : row.cells[sort.column - 2].value);
      const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : a === b ? 0 : a < b ? -1 : 1);
      if (sort.column !== null) rows.sort((a, b) => (sort.descending ? -1 : 1) * order(key(a), key(b)));
      const body = element("tbody"), title = element("tr"), name = element("th", undefined, "problem");
      name.colSpan = columns.length + 2;
      name.scope = "rowgroup";
      name.append(element("span", problem));
      title.append(name);
      body.append(title, ...rows.map((row) => {
        const line = element("tr");
        line.append(named(row.solver), element("td", row.ended, row.failed ? "text bad" : "text"));
        row.cells.forEach((one, n) => line.append(element("td", one.text, one.candidate < Infinity && one.candidate === best[n] && rows.length > 1 ? "best" : one.bad ? "never" : "")));
        return line;
      }));
      return body;
    });
    at("result-table").replaceChildren(head, ...bodies);
  }

  function drawSolvers() {
    at("solvers").replaceChildren(...data.solvers.map((solver) => {
      const button = element("button"), strokes = { solid: "", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" };
      const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg"), stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [name, value] of Object.entries({ width: 24, height: 10, "aria-hidden": "true" })) picture.setAttribute(name, value);
      for (const [name, value] of Object.entries({ x1: 0, x2: 24, y1: 5, y2: 5, stroke: solver.colour, "stroke-width": 3.5, "stroke-dasharray": strokes[solver.dash] })) stroke.setAttribute(name, value);
      picture.append(stroke);
      button.type = "button";
      button.title = `Hide or show ${solver.name}`;
      button.dataset.solver = solver.name;
      button.setAttribute("aria-pressed", String(!view.hidden.has(solver.name)));
      button.append(picture, solver.name);
      button.addEventListener("click", () => {
        if (!view.hidden.delete(solver.name)) view.hidden.add(solver.name);
        button.setAttribute("aria-pressed", String(!view.hidden.has(solver.name)));
        changed();
      });
      return button;
    }));
  }

  function setControls() {
    for (const control of document.querySelectorAll("[data-view]")) {
      const name = control.dataset.view;
      if (control.type === "checkbox") control.checked = view[name] === "1";
      else control.value = name === "tau" ? choices.tau.indexOf(view.tau) : view[name];
    }
    drawSolvers();
  }

  function options(select, names, text) {
    select.replaceChildren(...names.map((name) => { const option = element("option", text(name)); option.value = name; return option; }));
  }

  function bindControls() {
    options(document.querySelector("[data-view=problem]"), data.problems, (name) => name);
    options(document.querySelector("[data-view=value]"), values, (name) => VALUES[name]);
    document.querySelector("[data-view=tau]").max = data.taus.length - 1;
    at("loss-choice").hidden = choices.loss.length < 2;
    at("other").hidden = !values.length;
    for (const control of document.querySelectorAll("[data-view]")) {
      control.addEventListener("input", () => {
        const name = control.dataset.view;
        view[name] = control.type === "checkbox" ? String(Number(control.checked)) : name === "tau" ? choices.tau[control.value] : control.value;
        changed();
      });
    }
    for (const [id, step] of [["previous", -1], ["next", 1]]) {
      at(id).disabled = data.problems.length < 2;
      at(id).addEventListener("click", () => {
        view.problem = data.problems[(data.problems.indexOf(view.problem) + step + data.problems.length) % data.problems.length];
        setControls();
        changed();
      });
    }
    for (const figure of document.querySelectorAll("figure")) {
      const files = element("span", undefined, "files"), plot = figure.querySelector(".plot");
      const title = () => ({ curves: `${view.problem}: training loss`, "curves-other": `${view.problem}: ${(VALUES[view.value] ?? "").toLowerCase()}`, performance: `Performance profile, τ = ${view.tau}`, "data-profile": `Data profile, τ = ${view.tau}` })[plot.id];
      for (const format of ["svg", "png", "json"]) {
        const button = element("button", format.toUpperCase());
        button.type = "button";
        button.title = `Download this figure as ${format.toUpperCase()}`;
        button.addEventListener("click", () => { if (plot.data) figures.download(plot, format, title()); });
        files.append(button);
      }
      figure.querySelector("figcaption").append(files);
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", { performance: "Performance profile", "data-profile": "Data profile", curves: "Training loss" }[plot.id] ?? "Second figure");
    }
  }

  function drawOnce() {
    document.title = `${data.title} · cmalight bench`;
    at("study").textContent = `${data.title}: ${data.problems.length} problem${data.problems.length > 1 ? "s" : ""}, ${data.solvers.length} solver${data.solvers.length > 1 ? "s" : ""}, ${data.runs.length} runs (${statuses(data.runs)})`;
    at("notes").replaceChildren(...data.notes.map((note) => element("p", note, "note")));
    at("table-hint").textContent = "Medians over the seeds; a failed run counts as infinitely bad, in every figure. “2 of 3”: so many runs got there. Bold: the best, where every run got there. Evaluations are the optimizer’s own, in passes over the data, looks at a sample included; accepted is the share of its decisions that kept the steps. Press a heading to sort.";
    at("links").append("Tables: ", ...data.tables.map((address) => { const link = element("a", address.split("/").pop()); link.href = address; return link; }));
    const failed = data.runs.filter((run) => run.status !== "done");
    at("failed").hidden = !failed.length;
    table("failures", ["solver", "problem", "seed", "ended", "epochs", "error"], failed.map((run) => {
      const line = element("tr");
      line.append(named(data.solvers[run.solver]), element("td", data.problems[run.problem], "text"), element("td", String(run.seed)), element("td", run.status.replace(/_/g, " "), "text"), element("td", number(run.epochs)), element("td", run.error, "text long"));
      return line;
    }), [0, 1, 3, 5]);
    at("facts").replaceChildren(...data.facts.map(([name, text]) => {
      const line = element("tr"), heading = element("th", name, "text");
      heading.scope = "row";
      line.append(heading, element("td", text, "text long"));
      return line;
    }));
    at("made").textContent = `Made ${data.made}. Everything is in this file; it loads nothing from the network.`;
  }

  function drawAll() {
    const found = compute.ratios(costs());
    drawSummary(found);
    drawCurves();
    drawProfiles(found);
    drawResults();
  }

  function changed() {
    writeAddress();
    drawAll();
  }

  bindControls();
  readAddress();
  setControls();
  drawOnce();
  drawAll();
  window.addEventListener("hashchange", () => { readAddress(); setControls(); drawAll(); });
  document.documentElement.dataset.ready = "yes";
  return { view, costs };
})();
