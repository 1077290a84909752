"""Specs are checked completely before anything runs, and their runs are named by everything that defines them."""

import pytest

from cmalight.bench import PRESETS, SpecError, plan, read_spec, reading
from cmalight.bench.problems import network_for
from tests.bench.common import OWN, own, spec, write_toml
from tests.helpers import needs_muon


def keys(**changes):
    return [run.key for run in plan(spec(**changes))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, "Unknown key 'epoch'; did you mean 'epochs'?"),
        ({"solvers": [{"solver": "adam", "option": {}}]}, "Unknown key in solvers.0 'option'; did you mean 'options'?"),
        ({"solvers": [{"options": {}}]}, "the key solvers.0.solver is missing"),
        ({"solvers": []}, "solvers"),
        ({"epochs": 0}, "epochs: Input should be greater than or equal to 1, got 0"),
        ({"seeds": -1}, "seeds"),
        ({"order": "random"}, "order: Input should be 'reshuffle' or 'fixed', got 'random'"),
        ({"epochs": None}, "give the runs a budget: seconds, epochs or batches"),
        ({"batches": 5}, "epochs and batches are both given"),
        ({"networks": []}, "give datasets and networks, or workloads"),
        ({"solvers": ["adam", "adam"]}, "'adam' is twice in solvers"),
        (
            {"solvers": ["adam", {"solver": "adam", "name": "again"}]},
            "'adam' and 'again' in solvers are the same; leave one out",
        ),
        (
            {"solvers": [{"solver": "sgd", "name": "a", "options": {"lr": 0.5}}, "sgd"], "grid": {"lr": [0.5]}},
            "'a lr=0.5' and 'sgd lr=0.5' in solvers are the same",
        ),
        ({"datasets": ["wine", {"dataset": "wine", "name": "w", "group": "g"}]}, "'wine' and 'w' in datasets and"),
        ({"networks": ["1x5", {"network": "1x5", "name": "n"}]}, "'1x5' and 'n' in networks are the same"),
        ({"solvers": ["adm"]}, "Unknown optimizer 'adm'; did you mean 'adam'?"),
        ({"solvers": [{"solver": "adam", "options": {"momentum": 0.9}}]}, "momentum"),
        ({"solvers": [{"solver": "adam", "options": {"lr": -1}}]}, "adam"),
        ({"datasets": ["diabtes"]}, "did you mean 'diabetes'?"),
        ({"datasets": ["nowhere.csv:target=y"]}, "is not a file; check the path"),
        ({"networks": ["3by20"]}, "3by20"),
        ({"networks": ["resnet18"]}, "resnet18 takes pictures, and the data is a table"),
        ({"networks": [{"network": "1x5", "options": {"widht": 3}}]}, "widht"),
        ({"workloads": ["gpt"]}, "a workload is a function of yours, file.py:name; got 'gpt'"),
        ({"epochs": None, "seconds": float("inf")}, "seconds: Input should be a finite number, got inf"),
        ({"epochs": None, "seconds": float("nan")}, "seconds: Input should be"),
        ({"epochs": None, "seconds": 1e300}, "seconds: Input should be less than or equal to 31536000, got 1e+300"),
        ({"extends": "paper"}, '`extends` works in spec files only, and "..." in files that have it'),
        ({"solvers": ["...", "auto"]}, '`extends` works in spec files only, and "..." in files that have it'),
        ({"epochs": 10**30}, "epochs: Input should be less than or equal to"),
        ({"grid": {"lr": []}}, "grid.lr"),
    ],
)
def test_what_cannot_work_is_refused_with_what_was_expected(changes, message):
    with pytest.raises(SpecError) as error:
        spec(**changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"solvers": [{"solver": own("Good"), "options": {"momentun": 0.9}}]},
            "unexpected keyword argument 'momentun'; its arguments are (params, lr=0.1, momentum=0.0)",
        ),
        ({"solvers": [own("Waits")]}, "missing a required argument: 'at'"),
        ({"solvers": [own("Better")]}, "Unknown callable 'Better'"),
        ({"solvers": ["nowhere.py:Good"]}, "there is no file"),
        ({"networks": [{"network": own("Network"), "options": {"depth": 2}}]}, "unexpected keyword argument 'depth'"),
    ],
)
def test_wrong_options_of_own_code_are_found_before_running(changes, message):
    with pytest.raises(SpecError) as error:
        spec(**changes)
    assert message in str(error.value)


def test_a_list_with_a_wrong_entry_is_not_called_empty():
    with pytest.raises(SpecError) as error:
        spec(solvers=[{"solver": "adam", "grid": {"lr": 1}}])
    assert str(error.value) == "spec: solvers.0.grid.lr: Input should be a valid list, got 1"


def test_all_mistakes_are_named_at_once():
    with pytest.raises(SpecError) as error:
        spec(datasets=["diabtes"], solvers=["adm"])
    assert "diabtes" in str(error.value)
    assert "adm" in str(error.value)


def test_own_code_that_cannot_be_imported_says_why(tmp_path):
    (tmp_path / "mine.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(SpecError, match="nothing_of_that_name"):
        spec(solvers=[f"{tmp_path / 'mine.py'}:make"])


def solver_with_helper(folder, helper):
    folder.mkdir()
    (folder / f"{helper}.py").write_text("import torch\n\nsolver = torch.optim.SGD\n")
    (folder / "mine.py").write_text(f"import {helper}\n\n\ndef make(params):\n    return {helper}.solver(params)\n")
    return {"solver": f"{folder / 'mine.py'}:make", "name": folder.name}


def test_helpers_of_one_name_in_two_folders_are_refused(tmp_path):
    solvers = [solver_with_helper(tmp_path / name, "helper_of_two") for name in "ab"]
    spec(solvers=solvers[:1])
    with pytest.raises(SpecError) as error:
        spec(solvers=solvers)
    files = " and ".join(str(tmp_path / folder / "helper_of_two.py") for folder in "ba")
    assert str(error.value).endswith(f"{files} have one module name, helper_of_two; rename one")


def test_a_helper_with_the_name_of_an_installed_module_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"colorsys\.py and .*colorsys\.py have one module name, colorsys; rename one"):
        spec(solvers=[solver_with_helper(tmp_path / "a", "colorsys")])


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
    chosen = spec(datasets=["diabetes", "wine"], seeds=2, workloads=[own("workload")], solvers=["adam", "sgd"])
    runs = [str(run) for run in plan(chosen)]
    assert runs[:3] == ["diabetes 1x5, seed 0, adam", "diabetes 1x5, seed 0, sgd", "diabetes 1x5, seed 1, adam"]
    assert runs[-1] == "workload, seed 1, sgd"
    assert len(runs) == 3 * 2 * 2


def test_a_grid_is_one_solver_for_each_combination():
    chosen = spec(grid={"weight_decay": [0.0, 1e-4]}, solvers=["sgd", {"solver": "adam", "grid": {"lr": [1e-3, 1e-2]}}])
    labels = [run.solver_label for run in plan(chosen)]
    assert labels[:2] == ["sgd weight_decay=0.0", "sgd weight_decay=0.0001"]
    assert labels[2:4] == ["adam weight_decay=0.0 lr=0.001", "adam weight_decay=0.0 lr=0.01"]
    assert plan(chosen)[-1].options == {"weight_decay": 1e-4, "lr": 1e-2}


def test_the_solvers_of_one_grid_are_known_by_its_name():
    chosen = spec(solvers=["sgd", {"solver": "adam", "name": "tuned", "grid": {"lr": [1e-3, 1e-2]}}])
    assert [run.grid for run in plan(chosen)] == ["", "tuned", "tuned"]


def test_a_group_is_that_of_the_spec_or_of_the_catalogue():
    big = {"dataset": "wine", "group": "big"}
    work = {"workload": own("workload"), "group": "other"}
    chosen = spec(datasets=["mv", "skin-nonskin", "diabetes", big], workloads=[work])
    assert [run.group for run in plan(chosen)] == ["small", "big", "", "big", "other"]
    assert plan(chosen)[3].key == plan(spec(datasets=["wine"]))[0].key


@pytest.mark.parametrize("way", ["b.toml", "../here/b.toml", "./b.toml"])
def test_a_circle_of_extends_is_refused(tmp_path, way):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "a.toml").write_text(f'extends = "{way}"\nepochs = 1')
    (folder / "b.toml").write_text('extends = "../here/../here/a.toml"\nepochs = 1')
    with pytest.raises(SpecError, match=r"a\.toml extends itself"):
        read_spec(folder / "a.toml")


def test_a_spec_extends_another_and_adds_to_its_lists(tmp_path):
    write_toml(tmp_path / "base.toml", 'solvers = ["adam"]')
    (tmp_path / "mine.toml").write_text(f'extends = "base.toml"\nseeds = 3\nsolvers = ["...", "{OWN.name}:Good"]\n')
    (tmp_path / OWN.name).write_text(OWN.read_text())
    chosen = read_spec(tmp_path / "mine.toml", ["epochs = 5"])
    assert [one.name for one in chosen.solvers] == ["adam", "Good"]
    assert (chosen.name, chosen.seeds, chosen.epochs) == ("mine", (0, 1, 2), 5)


def test_a_spec_that_extends_itself_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(SpecError, match="extends itself"):
        read_spec(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("source", "message"), [("dmo", "did you mean 'demo'?"), ("no.toml", "there is no file no.toml")]
)
def test_a_source_that_is_not_there_is_named(source, message):
    with pytest.raises(SpecError) as error:
        read_spec(source)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["seeds = [", "\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path, text):
    (tmp_path / "wrong.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError, match=r"wrong\.toml is not TOML"):
        read_spec(tmp_path / "wrong.toml")


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


def test_an_unchanged_spec_has_the_same_keys_and_a_label_is_no_part_of_them():
    assert keys() == keys()
    assert keys() == keys(solvers=[{"solver": "adam", "name": "another label"}])
    assert keys() == keys(wall_limit=5.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"datasets": ["wine"]},
        {"networks": ["1x6"]},
        {"networks": [{"network": "1x5", "options": {"activation": "tanh"}}]},
        {"solvers": ["sgd"]},
        {"solvers": [{"solver": "adam", "options": {"lr": 0.1}}]},
        {"seeds": [1]},
        {"epochs": 3},
        {"seconds": 1.0},
        {"batch_size": 64},
        {"order": "fixed"},
        {"engine": "auto"},
        {"clock": "processor"},
        {"threads": 2},
        {"split_seed": 1},
        {"test_share": 0.5},
        {"target_loss": 0.1},
    ],
)
def test_whatever_changes_a_run_changes_its_key(changes):
    assert keys(**changes) != keys()


def test_a_key_does_not_depend_on_where_own_files_lie(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("import torch\nmake = torch.optim.SGD\n")
    first, second = (keys(solvers=[f"{tmp_path / folder / 'mine.py'}:make"]) for folder in ("a", "b"))
    assert first == second


def test_changed_data_of_ones_own_changes_the_key(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("x,y\n1,2\n3,4\n5,6\n7,8\n")
    before = keys(datasets=[f"{file}:target=y"])
    file.write_text("x,y\n1,2\n3,4\n5,6\n7,9\n")
    assert keys(datasets=[f"{file}:target=y"]) != before


def test_a_spec_in_python_has_paths_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(OWN.parent)
    chosen = read_spec({"workloads": [f"{OWN.name}:workload"], "solvers": ["adam"], "epochs": 1})
    assert plan(chosen)[0].workload == own("workload")
