"""The pages of the results say what the published runs say, and their figures are drawn from them."""

import importlib.util
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cmalight.bench.spec.spec_files import PRESETS
from torch import nn

from cmalight import bench
from tests.bench.common import ENVIRONMENT
from tests.bench.synthetic import run, write

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results" / "paper"
ARCHIVE = FOLDER / "study.tar.xz"
LATEX = next(filter(None, map(shutil.which, ("pdflatex", "xelatex", "lualatex"))), None)


def script(path):
    """A script as a module, with its neighbours importable, as when it is run."""
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


@pytest.fixture(scope="module")
def make():
    return script(FOLDER / "make.py")


@pytest.fixture(scope="module")
def results():
    return bench.load(ARCHIVE)


def test_the_published_runs_are_one_file_below_three_megabytes():
    assert ARCHIVE.stat().st_size < 3e6


def test_every_number_of_the_pages_is_that_of_the_published_runs(make, results):
    made = make.pages(results)
    assert set(made) == {"paper.md", "today.md"}
    for name, text in made.items():
        assert (FOLDER.parent / name).read_text(encoding="utf-8") == text
        assert "<<" not in text


def test_the_readmes_picture_shows_the_figures_of_the_pages():
    why = script(ROOT / "docs" / "pictures" / "why.py")
    same = (ROOT / "docs" / "pictures" / "why.svg").read_text(encoding="utf-8") == why.draw()
    assert same, "run python docs/pictures/why.py, and read its caption in the README"


def test_the_readme_names_the_worst_case_of_every_group_beside_its_mean():
    why = script(ROOT / "docs" / "pictures" / "why.py")
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    *tables, few, models = (ours for _, ours, _ in why.ratios())
    *schedules, schedule, _ = (theirs for *_, theirs in why.ratios())
    assert "{:.2f}, {:.2f} and {:.2f} times".format(*(ours.mean for ours in tables)) in said
    assert "(worst {:g}, {:g} and {:g};".format(*(ours.worst for ours in tables)) in said
    assert "schedule: {:.2f}, {:.2f} and {:.2f})".format(*(theirs.mean for theirs in schedules)) in said
    theirs = f"(the best single schedule: {schedule.mean:.2f}, worst {schedule.worst:g}"
    assert f"{few.mean:.2f}, worst {few.worst:g} {theirs}" in said
    assert f"{models.mean:.2f} times that of the best of four AdamW cosines" in said
    assert "τ = 0.01" in said
    assert "tuned on four of the five small data sets" in said


@pytest.mark.slow
def test_every_figure_is_drawn_from_the_published_runs(make, results):
    drawn = make.drawn(make.claims.parts(results))
    assert {path.name for path in FOLDER.glob("*.svg")} == set(drawn)
    different = [name for name, text in drawn.items() if (FOLDER / name).read_text(encoding="utf-8") != text]
    assert different == []


def test_verdicts_follow_the_intervals_of_the_figures(make):
    claims = make.claims
    won, open_, lost = claims.Figure(0.2, 0.1, 0.3), claims.Figure(0.2, -0.1, 0.5), claims.Figure(-0.2, -0.3, -0.1)
    assert claims.verdict([won, won]) == "holds"
    assert claims.verdict([won, lost]) == claims.verdict([won, open_]) == "holds in part"
    assert claims.verdict([won, open_, lost]) == "not seen"
    assert claims.verdict([won, open_, open_]) == claims.verdict([open_]) == claims.verdict([]) == "not decided"


def test_an_interval_of_few_values_is_their_range(make):
    assert make.claims.mean([0.0, 1.0, 5.0]) == make.claims.Figure(2.0, 0.0, 5.0)
    many = make.claims.mean([0.0, 1.0] * 20)
    assert 0.0 < many.low < many.value == 0.5 < many.high < 1.0


def test_a_solver_that_is_always_ahead_is_said_to_be_so(make, tmp_path):
    """Made-up runs in which CMALight is ten times as quick as all others, with fewer evaluations."""
    runs = []
    for dataset in ("bikes", "covtype"):
        for seed in range(2):
            for solver in make.claims.PAPER:
                quick = solver == "cmalight"
                more = {}
                if solver.startswith("cma"):
                    more = {"outcomes": ["accepted"] * 2, "evaluations": [1, 1] if quick else [1, 4]}
                seconds = [0.1, 0.2] if quick else [1.0, 2.0]
                runs.append(
                    run(solver, [0.5, 0.0], dataset=dataset, network="paper:1x50", seed=seed, seconds=seconds, **more)
                )
    found = list(make.claims.claims(make.claims.parts(bench.load(write(tmp_path / "results", runs)))))
    judged = {claim.said.split(":")[0]: (claim.by_start, claim.by_pair) for claim in found}
    assert judged["Conclusion"] == ("holds", "holds")
    assert judged["Low precision (τ = 0.1), big data sets"] == ("holds", "holds")
    assert "0.50 [0.50, 0.50] against 2.00 [2.00, 2.00]" in found[0].seen
    (low,) = [claim for claim in found if claim.said.startswith("Low precision (")]
    assert "Adadelta +0.50 [+0.50, +0.50]" in low.seen  # ten times slower is half of the way to a hundred times


@pytest.mark.parametrize(
    ("datasets", "network", "rows"),
    [
        (["mv", "bikes"], "paper:3x20", 8),  # what is said of the control, and of small data sets
        (["protein", "skin-nonskin"], "paper:3x20", 8),
        (["ailerons"], "paper:12x300", 1),
        (["cifar10:rows=2560"], "resnet18, width 8", 2),
    ],
    ids=["small", "big", "large", "images"],
)
def test_other_results_are_judged_by_themselves(make, results, datasets, network, rows):
    """A part of the published runs, as somebody else's: no row is of runs that are not there, no text of the page's."""
    runs = results.runs[results.runs["dataset"].isin(datasets) & (results.runs["network"] == network)]
    part = bench.Results(runs.reset_index(drop=True), results.epochs[results.epochs["key"].isin(runs["key"])])
    table = make.claims.table(make.claims.parts(part))
    assert len(table.splitlines()) == 2 + rows
    assert not re.search(r"Run:|not tried|by definition|descent", table)


def test_an_area_that_stays_within_a_tenth_is_unchanged(make):
    profiles, Figure = sys.modules["claims.profiles"], make.claims.Figure
    judged = {"small": (-0.02, 0.09), "large": (-0.4, -0.2), "open": (-0.3, 0.1)}
    found = {name: profiles._is_same(Figure(0.0, *ends)) for name, ends in judged.items()}
    verdicts = {name: make.claims.verdict([one]) for name, one in found.items()}
    assert verdicts == {"small": "holds", "large": "not seen", "open": "not decided"}


def test_acceptance_is_given_both_ways(make, tmp_path):
    """Of four epochs CMALight accepts one and keeps the end of another; CMA accepts three."""
    ends = {
        "cmalight": ["accepted", "small_direction_kept", "search_failed_rejected", "search_failed_rejected"],
        "cma": ["accepted", "accepted", "accepted", "search_failed_rejected"],
    }
    runs = [
        run(solver, [0.5, 0.4, 0.3, 0.2], dataset="bikes", network="paper:1x50", outcomes=outcomes, evaluations=[1] * 4)
        for solver, outcomes in ends.items()
    ]
    for one in runs:
        one["epochs"]["alpha"] = [0.0 if "rejected" in outcome else 0.5 for outcome in one["epochs"]["outcome"]]
    results = bench.load(write(tmp_path / "results", runs))
    runs = sys.modules["claims.control"].controlled(results).set_index("solver")
    assert runs["accepted"].to_dict() == {"cmalight": 0.25, "cma": 0.75}
    assert runs["stands"].to_dict() == {"cmalight": 0.5, "cma": 0.75}


def test_runs_that_end_no_better_than_a_constant_are_counted(make, tmp_path):
    """Whose loss on Bikes, the variance of the target, is 0.0346."""
    ends = {"cma": [0.5, 0.0346], "cmalight": [0.5, 0.001], "ig": [0.5, 0.07]}
    runs = [run(solver, losses, dataset="bikes", network="paper:1x50") for solver, losses in ends.items()]
    constant = make.claims.constant
    results = bench.load(write(tmp_path / "results", runs))
    assert constant.shares(results) == "CMALight 0 %, CMA 100 %, IG 100 %"
    assert "| CMA | 100 % | 100 % | 0 % |" in constant.table(results)
    assert "| IG | 100 % | 100 % | 100 % |" in constant.table(results)  # twice the variance


@pytest.mark.parametrize(
    ("end", "datasets", "judged"),
    [
        (0.06, ["bikes", "ailerons", "mv"], "not decided"),
        (0.001, ["bikes", "ailerons"], "not decided"),
        (0.001, ["bikes", "ailerons", "mv"], "holds"),
    ],
    ids=["at the constant", "below it on two", "below it on three"],
)
def test_more_variables_are_judged_where_somebody_learns_something(make, tmp_path, end, datasets, judged):
    """CMALight is level with all others on the small network, and ten times as quick on the large one."""
    runs = []
    for network, quick in (("paper:1x50", 1.0), ("paper:12x300", 0.1)):
        for solver, dataset in itertools.product(make.claims.PAPER, datasets):
            seconds = [0.1 * quick, 1.0 * quick] if solver == "cmalight" else [0.1, 1.0]
            last = end if network == "paper:12x300" else 0.001
            runs.append(run(solver, [0.5, last], dataset=dataset, network=network, seconds=seconds, engine="compiled"))
    found = make.claims.parts(bench.load(write(tmp_path / "results", runs)))
    (claim,) = make.claims.more_variables(found)
    assert claim.by_start == judged
    assert "CMA +0.50 [+0.50, +0.50]" in claim.seen


def test_large_networks_are_shown_one_by_one_and_runs_without_an_epoch_are_named(make, tmp_path):
    """All solvers ran on [12x300]; on [30x500] CMA ended no epoch, and Adadelta did not run."""
    runs = []
    for network in ("paper:1x50", "paper:12x300", "paper:30x500"):
        for solver in make.claims.PAPER:
            if (network, solver) == ("paper:30x500", "adadelta"):
                continue
            losses = [] if (network, solver) == ("paper:30x500", "cma") else [0.5, 0.4]
            runs.append(run(solver, losses, dataset="bikes", network=network, start=0.6, engine="compiled"))
    found = make.claims.parts(bench.load(write(tmp_path / "results", runs)))
    (claim,) = make.claims.more_variables(found)
    assert "[12x300] on bikes: CMA +0.00 [+0.00, +0.00], IG" in claim.seen
    assert "[30x500]: there is no problem that all solvers ran on." in claim.seen
    assert "Runs that ended no epoch: CMA on [30x500], bikes." in claim.seen
    (scale,) = (one for one in make.claims.claims(found) if one.said.startswith("Conclusion: an example"))
    assert "[30x500]: 2 in 10 s (bikes); 0 of 1 runs of CMALight end better than a constant, and 0 of 4" in scale.seen


def test_rounded_results_are_judged_as_the_exact_ones(make, tmp_path):
    """Losses in which f̃ and f differ in the ninth digit, where rounding would make them one."""
    runs = []
    for dataset in ("bikes", "covtype"):
        for seed in range(2):
            for place, solver in enumerate(make.claims.PAPER):
                losses = [0.5, 0.4 - place / 30, 0.3 - place / 70, 0.123456789 + place / 7e5]
                more = {"evaluations": [1, 2, 3, 4], "outcomes": ["accepted"] * 4} if solver.startswith("cma") else {}
                one = run(
                    solver,
                    losses,
                    dataset=dataset,
                    network="paper:1x50",
                    seed=seed,
                    seconds=[(n + 1 + place / 3) / 7 for n in range(4)],
                    **more,
                )
                one["epochs"]["f_tilde"] = [loss + 1e-10 for loss in losses]
                one["epochs"]["alpha"] = one["epochs"]["lr"]
                runs.append(one)
    exact = write(tmp_path / "exact", runs)
    bench.merge([exact], tmp_path / "rounded.tar.xz", rounded=True)
    tables = [make.claims.table(make.claims.parts(bench.load(one))) for one in (exact, tmp_path / "rounded.tar.xz")]
    assert "upper approximation" in tables[0]
    assert tables[0] == tables[1]


def test_the_variance_of_a_data_set_that_is_at_hand_is_computed():
    targets = script(FOLDER / "targets.py")
    found = targets.targets(["bikes", "diabetes", "no such data set"])
    assert list(found) == ["bikes", "diabetes"]
    assert found["diabetes"].samples == 331
    assert found["diabetes"].variance == pytest.approx(0.05875, abs=1e-5)


def test_samples_are_judged_one_by_one():
    """f = ((w − 1)² + (w + 1)² + (w + 2)²)/3 at w = 0: its minimum is at −2/3, and the first sample leads away."""
    descent = script(FOLDER / "descent.py")
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    x, y = torch.ones(3, 1), torch.tensor([[1.0], [-1.0], [-2.0]])
    assert descent.descent(model, x, y) == pytest.approx(2 / 3)


def test_an_epoch_that_descends_is_worse_in_its_first_half():
    descent = script(FOLDER / "descent.py")
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    x, y = torch.ones(8 * descent.BATCH, 1), torch.zeros(8 * descent.BATCH, 1)
    assert descent.worse(model, x, y, lr=0.1, seed=0)
    assert not descent.worse(model, x, y, lr=1.1, seed=0)  # which ascends


def test_the_points_of_the_samples_have_moved():
    """As many epochs were kept as the row says, so that no two points of a run are one."""
    points = json.loads((FOLDER / "descent.json").read_text(encoding="utf-8"))
    places = {(one["dataset"], one["network"]): [] for one in points}
    for one in points:
        assert one["epochs"] >= one["kept"]
        places[one["dataset"], one["network"]].append(one["loss"])
    assert all(len(set(losses)) == len(losses) for losses in places.values())


def test_reproduce_plans_everything_start_by_start():
    reproduce = script(ROOT / "benchmarks" / "reproduce.py")
    specs = list(reproduce.parts(quick=False))
    named = {one for one in PRESETS if one.startswith("reproduced-") and one != reproduce.QUICK} | {"cifar10-small"}
    assert {spec.name for spec in specs[: len(named)]} == named
    assert {spec.seeds for spec in specs[: len(named)]} == {(0,)}
    assert {spec.name: spec.seeds for spec in specs} == {name: bench.read_spec(name).seeds for name in named}
    assert [len(spec.seeds) for spec in specs] == sorted(len(spec.seeds) for spec in specs)
    (quick,) = reproduce.parts(quick=True)
    assert quick.name == "reproduced-quick"


def test_reproduce_counts_what_is_left(tmp_path):
    reproduce = script(ROOT / "benchmarks" / "reproduce.py")
    (quick,) = reproduce.parts(quick=True)
    runs = bench.plan(quick)
    whole = reproduce.seconds_left([quick, quick], tmp_path, workers=2)
    assert whole == pytest.approx(reproduce.MEASURING * len(runs) * quick.time_limit / 2)
    done = tmp_path / quick.name / "runs"
    done.mkdir(parents=True)
    (done / f"{runs[0].key}.json").touch()
    left = reproduce.seconds_left([quick], tmp_path, workers=2)
    assert whole - left == pytest.approx(reproduce.MEASURING * quick.time_limit / 2)


def test_reproduce_measures_single_samples_once(monkeypatch, tmp_path):
    reproduce = script(ROOT / "benchmarks" / "reproduce.py")
    asked = []

    def measured(command, check):
        asked.append(command[1:])
        (tmp_path / "out" / "descent.json").write_text("[]")

    monkeypatch.setattr(reproduce.subprocess, "run", measured)
    for _ in range(2):
        file = reproduce.descent(tmp_path / "out", quick=True)
    generated = "teacher:rows=60000,features=20"
    fewer = ["--datasets", "diabetes", generated, "--networks", "1x50", "3x20"]
    assert asked == [[str(FOLDER / "descent.py"), "--out", str(file), *fewer]]


@pytest.mark.slow
def test_reproduce_goes_on_where_ctrl_c_stopped_it_and_says_how_long_is_left(tmp_path):
    """The script itself; it is stopped twice, after the first and after another result."""
    left, results = [], []
    for _ in range(2):
        command = [sys.executable, "-u", str(ROOT / "benchmarks" / "reproduce.py"), "--quick", "--out", str(tmp_path)]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with process:
            begun = process.stdout.readline()
            of_a_run = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=600)
        assert re.fullmatch(r"part 1 of 1: reproduced-quick; about \d+:\d\d left in all\n", begun)
        assert re.match(r"\d+ of 80, .*\d left: ", of_a_run)
        assert stderr == "interrupted: what is finished is kept, and the same command goes on from there\n"
        assert process.returncode == 130
        left.append(begun)
        results.append({path: path.read_bytes() for path in tmp_path.glob("*/runs/*.json")})
    assert left[1] < left[0]
    assert results[0].items() < results[1].items()  # none of them was run again


@pytest.mark.slow
@pytest.mark.skipif(
    LATEX is None, reason="no TeX is installed (pdflatex, xelatex or lualatex): tables are not compiled"
)
def test_the_tables_and_figures_of_the_published_runs_compile(tmp_path):
    bench.write_report(ARCHIVE, tmp_path, only=("1x50", "3x20", "5x50", "10x50"))
    tables = sorted((tmp_path / "tables").glob("*.tex"))
    figures = sorted((tmp_path / "figures").glob("*.pdf"))
    assert tables
    assert figures
    lines = [r"\documentclass{article}", r"\usepackage{booktabs,graphicx,longtable}", r"\usepackage[T1]{fontenc}"]
    lines += [r"\begin{document}"]
    lines += [rf"\input{{tables/{path.name}}}\clearpage" for path in tables]
    lines += [rf"\includegraphics[width=\linewidth]{{figures/{path.name}}}\clearpage" for path in figures]
    (tmp_path / "paper.tex").write_text("\n".join([*lines, r"\end{document}"]), encoding="utf-8")
    done = subprocess.run(
        [LATEX, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
