"""Specs are checked before anything runs, and define their runs completely."""

import dataclasses

import pytest

from cmalight.bench import PRESETS, Narrowing, SpecError, narrowed, plan, read_spec
from cmalight.data.registry import DataError, dataset_info
from cmalight.models.paper import PAPER_NETWORKS
from tests.bench.common import spec, toml


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
        ({"max_epochs": None}, "give the runs an end"),
        ({"time_limit": 0}, "Invalid time_limit value: 0.0; expected a positive number"),
        ({"time_limit": float("nan")}, "Invalid time_limit value: nan"),
        ({"batch_size": 1.5}, "Invalid batch_size value: 1.5"),
        ({"order": "sorted"}, "expected 'reshuffle' or 'fixed'"),
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
        ({"solvers": ["adamm"]}, "Unknown solver 'adamm'; did you mean 'adam'?"),
        ({"solvers": [{"solver": "adam", "options": {"lrr": 1.0}}]}, "did you mean 'lr'?"),
        ({"solvers": [{"solver": "adam", "options": {"lr": -1.0}}]}, "Invalid options of solver adam"),
        ({"solvers": [{"solver": "sgd-momentum", "options": {"lrr": 1.0}}]}, "Invalid options of solver sgd-momentum"),
        ({"solvers": ["no_such_module:make"]}, "could not be imported"),
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


def test_changed_data_of_ones_own_changes_the_key(tmp_path):
    (tmp_path / "mine.toml").write_text('[dataset]\nfile = "mine.csv"\ntarget = "y"\ntask = "regression"\n')
    (tmp_path / "mine.csv").write_text("x,y\n" + "".join(f"{i},{2 * i}\n" for i in range(20)))
    mine = spec(datasets=[str(tmp_path / "mine.toml")])
    before = keys(mine)
    assert keys(mine) == before
    (tmp_path / "mine.csv").write_text("x,y\n" + "".join(f"{i},{3 * i}\n" for i in range(20)))
    assert not keys(mine) & before


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


def test_an_unknown_name_in_only_names_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'adam'"):
        narrowed(spec(), Narrowing(only=("adan",)))


def test_a_spec_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().batch_size = 3
