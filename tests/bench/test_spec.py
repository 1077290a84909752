"""Specs are checked before anything runs, and define their runs completely."""

import dataclasses

import pytest

from cmalight.bench import PRESETS, Narrowing, Network, Solver, Spec, SpecError, narrowed, plan, read_spec
from cmalight.bench.running.one_run import Job, train
from cmalight.datasets import DataError, dataset_info
from cmalight.models.paper_networks import PAPER_NETWORKS
from tests.bench.common import own_data, spec, toml
from tests.datasets.server import serving


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver": ["adam"]}, "Unknown key 'solver'; did you mean 'solvers'?"),
        ({"time_limits": 3}, "did you mean 'time_limit'?"),
        ({"solvers": [{"solver": "adam", "optoins": {}}]}, "did you mean 'options'?"),
        ({"networks": [{"size": "1x5"}]}, "Unknown key of a network 'size'"),
        ({"networks": [{"name": "small"}]}, "needs the key 'network'"),
        ({"datasets": "diabetes"}, "datasets must be a list"),
        ({"datasets": [3]}, "must be a list of names"),
        ({"solvers": []}, "solvers must be a list of one or more"),
        ({"solvers": ["adam", "adam"]}, "'adam' is twice in solvers"),
        ({"seeds": [1, 1]}, "1 is twice in seeds"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [-1]}, "Invalid seeds value"),
        ({"seeds": 200_000}, "Invalid seeds value: 200000; expected how many, from 1 to 100000, or a list"),
        ({"time_limit": 5, "wall_limit": 5}, "Invalid wall_limit value: 5; expected more than the time_limit, 5"),
        ({"max_epochs": None}, "give the runs an end"),
        ({"time_limit": 0}, "Invalid time_limit value: 0.0; expected a positive number"),
        ({"time_limit": float("nan")}, "Invalid time_limit value: nan"),
        ({"batch_size": 1.5}, "Invalid batch_size value: 1.5"),
        ({"clock": "sun"}, "expected one of wall, processor"),
        ({"order": "sorted"}, "expected one of reshuffle, fixed"),
        ({"threads": True}, "Invalid threads value"),
        ({"test_share": 1}, "Invalid test_share value"),
        ({"memory_limit": -1}, "Invalid memory_limit value"),
        ({"solvers": [{"solver": "adam", "full_batch": "yes"}]}, "Invalid full_batch value"),
        ({"solvers": [{"solver": "adam", "options": {"lr": [{}]}}]}, "Invalid option lr of adam"),
        ({"solvers": [{"solver": "adam", "options": 3}]}, "Invalid options of adam"),
    ],
)
def test_a_wrong_spec_is_refused_with_what_was_expected(changes, message):
    with pytest.raises(SpecError) as refused:
        spec(**changes)
    assert str(refused.value).startswith("test: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trust": ["diabets"]}, "Unknown data set to trust 'diabets'; did you mean 'diabetes'?"),
        ({"solvers": ["adamm"]}, "Unknown solver 'adamm'; did you mean 'adam'?"),
        ({"solvers": [{"solver": "adam", "options": {"lrr": 1.0}}]}, "did you mean 'lr'?"),
        ({"solvers": [{"solver": "adam", "options": {"lr": -1.0}}]}, "Invalid options of solver adam"),
        ({"solvers": [{"solver": "sgd-momentum", "options": {"lrr": 1.0}}]}, "Invalid options of solver sgd-momentum"),
        ({"solvers": ["no_such_module:make"]}, "could not be imported"),
        ({"solvers": ["tests.bench.not_importable:make"]}, "ZeroDivisionError: on import"),
        ({"solvers": ["math:no_such"]}, "could not be imported"),
        ({"solvers": ["math:pi"]}, "cannot be called"),
        ({"solvers": [":make"]}, "expected module:callable"),
        ({"networks": ["1by5"]}, "expected LAYERSxNEURONS"),
        ({"networks": ["paper:2x2"]}, "expected one of 1x50"),
        ({"networks": ["resnet18"]}, "is for images"),
        ({"networks": [{"network": "1x5", "options": {"activation": "step"}}]}, "activation"),
        ({"datasets": ["digits"], "networks": ["paper:1x50"]}, "is for regression"),
        ({"datasets": ["diabetis"]}, "did you mean 'diabetes'?"),
        ({"solvers": ["adam", {"solver": "adam", "name": "other"}], "datasets": ["diabetes", "Diabetes"]}, "the same"),
    ],
)
def test_what_cannot_be_made_is_found_before_anything_runs(changes, message):
    with pytest.raises((SpecError, DataError, ValueError), match=r".") as refused:
        plan(spec(**changes))
    assert message in str(refused.value)


def test_a_file_says_the_same_as_its_tables(tmp_path):
    changes = {"seeds": [3, 5], "time_limit": 2, "solvers": ["adam", "cmalight"]}
    read = read_spec(toml(tmp_path / "mine.toml", **changes, name="mine"))
    assert read == spec(**changes, name="mine")


@pytest.mark.parametrize("text", ["datasets = [", "\xff", "datasets = 3"])
def test_a_file_that_is_no_spec_is_named(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError, match=r"mine\.toml"):
        read_spec(path)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'paper-small'"):
        read_spec("paper-smal")
    with pytest.raises(SpecError, match="there is no file"):
        read_spec("nowhere.toml")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_planned(name):
    preset = read_spec(name)
    assert preset.name == name
    assert len(plan(preset)) == len(preset.datasets) * len(preset.networks) * len(preset.seeds) * len(preset.solvers)


def test_the_papers_presets_are_its_tables():
    small, large, images = (read_spec(name) for name in ("paper-small", "paper-large", "cifar10-resnet18"))
    control = {"lr": 0.5, "theta": 0.75, "tau": 1e-2, "gamma": 1e-2, "delta": 0.9}
    networks = [f"paper:{name}" for name in PAPER_NETWORKS]
    for preset in (small, large):
        assert [dataset_info(name).group for name in preset.datasets] == ["small"] * 5 + ["big"] * 6
        assert (preset.time_limit, preset.batch_size, len(preset.seeds), preset.max_epochs) == (300, 128, 5, None)
        assert [s.solver for s in preset.solvers] == ["cmalight", "cma", "ig", "adam", "adagrad", "adadelta"]
        options = {s.solver: s.options for s in preset.solvers}
        assert options["cmalight"] == options["cma"] == control
        assert options["ig"] == {"lr": 0.5, "decay": 0.5}
        assert options["adam"] == options["adagrad"] == options["adadelta"] == {}
    assert [n.network for n in (*small.networks, *large.networks)] == networks
    assert (len(small.networks), len(large.networks)) == (4, 3)
    assert (images.time_limit, len(images.seeds), images.measure_test) == (5000, 5, True)
    assert [s.solver for s in images.solvers] == ["cmalight", "adam", "adagrad", "adadelta"]


def keys(changed):
    return {run.key for run in plan(changed)}


def test_an_unchanged_spec_has_the_same_keys():
    assert keys(spec()) == keys(spec()) == keys(spec(name="another name of the whole"))


@pytest.mark.parametrize(
    "changes",
    [
        {"datasets": ["wine"]},
        {"networks": ["1x6"]},
        {"networks": [{"network": "1x5", "options": {"activation": "tanh"}}]},
        {"solvers": ["sgd"]},
        {"solvers": [{"solver": "adam", "options": {"lr": 0.1}}]},
        {"solvers": [{"solver": "adam", "full_batch": True}]},
        {"seeds": [1]},
        {"time_limit": 3.0},
        {"max_epochs": 3},
        {"batch_size": 64},
        {"order": "fixed"},
        {"measure_every": 2},
        {"measure_test": True},
        {"threads": 2},
        {"split_seed": 1},
        {"test_share": 0.5},
        {"memory_limit": 100},
        {"wall_limit": 100},
    ],
)
def test_whatever_changes_a_run_changes_its_key(changes):
    assert not keys(spec()) & keys(spec(**changes))


def test_changed_code_of_ones_own_changes_the_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    own = spec(solvers=["changing_solver:make", "adam"])
    found = []
    for lr in (0.1, 0.25):
        (tmp_path / "changing_solver.py").write_text(f"import torch\ndef make(p): return torch.optim.SGD(p, lr={lr})\n")
        found.append([run.key for run in plan(own)])
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


def test_code_that_is_not_what_was_planned_is_not_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planned_solver.py").write_text("import torch\ndef make(p): return torch.optim.SGD(p, lr=0.1)\n")
    (run,) = plan(spec(solvers=["planned_solver:make"]))
    (tmp_path / "planned_solver.py").write_text("import torch\ndef make(p): return torch.optim.SGD(p, lr=0.3)\n")
    result = train(Job(run), print)
    assert result["status"] == "not_importable"
    assert "is not that which the runs were planned with" in result["error"]["message"]


def test_changed_data_of_ones_own_changes_the_key(tmp_path):
    mine = spec(datasets=[own_data(tmp_path)])
    before = keys(mine)
    assert keys(mine) == before
    own_data(tmp_path, lambda i: i**2)
    assert not keys(mine) & before


def test_two_data_sets_of_one_name_are_refused(tmp_path):
    both = spec(datasets=[own_data(tmp_path / "a"), own_data(tmp_path / "b")])
    with pytest.raises(SpecError, match=r"b/mine\.toml are the same data set, or two of the same name, 'mine'"):
        plan(both)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A description whose file is at an address, and nowhere here."""
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CMALIGHT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    files = {}
    with serving(files) as server:
        source = own_data(tmp_path, urls=[server.url("mine.csv")])
        files["mine.csv"] = (tmp_path / "mine.csv").read_bytes()
        (tmp_path / "mine.csv").unlink()
        yield source


def test_data_to_be_downloaded_is_there_before_the_keys_are_made(published):
    mine = spec(datasets=[published])
    first = {run.key for run in plan(mine, fetch=True)}
    assert {run.key for run in plan(mine, fetch=True)} == keys(mine) == first


def test_a_key_goes_by_the_sha256_of_the_description_where_it_has_one(tmp_path):
    source = own_data(tmp_path, urls=["http://127.0.0.1:9/mine.csv"], sha256="0" * 64)
    mine = spec(datasets=[source])
    before = keys(mine)
    (tmp_path / "mine.csv").unlink()
    assert keys(mine) == before


def test_a_whole_number_of_seconds_is_the_same_limit():
    networks, solvers = (Network("1x5", "1x5"),), (Solver("adam", "adam"),)
    one, other = (
        Spec(datasets=("diabetes",), networks=networks, solvers=solvers, time_limit=limit) for limit in (3, 3.0)
    )
    assert keys(one) == keys(other)


def test_narrowing_leaves_what_was_named_in_the_specs_order():
    whole = spec(datasets=["diabetes", "teacher"], solvers=["adam", "sgd", "ig"], seeds=5)
    narrow = narrowed(whole, Narrowing(time_limit=2, seeds="2", only=("ig", "adam", "teacher")))
    assert narrow.datasets == ("teacher",)
    assert [s.name for s in narrow.solvers] == ["adam", "ig"]
    assert (narrow.time_limit, narrow.seeds, narrow.networks) == (2.0, (0, 1), whole.networks)
    assert narrowed(whole, Narrowing()) == whole


@pytest.mark.parametrize(("text", "seeds"), [("3", (0, 1, 2)), ("0,4", (0, 4)), ("3,", (3,)), ("2-4", (2, 3, 4))])
def test_seeds_are_counted_or_listed(text, seeds):
    assert narrowed(spec(seeds=5), Narrowing(seeds=text)).seeds == seeds


@pytest.mark.parametrize("text", ["0", "6", "7,", "1-9", "1-999999999999", "x", ",", "3-2"])
def test_seeds_that_the_spec_does_not_have_are_refused(text):
    with pytest.raises(SpecError, match="Invalid seeds"):
        narrowed(spec(seeds=5), Narrowing(seeds=text))


def test_only_finds_the_papers_networks_by_their_size():
    whole = spec(networks=["paper:1x50", "paper:3x20"])
    assert [one.name for one in narrowed(whole, Narrowing(only=("3x20",))).networks] == ["paper:3x20"]
    both = spec(networks=["1x50", "paper:1x50"])
    assert [one.name for one in narrowed(both, Narrowing(only=("1x50",))).networks] == ["1x50"]


def test_an_unknown_name_in_only_names_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'adam'"):
        narrowed(spec(), Narrowing(only=("adan",)))


def test_a_spec_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().batch_size = 3


def test_all_threads_are_the_cores_of_this_machine_and_a_run_is_then_alone():
    from cmalight.bench.running.executors import default_workers
    from cmalight.bench.spec.study import cores

    assert spec(threads="all").threads == cores()
    assert default_workers(spec(threads="all").threads) == 1
    assert read_spec("cifar10-resnet18").threads == cores()
