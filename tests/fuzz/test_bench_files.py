"""Specs and the files of a results folder, mutated: a message that names the file, or nothing wrong at all."""

import contextlib
import copy
import json
import logging
import shutil

import pytest

from cmalight.bench import MergeError, load, merge, plan, read_spec, status
from cmalight.bench.report.content import page_data, read_study, tables
from cmalight.bench.spec.study import SpecError
from cmalight.bench.store.lock import acquired, lock_path, owner_alive
from cmalight.bench.store.results import LaterVersionError, runs_folder, write_document
from cmalight.errors import DataError
from tests.bench import synthetic
from tests.fuzz.cases import cases, numbers

HOSTILE = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, -(10**400), 0.0, -0.5, 1e308, -1e308, 5e-324, float("nan")),
    *(float("inf"), "", "x", "0", "nan", "\x00", "a" * 5000, "<script>", "../..", "é" * 40, "\u202e", [], {}, [[]]),
    *([None], [1, "a"], {"a": 1}, {"": {}}, ["x"] * 50, [0.5] * 3),
]
SPEC = {
    "name": "a name",
    "datasets": ["diabetes"],
    "networks": ["1x5", {"network": "2x5", "name": "wide", "options": {"activation": "tanh"}}],
    "solvers": ["adam", {"solver": "sgd", "name": "quick", "options": {"lr": 0.1}, "full_batch": True}],
    "seeds": [0, 1],
    "max_epochs": 3,
    "time_limit": 2.5,
    "batch_size": 32,
    "order": "fixed",
    "test_share": 0.25,
}


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def mutated(plain, random):
    """One to three places of a tree, each replaced, removed, nested, doubled or given a name that nobody knows."""
    tree = copy.deepcopy(plain)
    for _ in range(random.randint(1, 3)):
        parent, key = random.choice(list(_places(tree)))
        match random.randrange(6):
            case 0 | 1 | 2:
                parent[key] = copy.deepcopy(random.choice(HOSTILE))
            case 3:
                del parent[key]
            case 4:
                parent[key] = [parent[key]] if random.random() < 0.5 else {"inner": parent[key]}
            case 5:
                if isinstance(parent, dict):
                    parent[random.choice(["", "x", "Key", "é"])] = copy.deepcopy(parent[key])
                else:
                    parent.append(copy.deepcopy(parent[key]))
        if not list(_places(tree)):
            break
    return tree


def _places(tree):
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(inner):
        yield tree, key
        if isinstance(value, dict | list) and value:
            yield from _places(value)


def damaged(data, random):
    """Bytes flipped, cut off, doubled or swapped for others."""
    data = bytearray(data)
    match random.randrange(4):
        case 0:
            for _ in range(random.randint(1, 8)):
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case 1:
            del data[random.randrange(len(data)) :]
        case 2:
            data *= 2
        case 3:
            data[:] = random.randbytes(random.randrange(200))
    return bytes(data)


def results_folder(folder):
    runs = [synthetic.run(solver, [0.5, 0.2], seed=seed) for solver in ("adam", "auto") for seed in (0, 1)]
    synthetic.write(folder, runs)
    keys = [content["key"] for content in runs]
    write_document(folder / "spec.json", "cmalight-bench-spec", 1, {"calls": [{**CALL, "keys": keys}]})
    return sorted(runs_folder(folder).iterdir())


CALL = {"spec": {"name": "x"}, "workers": 2}


def read_everything(folder, out):
    """Whatever reads a results folder; how many runs are good."""
    found = load(folder)
    counts = status(folder)
    assert len(found.runs) == sum(counts.recorded.values())
    with contextlib.suppress(MergeError):  # other data under one name, say
        assert merge([folder], out) == len(found.runs)
    study = read_study(folder)
    json.dumps(page_data(study))
    tables(study)
    return len(found.runs), counts


@pytest.mark.filterwarnings("ignore")  # of numpy, about numbers that a run could not have had
def test_results_with_wrong_contents_and_a_good_seal(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    for case in range(cases(40)):
        random = numbers("results", case)
        folder = tmp_path / str(case)
        bad = results_folder(folder)[random.randrange(4)]
        content = mutated(json.loads(bad.read_text())["content"], random)
        caplog.clear()
        try:
            write_document(bad, "cmalight-run", 1, content)
        except (ValueError, RecursionError):  # what JSON cannot hold cannot be in a file
            continue
        good, counts = read_everything(folder, tmp_path / f"{case}-merged")
        assert good == 4 or (good == 3 and str(bad) in caplog.text and str(bad) in counts.damaged[0]), f"case {case}"
        shutil.rmtree(folder)


def test_results_with_damaged_bytes(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    for case in range(cases(40)):
        random = numbers("bytes of results", case)
        folder = tmp_path / str(case)
        bad = results_folder(folder)[0]
        bad.write_bytes(damaged(bad.read_bytes(), random))
        caplog.clear()
        good, said = 0, ""
        try:
            good = len(load(folder).runs)
        except LaterVersionError as refused:  # a flipped digit of the version: it may be good, so it is not left out
            said = str(refused)
        assert good == 4 or str(bad) in said + caplog.text, f"case {case}"
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["spec.json", "progress.json"])
def test_what_a_driver_left_beside_the_results(tmp_path, name):
    running = {"key": "k", "run": "a run", "epoch": 3, "loss": 0.5, "seconds": 1.5}
    contents = {
        "spec.json": ("cmalight-bench-spec", {"calls": [{**CALL, "keys": ["a", "b"]}]}),
        "progress.json": ("cmalight-bench-progress", {"running": [running], "seconds_left": 3.5, "time": 1.0}),
    }
    results_folder(tmp_path / "folder")
    form, content = contents[name]
    path = tmp_path / "folder" / name
    with acquired(tmp_path / "folder"):
        for case in range(cases(60)):
            random = numbers(name, case)
            try:
                write_document(path, form, 1, mutated(content, random))
            except (ValueError, RecursionError):
                continue
            if random.random() < 0.3:
                path.write_bytes(damaged(path.read_bytes(), random))
            recorded, said = {}, ""
            try:
                recorded = status(tmp_path / "folder").recorded
            except LaterVersionError as refused:
                said = str(refused)
            assert recorded == {"done": 4} or str(path) in said, f"case {case}"


def test_a_lock_that_holds_anything(tmp_path):
    owner = {"pid": 1, "host": "elsewhere", "since": "then"}
    for case in range(cases(100)):
        random = numbers("lock", case)
        text = json.dumps(mutated(owner, random)).encode()
        lock_path(tmp_path).write_bytes(damaged(text, random) if random.random() < 0.5 else text)
        alive = owner_alive(tmp_path)
        assert alive is None or isinstance(alive.host, str), f"case {case}"
        lock_path(tmp_path).write_bytes(damaged(b'{"pid": 1}', random))
        with acquired(tmp_path):
            pass


def test_specs_are_planned_or_refused_with_a_message(tmp_path):
    path = tmp_path / "spec.toml"
    for case in range(cases(150)):
        random = numbers("specs", case)
        text = _toml(mutated(SPEC, random)).encode()
        path.write_bytes(damaged(text, random) if random.random() < 0.3 else text)
        said = ""
        try:
            planned = bool(plan(read_spec(path)))
        except (SpecError, DataError) as refused:
            planned, said = False, str(refused)
        assert planned or said, f"case {case}"


def _toml(value, inner=False):
    """TOML of plain data, at least where it is TOML at all."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key))} = {_toml(one, inner=True)}" for key, one in value.items()]
        return "{" + ", ".join(pairs) + "}" if inner else "\n".join(pairs)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one, inner=True) for one in value) + "]"
    return {None: '"none"', True: "true", False: "false"}.get(value) or json.dumps(value).replace("Infinity", "inf")
