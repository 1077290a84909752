// What is shown, and what happens when something is chosen.
"use strict";
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const { element } = tables;
  const solving = compute.prepared(data);
  const familyOf = compute.unpack(data.problems.family);
  const groups = data.groups.map((group) => ({ name: group.name, member: compute.unpack(group.member) }));
  const MEASURES = { seconds: "seconds of training", epochs: "epochs", evaluations: "full evaluations", work: "work (epochs + evaluations / 3)" };
  const VALUES = { loss: "training loss", test_loss: "test loss", test_accuracy: "test accuracy" };
  const AXES = { seconds: "seconds of training", epochs: "epochs", evaluations: "full evaluations" };
  const NOTHING = "nothing to show: no problem has a result of every solver that is shown";
  const state = {
    shown: data.solvers.map(() => true), tau: data.paperTaus[1], measure: "seconds", family: 0, image: data.images[0] ?? 0,
    value: "loss", axis: "seconds", logX: false, logY: true, sort: { column: null, descending: false }, filter: "",
  };

  const tauText = (tau) => {
    const exponent = Math.log10(tau), whole = Math.round(exponent);
    return Math.abs(exponent - whole) < 1e-9 ? `τ = 10${String(whole).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)])}` : `τ = ${tables.number(tau, 3)}`;
  };

  function panels(id, kind) {
    at(id).replaceChildren(...groups.map((group, i) => {
      const figure = element("figure"), caption = element("figcaption"), place = element("div", undefined, kind);
      place.id = `${id}-${i}`;
      caption.append(element("span", group.name), " ", element("small"));
      figure.append(caption, place);
      return figure;
    }));
  }

  function drawProfiles() {
    at("tau-text").textContent = tauText(data.taus[state.tau]);
    const free = state.measure === "evaluations" ? " Solvers without a control make no full evaluations and cost 0 here, beside which every other cost is infinitely larger; hide them to compare the rest." : "";
    at("profile-hint").textContent = `A problem is a data set, a network and a seed. It is solved when the true training loss is at most f_L + τ (f(w⁰) − f_L), where f_L is the lowest loss that any of the shown solvers reached.${free}`;
    groups.forEach((group, i) => {
      const { columns, rows } = compute.costs(solving, { ...state, member: group.member });
      const ratios = compute.ratios(rows);
      const curves = (table, start) => (rows.length ? columns.map((solver, s) => ({ solver: data.solvers[solver], steps: compute.steps(table.map((row) => row[s]), start) })) : []);
      plots.performance(at(`performance-${i}`), curves(ratios, 1), NOTHING);
      plots.dataProfile(at(`data-profiles-${i}`), curves(rows, 0), MEASURES[state.measure], NOTHING);
      plots.areas(at(`areas-${i}`), compute.areas(rows, data.area).map((area, s) => ({ ...area, solver: data.solvers[columns[s]] })), NOTHING);
      const nobody = rows.filter((row) => row.every((cost) => cost === Infinity)).length;
      const count = `${rows.length} problem${rows.length === 1 ? "" : "s"}${nobody ? `, ${nobody} solved by nobody` : ""}`;
      for (const id of ["performance", "data-profiles", "areas"]) at(`${id}-${i}`).parentElement.querySelector("small").textContent = count;
      const table = element("table", undefined, "wins");
      tables.wins(table, columns.map((solver) => data.solvers[solver]), compute.wins(rows, columns.length), rows.length);
      at(`wins-${i}`).replaceChildren(table);
    });
  }

  function drawBoxes() {
    const rows = data.boxes.filter((box) => state.shown[box.solver]).map((box) => ({ box, solver: data.solvers[box.solver] }));
    const why = "no run of the solvers that are shown has a control";
    plots.boxes(at("box-evaluations"), rows, "per_epoch", false, why);
    plots.boxes(at("box-acceptance"), rows, "acceptance", true, why);
  }

  // Where the curves of a kind begin: only those that exist are stored.
  const curveIndex = new Map();
  function curvesOf(family, value, axis) {
    const name = `${value}/${axis}`, stored = data.curves.of[name];
    if (!stored) return [];
    if (!curveIndex.has(name)) {
      const ends = compute.unpack(stored.ends), values = compute.unpack(stored.values), first = [];
      let place = 0;
      ends.forEach((end, i) => { first[i] = place; if (end > 0) place += 3 * data.curves.fractions.length; });
      curveIndex.set(name, { ends, values, first });
    }
    const { ends, values, first } = curveIndex.get(name), count = data.curves.fractions.length;
    const found = [];
    data.solvers.forEach((solver, s) => {
      const i = family * data.solvers.length + s;
      if (!state.shown[s] || !(ends[i] > 0)) return;
      const part = (which) => values.slice(first[i] + which * count, first[i] + (which + 1) * count);
      found.push({ solver, curve: { x: data.curves.fractions.map((one) => one * ends[i]), low: part(0), median: part(1), high: part(2) } });
    });
    return found;
  }

  function drawCurves() {
    const look = { unit: AXES[state.axis], title: VALUES[state.value], log: state.value !== "test_accuracy" && state.logY, logX: state.logX, percent: state.value === "test_accuracy" };
    at("log-y").disabled = look.percent;
    plots.curves(at("curve"), curvesOf(state.family, state.value, state.axis), look, "no run that ended well has this");
  }

  function drawImages() {
    if (!data.images.length) return;
    const look = { unit: AXES.seconds, logX: false };
    plots.curves(at("image-accuracy"), curvesOf(state.image, "test_accuracy", "seconds"), { ...look, title: "test accuracy", log: false, percent: true }, NOTHING);
    plots.curves(at("image-loss"), curvesOf(state.image, "loss", "seconds"), { ...look, title: "training loss", log: true }, NOTHING);
  }

  const strip = Object.fromEntries(["family", "solver", "epochs", "first", "codes", "steps"].map((name) => [name, compute.unpack(data.strips[name])]));
  function drawStrips() {
    const rows = [], seen = new Map();
    strip.family.forEach((family, i) => {
      if (family !== state.family || !state.shown[strip.solver[i]]) return;
      const order = seen.get(strip.solver[i]) ?? 0;
      seen.set(strip.solver[i], order + 1);
      const [from, to] = [strip.first[i], strip.first[i + 1]];
      if (order < 5) rows.push({ solver: data.solvers[strip.solver[i]], place: strip.solver[i], seed: data.strips.seed[i], order, epochs: strip.epochs[i], codes: strip.codes.slice(from, to), steps: strip.steps.slice(from, to) });
    });
    rows.sort((a, b) => a.place - b.place || a.order - b.order);
    const used = new Set(rows.flatMap((row) => [...row.codes]));
    at("outcomes").replaceChildren(...data.outcomes.map((outcome, code) => {
      const item = element("span"), box = element("i");
      box.style.background = outcome.colour;
      item.append(box, outcome.text);
      item.hidden = !used.has(code);
      return item;
    }));
    plots.strips(at("strip"), rows, data.outcomes, "no run here has a control, or there was no room for it in this page");
  }

  function drawTable() {
    const times = compute.timesTo(solving, familyOf, data.paperTaus, state.shown);
    const columns = [
      { title: "data set and network", text: true }, { title: "solver", text: true }, { title: "runs", text: true }, { title: "final loss" }, { title: "best loss" },
      ...data.tested.map((title) => ({ title })),
      ...data.paperTaus.map((tau) => ({ title: `s to ${tauText(data.taus[tau]).replace(" =", "\u00a0=")}` })),
      { title: "evaluations / epoch" }, { title: "acceptance" },
    ];
    const maximised = new Set(columns.flatMap((column, c) => (column.title === "test accuracy" ? [c] : [])));
    const compared = columns.map((_, c) => c).slice(3, -1);
    const value = (one) => (one === null ? NaN : one === "inf" ? Infinity : one);
    const rows = data.table.filter((row) => state.shown[row[1]]).map(([family, solver, runs, ...figures]) => {
      const costs = times.get(`${family}/${solver}`) ?? data.paperTaus.map(() => ({ median: NaN }));
      const numbers = figures.map(value), first = 5 + data.tested.length;
      const cells = [data.families[family], data.solvers[solver].name, runs, ...numbers.slice(0, -2), ...costs.map((one) => one.median), ...numbers.slice(-2)];
      const partly = costs.flatMap((one, i) => (one.median === Infinity && one.solved ? [[first + i, `${one.solved} of ${one.runs}`]] : []));
      return { family, colour: data.solvers[solver].colour, colourAt: 1, best: new Set(), cells, texts: new Map(partly) };
    });
    const least = new Map(), better = (c) => (maximised.has(c) ? Math.max : Math.min);
    for (const row of rows) for (const c of compared) {
      const key = `${row.family}/${c}`;
      if (Number.isFinite(row.cells[c])) least.set(key, better(c)(least.get(key) ?? row.cells[c], row.cells[c]));
    }
    for (const row of rows) for (const c of compared) {
      const best = least.get(`${row.family}/${c}`);
      if (best !== undefined && Number.isFinite(row.cells[c]) && tables.number(row.cells[c]) === tables.number(best)) row.best.add(c);
    }
    const wanted = state.filter.toLowerCase();
    const kept = rows.filter((row) => row.cells.slice(0, 2).join(" ").toLowerCase().includes(wanted));
    tables.sortable(at("table"), columns, kept, state.sort, drawTable);
  }

  function drawAll() {
    at("solvers").querySelectorAll("button[data-solver]").forEach((chip) => chip.setAttribute("aria-pressed", state.shown[chip.dataset.solver]));
    drawProfiles();
    drawBoxes();
    drawCurves();
    drawStrips();
    drawImages();
    drawTable();
  }

  function swatch(solver) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ width: 24, height: 8, "aria-hidden": true })) svg.setAttribute(key, value);
    const dashes = { solid: "none", dash: "7 3", dot: "2 3", dashdot: "7 3 2 3" };
    for (const [key, value] of Object.entries({ x1: 0, x2: 24, y1: 4, y2: 4, stroke: solver.colour, "stroke-width": 3, "stroke-dasharray": dashes[solver.dash] })) path.setAttribute(key, value);
    svg.append(path);
    return svg;
  }

  function chips() {
    data.solvers.forEach((solver, i) => {
      const chip = element("button", undefined, "chip");
      chip.type = "button";
      chip.dataset.solver = i;
      chip.append(swatch(solver), element("span", solver.name));
      chip.addEventListener("click", () => { state.shown[i] = !state.shown[i]; drawAll(); });
      at("solvers").append(chip);
    });
    const all = element("button", "show all", "chip plain");
    all.type = "button";
    all.addEventListener("click", () => { state.shown.fill(true); drawAll(); });
    at("solvers").append(all);
  }

  function choice(id, names, chosen) {
    names.forEach(([value, text]) => {
      const option = element("option", text);
      option.value = value;
      at(id).append(option);
    });
    at(id).addEventListener("change", () => chosen(at(id).value));
  }

  function controls() {
    choice("measure", data.measures.map((one) => [one, MEASURES[one]]), (value) => { state.measure = value; drawProfiles(); });
    choice("family", data.families.map((name, i) => [i, name]), (value) => { state.family = Number(value); drawCurves(); drawStrips(); });
    choice("image-family", data.images.map((i) => [i, data.families[i]]), (value) => { state.image = Number(value); drawImages(); });
    choice("value", data.curves.values.map((one) => [one, VALUES[one]]), (value) => { state.value = value; drawCurves(); });
    choice("axis", Object.entries(AXES), (value) => { state.axis = value; drawCurves(); });
    at("log-x").addEventListener("change", () => { state.logX = at("log-x").checked; drawCurves(); });
    at("log-y").addEventListener("change", () => { state.logY = at("log-y").checked; drawCurves(); });
    at("filter").addEventListener("input", () => { state.filter = at("filter").value; drawTable(); });
    at("tau").max = data.taus.length - 1;
    at("tau").value = state.tau;
    const moved = (tau) => { state.tau = tau; at("tau").value = tau; at("tau").setAttribute("aria-valuetext", tauText(data.taus[tau])); drawProfiles(); };
    at("tau").addEventListener("input", () => moved(Number(at("tau").value)));
    data.paperTaus.forEach((tau) => {
      const button = element("button", tauText(data.taus[tau]).slice(4), "chip");
      button.type = "button";
      button.addEventListener("click", () => moved(tau));
      at("paper-taus").append(button);
    });
  }

  function about() {
    at("subtitle").textContent = `${data.families.length} pairs of data set and network, ${data.problems.name.length} ${data.pairs ? "starts" : "problems"}, ${data.solvers.length} solvers; ${data.statuses}`;
    at("area-hint").textContent = `Of the area from 1 to ${data.area.limit} times the least cost, on a logarithmic scale. Bars: ${100 * data.area.level} % bootstrap intervals over problems.`;
    if (data.strips.left) at("strip-hint").append(` ${data.strips.left} runs were left out for the size of this page.`);
    at("warnings").replaceChildren(...data.notes.map((note) => element("p", note, "warning")));
    const rows = data.facts.map(([name, text]) => {
      const line = element("tr");
      line.append(element("td", name, "text"), element("td", text, "long"));
      return line;
    });
    at("facts").replaceChildren(...rows);
    at("failure-hint").textContent = data.failed ? `${data.failed} runs did not end well; they count as never solved.${data.failures.length < data.failed ? ` The first ${data.failures.length}:` : ""}` : "None: every run ended well.";
    at("failures").parentElement.hidden = !data.failed;
    const sort = { column: null, descending: false };
    const columns = [{ title: "problem", text: true }, { title: "solver", text: true }, { title: "status", text: true }, { title: "error", text: true, long: true }];
    const draw = () => tables.sortable(at("failures"), columns, data.failures.map((cells) => ({ cells })), sort, draw);
    draw();
    at("spec-hint").textContent = data.specTrouble;
    at("spec-details").hidden = !data.spec.length;
    at("spec").textContent = JSON.stringify(data.spec, null, 2);
    at("made").textContent = `Made ${data.made}.`;
    if (data.images.length) document.querySelectorAll("#images, nav a[href='#images']").forEach((one) => { one.hidden = false; });
  }

  for (const id of ["performance", "data-profiles"]) panels(id, "plot");
  panels("areas", "plot");
  panels("wins", "scroll");
  chips();
  controls();
  about();
  drawAll();
  document.documentElement.dataset.ready = "yes";
  return { data, state, solving, groups };
})();
