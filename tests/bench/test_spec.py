"""Specs are checked completely before anything runs, and their runs are named by everything that defines them."""

import pytest

from cmalight.bench import PRESETS, SpecError, plan, read_spec, reading
from cmalight.bench.problems import network_for
from tests.bench.common import USER_CODE, spec, user_code, write_toml
from tests.helpers import needs_muon


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, "Unknown key 'epoch'; did you mean 'epochs'?"),
        ({"solvers": [{"solver": "adam", "option": {}}]}, "Unknown key in solvers.0 'option'; did you mean 'options'?"),
        ({"solvers": [{"options": {}}]}, "the key solvers.0.solver is missing"),
        ({"solvers": []}, "give solvers, and seeds that differ"),
        ({"epochs": 0}, "epochs: Input should be greater than or equal to 1, got 0"),
        ({"epochs": None}, "give the runs a budget: seconds, epochs or batches"),
        ({"batches": 5}, "epochs and batches are both given"),
        ({"networks": []}, "give datasets and networks, or workloads"),
        ({"solvers": ["adam", "adam"]}, "'adam' is there twice"),
        (
            {"solvers": [{"solver": "sgd", "name": "a", "options": {"lr": 0.5}}, "sgd"], "grid": {"lr": [0.5]}},
            "'a lr=0.5' and 'sgd lr=0.5' are the same",
        ),
        ({"datasets": ["wine", {"dataset": "wine", "name": "w", "group": "g"}]}, "'wine' and 'w' are the same"),
        ({"solvers": [{"solver": "adam", "options": {"momentum": 0.9}}]}, "momentum"),
        ({"datasets": ["nowhere.csv:target=y"]}, "is not a file; check the path"),
        ({"networks": ["3by20"]}, "3by20"),
        ({"networks": ["resnet18"]}, "resnet18 takes pictures, and the data is a table"),
        ({"networks": [{"network": "1x5", "options": {"widht": 3}}]}, "widht"),
        ({"workloads": ["gpt"]}, "a workload is a function of yours, file.py:name; got 'gpt'"),
        ({"epochs": None, "seconds": 1e300}, "seconds: Input should be less than or equal to 31536000, got 1e+300"),
        ({"extends": "paper"}, "Unknown key 'extends'"),
        ({"grid": {"lr": []}}, "grid.lr"),
        (
            {"solvers": [{"solver": user_code("Good"), "options": {"momentun": 0.9}}]},
            "unexpected keyword argument 'momentun'; its arguments are (params, lr=0.1, momentum=0.0)",
        ),
        ({"solvers": [user_code("Waits")]}, "missing a required argument: 'at'"),
        ({"solvers": [user_code("Better")]}, "Unknown callable 'Better'"),
    ],
)
def test_what_cannot_work_is_refused_with_what_was_expected(changes, message):
    with pytest.raises(SpecError) as error:
        spec(**changes)
    assert message in str(error.value)


def test_all_mistakes_are_named_at_once():
    with pytest.raises(SpecError) as error:
        spec(datasets=["diabtes"], solvers=["adm"])
    assert "Unknown optimizer 'adm'; did you mean 'adam'?" in str(error.value)
    assert "did you mean 'diabetes'?" in str(error.value)


@pytest.mark.parametrize(("helper", "folders"), [("helper_of_two", "ab"), ("colorsys", "a")])
def test_helpers_with_one_module_name_are_refused(tmp_path, helper, folders):
    """Those of two files, and one that is also the name of an installed module."""
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{helper}.py").write_text("import torch\n\nsolver = torch.optim.SGD\n")
        code = f"import {helper}\n\n\ndef make(params):\n    return {helper}.solver(params)\n"
        (tmp_path / folder / "mine.py").write_text(code)
    with pytest.raises(SpecError, match=rf"{helper}\.py and .*{helper}\.py have one module name, {helper}; rename one"):
        spec(solvers=[{"solver": f"{tmp_path / folder / 'mine.py'}:make", "name": folder} for folder in folders])


def test_a_csv_file_is_a_data_set_in_one_line(tmp_path):
    (tmp_path / "houses.csv").write_text("size,price\n" + "".join(f"{i},{2 * i}\n" for i in range(20)))
    path = write_toml(tmp_path / "mine.toml", 'solvers = ["adam"]')
    path.write_text(path.read_text().replace("diabetes", "houses.csv:target=price"))
    (run,) = plan(read_spec(path))
    assert run.problem == "houses 1x5"
    path.write_text(path.read_text().replace("target=price", "target=prise"))
    with pytest.raises(SpecError, match=r"did you mean .price.\?"):
        read_spec(path)


def test_problems_seeds_and_solvers_are_combined_in_order():
    wine = {"dataset": "wine", "group": "mine"}
    chosen = spec(datasets=["mv", wine], seeds=2, workloads=[user_code("workload")], solvers=["adam", "sgd"])
    runs = [str(run) for run in plan(chosen)]
    assert runs[:3] == ["mv 1x5, seed 0, adam", "mv 1x5, seed 0, sgd", "mv 1x5, seed 1, adam"]
    assert runs[-1] == "workload, seed 1, sgd"
    assert len(runs) == 3 * 2 * 2
    assert [run.group for run in plan(chosen)][::4] == ["small", "mine", ""]


def test_a_grid_is_one_solver_for_each_combination():
    chosen = spec(grid={"weight_decay": [0.0, 1e-4]}, solvers=["sgd", {"solver": "adam", "grid": {"lr": [1e-3, 1e-2]}}])
    labels = [run.solver_label for run in plan(chosen)]
    assert labels[:2] == ["sgd weight_decay=0.0", "sgd weight_decay=0.0001"]
    assert labels[2:4] == ["adam weight_decay=0.0 lr=0.001", "adam weight_decay=0.0 lr=0.01"]
    assert plan(chosen)[-1].options == {"weight_decay": 1e-4, "lr": 1e-2}
    assert [run.grid for run in plan(chosen)] == [*["sgd"] * 2, *["adam"] * 4]


def test_a_circle_of_extends_is_refused(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "here" / "b.toml").write_text('extends = "../here/a.toml"')
    with pytest.raises(SpecError, match=r"a\.toml extends itself"):
        read_spec(tmp_path / "here" / "a.toml")


def test_a_spec_extends_another_and_adds_to_its_lists(tmp_path):
    write_toml(tmp_path / "base.toml", 'solvers = ["adam"]')
    (tmp_path / "mine.toml").write_text(
        f'extends = "base.toml"\nseeds = 3\nsolvers = ["...", "{USER_CODE.name}:Good"]\n'
    )
    (tmp_path / USER_CODE.name).write_text(USER_CODE.read_text())
    chosen = read_spec(tmp_path / "mine.toml", ["epochs = 5"])
    assert [one.name for one in chosen.solvers] == ["adam", "Good"]
    assert (chosen.name, chosen.seeds, chosen.epochs) == ("mine", (0, 1, 2), 5)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("dmo", "did you mean 'demo'?"),
        ("no.toml", "there is no file no.toml"),
        ("wrong.toml", "wrong.toml is not TOML"),
        ("bytes.toml", "bytes.toml is not TOML"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.toml").write_text("seeds = [")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(SpecError) as error:
        read_spec(source)
    assert message in str(error.value)


@pytest.mark.parametrize("name", [pytest.param(one, marks=needs_muon) if one == "today" else one for one in PRESETS])
def test_presets_are_valid_and_fit_on_a_screen(name):
    assert plan(read_spec(name))
    text = (reading._PRESET_FOLDER / f"{name}.toml").read_text()
    assert len(text.splitlines()) <= 24
    assert text.startswith("# ")


def test_the_papers_preset_has_its_tables():
    runs = plan(read_spec("paper"))
    assert len(runs) == 11 * 7 * 5 * 6
    assert {run.seconds for run in runs} == {300.0}
    assert runs[0].options == {"lr": 0.5, "theta": 0.75, "tau": 1e-2, "gamma": 1e-2, "delta": 0.9}


def test_the_preset_of_the_public_code_differs_as_the_code_does():
    runs = plan(read_spec("paper-code"))
    run, ig = runs[0], next(run for run in runs if run.solver == "ig")
    assert (run.order, run.epochs, run.seconds, run.network) == ("fixed", 250, 300.0, "1x50")
    assert (run.options["lr"], run.options["gamma"]) == (0.05, 1e-6)
    assert ig.options == {"lr": 0.05, "decay": 1e-3, "relative": True}
    assert {run.seed for run in runs} == {1, 10, 100, 1000, 10000}
    assert "coff" in {run.solver for run in runs}
    assert sum(p.numel() for p in network_for(run.network, (8,), 1, {}).parameters()) == 8 * 50 + 50 + 50 + 1  # biases


def test_a_key_depends_on_everything_that_defines_a_run_and_not_on_labels_and_the_wall_limit():
    run = plan(spec())[0]
    assert plan(spec()) == [run]
    labels = {"wall_limit", "dataset_label", "network_label", "solver_label", "group", "grid"}
    other = {
        "order": "fixed",
        "engine": "auto",
        "clock": "processor",
        "options": {"lr": 1},
        "network_options": {"w": 1},
    }
    for name, field in type(run).model_fields.items():
        value = other.get(name, "another" if field.annotation in (str, str | None) else 7)
        changed = run.model_copy(update={name: value})
        assert (changed.key == run.key) is (name in labels), name


def test_a_key_does_not_depend_on_where_own_files_lie(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("import torch\nmake = torch.optim.SGD\n")
    first, second = (plan(spec(solvers=[f"{tmp_path / folder / 'mine.py'}:make"])) for folder in ("a", "b"))
    assert first[0].key == second[0].key


def test_a_spec_in_python_has_paths_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(USER_CODE.parent)
    chosen = read_spec({"workloads": [f"{USER_CODE.name}:workload"], "solvers": ["adam"], "epochs": 1})
    assert plan(chosen)[0].workload == user_code("workload")
