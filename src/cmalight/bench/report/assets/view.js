// What the page shows: the choices of the reader, which are also in the address, and the runs and costs they lead to.
"use strict";
const view = (() => {
  const { data, points } = compute;
  const UNITS = {
    seconds: "training seconds",
    epoch: "epochs",
    epochs: "epochs",
    work: "work (passes over the data)",
    evaluations: "evaluations (passes over the data)",
  };
  const LOSSES = { train_loss: "training loss", validation_loss: "validation loss" };
  const VALUES = { validation_loss: "Validation loss", accuracy: "Validation accuracy", lr: "Learning rate" };
  const measured = (names) => Object.keys(names).filter((name) => points[name]);
  // The choices of each control; the first is the usual one, but for τ.
  const choices = {
    problem: data.problems,
    x: ["seconds", "epoch", "work", "evaluations"],
    value: measured(VALUES),
    measure: Object.keys(data.words),
    loss: measured(LOSSES),
    per: ["problem", "seed"],
    tau: data.taus.map(String),
    seeds: ["0", "1"],
    gap: ["0", "1"],
    logx: ["0", "1"],
  };
  const usual = Object.fromEntries(Object.entries(choices).map(([name, all]) => [name, all[0]]));
  usual.tau = "0.01";
  const chosen = { ...usual }, hidden = new Set();

  function read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const name of Object.keys(usual)) {
      chosen[name] = choices[name].includes(asked.get(name)) ? asked.get(name) : usual[name];
    }
    hidden.clear();
    for (const { name } of data.solvers) if (asked.getAll("hide").includes(name)) hidden.add(name);
  }

  function write() {
    const said = new URLSearchParams();
    for (const name of Object.keys(usual)) if (chosen[name] !== usual[name]) said.set(name, chosen[name]);
    for (const name of hidden) said.append("hide", name);
    history.replaceState(null, "", said.size ? `#${said}` : location.pathname + location.search);
  }

  const isShown = (solver) => !hidden.has(data.solvers[solver].name);
  const shown = () => data.solvers.map((_, number) => number).filter(isShown);
  const runs = (problem) => data.runs.filter((run) => run.problem === problem && isShown(run.solver));

  function costs(more) {
    const { measure, loss, per } = chosen;
    return compute.costs({ shown: shown(), tau: Number(chosen.tau), measure, loss, per, ...more });
  }

  return { UNITS, LOSSES, VALUES, choices, chosen, hidden, read, write, shown, runs, costs };
})();
