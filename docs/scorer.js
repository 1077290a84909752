// How the search orders what it found: Sphinx's own scores, and among equals first what a user does, last what was
// done to the package. Equal scores are ordered by title, which alone would put Architecture and Changelog first.
const WEIGHTS = [
  [/^contribute\/changelog$/, -9],
  [/^(contribute\/(architecture|security)|results\/speed)/, -8],
  [/^contribute\//, -1],
  [/^(start|guides)\//, 3],
  [/^(tutorials|understand)\//, 1],
];

var Scorer = {
  score: ([docname, , , , score]) => score + (WEIGHTS.find(([pages]) => pages.test(docname)) ?? [null, 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
