// The page: its texts, its controls, and what is drawn anew when one of them changes.
"use strict";
const report = (() => {
  const { data } = compute;
  const { UNITS, LOSSES, VALUES, choices, chosen } = view;
  const { make, percent } = tables;
  const at = (id) => document.getElementById(id);
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const NO_SOLVER = "No solver is shown: press one above.";

  function drawSummary(ratios) {
    const names = view.shown().map((solver) => data.solvers[solver].name), loss = LOSSES[chosen.loss];
    at("summary").textContent = names.length
      ? compute.summary(ratios, names, chosen.measure, chosen.per) : "No solver is shown.";
    const seeds = new Set(data.runs.map((run) => run.seed)).size;
    const median = chosen.per === "problem" && seeds > 1 ? `, median over ${seeds} seeds,` : "";
    at("target").textContent = `Cost: ${UNITS[chosen.measure]}${median} until the ${loss} has closed all but `
      + `${percent(chosen.tau)} (τ = ${chosen.tau}) of the gap between the start and the lowest ${loss} that a solver `
      + "shown here reached. A failed run never gets there.";
  }

  function drawProfiles(rows, ratios) {
    const solvers = view.shown().map((solver) => data.solvers[solver]);
    const why = solvers.length ? "No problem has a result of every solver shown." : NO_SOLVER;
    const curves = (values, start) => (rows.length
      ? solvers.map((solver, n) => ({ solver, steps: compute.shares(values(n), start) })) : []);
    figures.performance(at("performance"), curves((n) => ratios.map((row) => row[n]), 1), why);
    figures.data(at("data-profile"), curves((n) => rows.map((row) => row.costs[n]), 0), UNITS[chosen.measure], why);
    const over = chosen.per === "problem"
      ? `${count(rows.length, "problem")} (data set and network; the median over the seeds)`
      : `${count(rows.length, "start")} (data set, network and seed)`;
    at("profile-hint").textContent = `Over the ${over} that every solver shown has a result of. Area: under the `
      + `performance profile up to a ratio of ${data.area.limit}, with its ${percent(data.area.level)} bootstrap `
      + "interval; 1 is the best on every problem.";
    at("tau-text").textContent = chosen.tau;
  }

  // What `figures.curves` draws of a column: one entry per solver, with its median or with its single seeds.
  function curvesOf(runs, value) {
    const lowest = chosen.gap === "1" && value.endsWith("loss") ? compute.lowest(runs, value) : 0;
    const above = (values) => values.map((one) => one - lowest);
    const bySolver = [...compute.grouped(runs, (run) => run.solver)].sort(([a], [b]) => a - b);
    return bySolver.map(([number, own]) => {
      const solver = data.solvers[number];
      if (chosen.seeds === "1") {
        return { solver, seeds: own.map((run) => {
          const { x, y } = compute.measured(run, chosen.x, value);
          return { x, y: above(y), failed: run.status !== "done", name: `${solver.name}, seed ${run.seed}` };
        }) };
      }
      const { x, low, middle, high } = compute.curve(own, chosen.x, value);
      return { solver, curve: { x, low: above(low), middle: above(middle), high: above(high) } };
    }).filter(({ curve }) => !curve || curve.x.length);
  }

  function drawCurves() {
    const runs = view.runs(data.problems.indexOf(chosen.problem));
    const draw = (id, value, name) => figures.curves(at(id), curvesOf(runs, value), {
      title: name.toLowerCase() + (chosen.gap === "1" && value.endsWith("loss") ? " − lowest" : ""),
      unit: UNITS[chosen.x], logX: chosen.logx === "1", percent: value === "accuracy",
      why: runs.length ? "Nothing was measured." : NO_SOLVER,
    });
    draw("curves", "train_loss", "Training loss");
    if (chosen.value) draw("curves-other", chosen.value, VALUES[chosen.value]);
    const failed = runs.filter((run) => run.status !== "done").length, single = chosen.seeds === "1";
    const one = single || new Set(runs.map((run) => run.seed)).size < 2;
    const counted = single ? "a cross marks where" : "from there on they count as infinite";
    at("curves-hint").textContent = (one ? "One line per run." : "Median over the seeds, with the quartiles shaded.")
      + (failed ? ` ${failed} of ${runs.length} runs failed: ${counted}.` : "");
  }

  function drawAll() {
    const rows = view.costs(), ratios = compute.ratios(rows);
    drawSummary(ratios);
    drawCurves();
    drawProfiles(rows, ratios);
    tables.drawSolvers(rows, ratios);
    tables.drawResults();
  }

  function change(name, value) {
    if (name) chosen[name] = value;
    view.write();
    drawAll();
  }

  function drawn(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // The solvers: buttons that are the legend of every figure.
  function solverButton(solver) {
    const dashes = { solid: "", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" }[solver.dash];
    const look = { stroke: solver.colour, "stroke-width": 3.5, "stroke-dasharray": dashes };
    const line = drawn("line", { x1: 0, x2: 24, y1: 5, y2: 5, ...look });
    const picture = drawn("svg", { width: 24, height: 10, "aria-hidden": "true" }, line);
    const button = make("button", { type: "button", title: `Hide or show ${solver.name}` }, picture, solver.name);
    const press = () => button.setAttribute("aria-pressed", String(!view.hidden.has(solver.name)));
    button.addEventListener("click", () => {
      if (!view.hidden.delete(solver.name)) view.hidden.add(solver.name);
      press();
      change();
    });
    press();
    return button;
  }

  function setControls() {
    for (const control of document.querySelectorAll("[data-view]")) {
      const name = control.dataset.view;
      if (control.type === "checkbox") control.checked = chosen[name] === "1";
      else control.value = name === "tau" ? choices.tau.indexOf(chosen.tau) : chosen[name];
    }
    at("solvers").replaceChildren(...data.solvers.map(solverButton));
  }

  function valueOf(control) {
    if (control.type === "checkbox") return String(Number(control.checked));
    return control.dataset.view === "tau" ? choices.tau[control.value] : control.value;
  }

  function bindControls() {
    const control = (name) => document.querySelector(`[data-view=${name}]`);
    const options = (name, label) => {
      control(name).append(...choices[name].map((value) => make("option", { value }, label(value))));
    };
    options("problem", (name) => name);
    options("value", (name) => VALUES[name]);
    control("tau").max = choices.tau.length - 1;
    at("loss-choice").hidden = choices.loss.length < 2;
    at("other").hidden = !choices.value.length;
    for (const one of document.querySelectorAll("[data-view]")) {
      one.addEventListener("input", () => change(one.dataset.view, valueOf(one)));
    }
    for (const [id, step] of [["previous", -1], ["next", 1]]) {
      const total = data.problems.length;
      at(id).disabled = total < 2;
      at(id).addEventListener("click", () => {
        change("problem", data.problems[(data.problems.indexOf(chosen.problem) + step + total) % total]);
        setControls();
      });
    }
  }

  const TITLES = {
    curves: () => `${chosen.problem}: training loss`,
    "curves-other": () => `${chosen.problem}: ${VALUES[chosen.value].toLowerCase()}`,
    performance: () => `Performance profile, τ = ${chosen.tau}`,
    "data-profile": () => `Data profile, τ = ${chosen.tau}`,
  };

  function bindDownloads() {
    for (const figure of document.querySelectorAll("figure")) {
      const plot = figure.querySelector(".plot");
      const buttons = ["svg", "png", "json"].map((format) => {
        const name = format.toUpperCase(), title = `Download this figure as ${name}`;
        const button = make("button", { type: "button", title }, name);
        button.addEventListener("click", () => { if (plot.data) figures.download(plot, format, TITLES[plot.id]()); });
        return button;
      });
      figure.querySelector("figcaption").append(make("span", { className: "files" }, ...buttons));
    }
  }

  function drawOnce() {
    document.title = `${data.title} · cmalight bench`;
    at("study").textContent = `${data.title}: ${count(data.problems.length, "problem")}, `
      + `${count(data.solvers.length, "solver")}, ${count(data.runs.length, "run")} (${tables.statuses(data.runs)})`;
    at("notes").append(...data.notes.map((note) => make("p", { className: "note" }, note)));
    at("links").append("Tables: ", ...data.tables.map((href) => make("a", { href }, href.split("/").pop())));
    at("made").textContent = `Made ${data.made}. Everything is in this file; it loads nothing from the network.`;
    tables.drawFailures();
    tables.drawFacts();
  }

  function open() {
    view.read();
    setControls();
    drawAll();
  }

  bindControls();
  bindDownloads();
  drawOnce();
  open();
  window.addEventListener("hashchange", open);
  document.documentElement.dataset.ready = "yes";
})();
