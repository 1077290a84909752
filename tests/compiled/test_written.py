"""Steps written out in C++ are the eager ones, whatever a model is made of; and what is built is kept, and trusted."""

import copy
import ctypes
import hashlib
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from cmalight import fit
from cmalight.compiled.layout import CannotCompile
from cmalight.compiled.native import library, source
from cmalight.compiled.native.operations import is_known
from cmalight.compiled.native.writing import TYPES
from cmalight.compiled.recorded.recording import record
from cmalight.locks import acquired
from tests.training.common import MSE, data, model, needs_compiler

pytestmark = needs_compiler


def between(*layers, inputs=4, outputs=1):
    return lambda: nn.Sequential(nn.Linear(inputs, 6), *copy.deepcopy(layers), nn.Linear(6, outputs))


class Tied(nn.Module):
    """One matrix used twice, forwards and transposed; and a buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4) / 2)
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 2.0, 1.5]))

    def forward(self, x):
        hidden = torch.tanh(x @ self.weight) * self.scale
        return (hidden @ self.weight.t()).sum(dim=1, keepdim=True) / 3 + torch.cat([x, hidden], 1).mean(1, keepdim=True)


class Words(nn.Module):
    """Whole numbers in, by an embedding."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(7, 3, padding_idx=0), nn.Linear(12, 3)

    def forward(self, x):
        return self.out(self.table(x).flatten(1))


def classes(seed=0):
    return torch.randint(0, 3, (64,), generator=torch.Generator().manual_seed(seed))


def numbers():
    return data(64)


def labelled():
    return data(64)[0], classes()


def yes_or_no():
    return data(64)[0], (data(64)[1] > 0).double()


MODELS = {
    "relu": (between(nn.ReLU()), MSE, numbers),
    "relu in place": (between(nn.ReLU(inplace=True)), MSE, numbers),
    "tanh": (between(nn.Tanh()), MSE, numbers),
    "gelu": (between(nn.GELU()), MSE, numbers),
    "gelu by tanh": (between(nn.GELU(approximate="tanh")), MSE, numbers),
    "silu": (between(nn.SiLU()), MSE, numbers),
    "elu": (between(nn.ELU()), MSE, numbers),
    "leaky": (between(nn.LeakyReLU(0.1)), MSE, numbers),
    "softplus": (between(nn.Softplus()), MSE, numbers),
    "hardtanh": (between(nn.Hardtanh()), MSE, numbers),
    "layer norm": (between(nn.LayerNorm(6)), MSE, numbers),
    "no bias": (lambda: nn.Linear(4, 1, bias=False), MSE, numbers),
    "tied": (Tied, MSE, numbers),
    "absolute": (between(nn.Sigmoid()), nn.L1Loss(), numbers),
    "huber": (between(nn.Sigmoid()), nn.SmoothL1Loss(), numbers),
    "logits": (between(nn.Sigmoid()), nn.BCEWithLogitsLoss(), yes_or_no),
    "cross entropy": (between(nn.Tanh(), outputs=3), nn.CrossEntropyLoss(), labelled),
    "smoothed": (between(nn.Tanh(), outputs=3), nn.CrossEntropyLoss(label_smoothing=0.1), labelled),
    "embedding": (Words, nn.CrossEntropyLoss(), lambda: (classes(1)[:, None] + torch.arange(4), classes())),
}


def trained(name, engine, **options):
    make, loss, pair = MODELS[name]
    torch.manual_seed(0)
    network = make().double()
    options = {"optimizer": torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.5), **options}
    result = fit(network, loss, pair(), batch_size=10, max_epochs=3, progress=False, engine=engine, **options)
    return network, result


@pytest.mark.parametrize("name", MODELS)
def test_a_model_takes_the_eager_steps(name, monkeypatch):
    monkeypatch.setattr("cmalight.compiled.traced.loops.compiled", None)  # all of these are written
    (eager, first), (compiled, second) = trained(name, "eager"), trained(name, "compiled")
    assert second.engine == "compiled"
    for mine, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    assert [r.f_tilde for r in second.history] == pytest.approx([r.f_tilde for r in first.history], rel=1e-12)


@pytest.mark.slow
def test_a_model_with_an_operation_that_is_not_written_is_compiled_by_torch(monkeypatch):
    layers = nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 5), nn.Tanh(), nn.Flatten(), nn.Linear(4, 6)
    monkeypatch.setitem(MODELS, "convolution", (between(*layers), MSE, numbers))
    (eager, _), (compiled, result) = trained("convolution", "eager"), trained("convolution", "compiled")
    assert result.engine == "compiled"
    for mine, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


class Scaling(nn.Module):
    """Changes what it is given."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x.mul_(2))


def test_a_model_that_changes_its_inputs_leaves_the_data_as_it_is():
    network, (x, y) = Scaling().double(), numbers()
    before = x.clone()
    sgd = torch.optim.SGD(network.parameters(), lr=0.01)
    fit(network, MSE, (x, y), optimizer=sgd, batch_size=10, max_epochs=1, progress=False, engine="compiled")
    assert torch.equal(x, before)


def test_what_overflows_goes_through_a_written_step():
    network, (x, y) = MODELS["relu"][0]().double(), numbers()
    sgd = torch.optim.SGD(network.parameters(), lr=1e300)
    fit(network, MSE, (x, y), optimizer=sgd, batch_size=10, max_epochs=1, progress=False, engine="compiled")
    assert all(torch.isnan(p).any() for p in network.parameters())


def test_what_a_model_asks_of_its_values_cannot_be_recorded():
    with pytest.raises(CannotCompile, match="looks at the values"):
        record(lambda x: [x * float(x.sum())], [torch.ones(3)], is_known=is_known)


def test_calls_that_no_output_needs_are_left_out():
    recording = record(lambda x: [x.exp() + x.sin() * 0 + 1, x.cos()][:1], [torch.ones(3)], is_known=is_known)
    assert [call.name for call in recording.calls] == ["exp", "sin", "mul", "add", "add"]


# Rows, columns and inner: below a vector, a whole one, some more; one and several panels of equal and unequal width.
SHAPES = [(5, 3, 4), (2, 8, 7), (9, 13, 50), (17, 50, 20), (6, 37, 33), (12, 600, 3), (3, 33, 520)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_products_are_those_of_torch_however_the_matrices_lie(dtype, cache):
    kind, pointer = TYPES[dtype], ctypes.c_void_p
    lines, cases = [source.PRELUDE], []
    for (rows, columns, inner), *turned in itertools.product(SHAPES, (False, True), (False, True), (False, True)):
        shapes = (rows, inner), (inner, columns), (rows, columns)
        pairs = zip(shapes, turned, strict=True)
        left, right, place = (
            torch.randn(s[::-1], dtype=dtype).t() if t else torch.randn(s, dtype=dtype) for s, t in pairs
        )
        strides = ", ".join(str(stride) for one in (left, right, place) for stride in one.stride())
        lines.append(f'extern "C" void f{len(cases)}({kind}* a, {kind}* b, {kind}* c) {{')
        lines.append(f"  product<{kind}, {rows}, {columns}, {inner}, {strides}>(a, b, c, Library{{0, 0}}); }}")
        cases.append((left, right, place))
    built = library.library("\n".join(lines))
    for number, (left, right, place) in enumerate(cases):
        getattr(built, f"f{number}")(*(pointer(one.data_ptr()) for one in (left, right, place)))
        torch.testing.assert_close(place, left @ right, rtol=1e-4, atol=1e-4)


TEXT = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty one, and a process that has loaded nothing yet."""
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "_loaded", {})
    return tmp_path / "compiled"


@pytest.fixture
def builds(monkeypatch):
    """The texts that the compiler was given."""
    texts, built = [], library._built
    monkeypatch.setattr(library, "_built", lambda text, path: texts.append(text) or built(text, path))
    return texts


def forget():
    library._loaded.clear()


def test_a_library_is_built_once_and_then_found(cache, builds):
    assert not library.is_ready(TEXT)
    assert library.library(TEXT).answer() == 42
    forget()
    assert library.is_ready(TEXT)
    assert library.library(TEXT).answer() == 42
    assert len(builds) == 1
    assert cache.stat().st_mode & 0o077 == 0


def kept(cache, *numbers):
    """Libraries that answer with these, built in this order and each used ten days before the next."""
    paths = []
    for age, number in enumerate(reversed(numbers)):
        before = set(cache.glob("*.so"))
        library.library(TEXT.replace("42", str(number)))
        (path,) = set(cache.glob("*.so")) - before
        paths.append(path)
        when = time.time() - 10 * 86400 * (age + 1)
        os.utime(path, (when, when))
    return paths[::-1]


def test_what_was_not_used_for_long_goes_when_something_is_built(cache):
    old, used = kept(cache, 1, 2)
    library.remember("an old one")
    (mark,) = cache.glob("*.built")
    long_ago = time.time() - 100 * 86400
    for path in (old, used, mark):
        os.utime(path, (long_ago, long_ago))
    forget()
    assert library.library(TEXT.replace("42", "2")).answer() == 2
    library.library(TEXT)
    assert not {old, mark, old.with_suffix(".sha256")} & set(cache.iterdir())
    assert len(list(cache.glob("*.so"))) == 2
    assert used.exists()


def test_beyond_a_total_size_those_go_that_were_not_used_for_longest(cache, monkeypatch):
    first, second, third = kept(cache, 1, 2, 3)
    monkeypatch.setattr(library, "_MOST_BYTES", int(3.5 * first.stat().st_size))
    library.library(TEXT)
    assert not first.exists()
    assert second.exists()
    assert third.exists()


def test_an_entry_that_somebody_builds_anew_is_not_removed(cache, monkeypatch):
    first, second = kept(cache, 1, 2)
    monkeypatch.setattr(library, "_MOST_BYTES", 0)
    with acquired(first.with_suffix(".lock")):
        library._remove_unused(cache)
    assert first.exists()
    assert not second.exists()


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.unlink()  # what is mapped must not change
    path.write_bytes(content)


def replace_by_another(path):
    path.unlink()
    path.write_bytes(b"not a library")
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.stem.encode() + b"not a library").hexdigest())


def put_another_entry_there(path):
    library.library(TEXT.replace("42", "41"))
    (other,) = set(path.parent.glob("*.so")) - {path}
    for suffix in (".so", ".sha256"):
        other.with_suffix(suffix).replace(path.with_suffix(suffix))


HARM = {
    "damaged": damage,
    "replaced": replace_by_another,
    "another entry": put_another_entry_there,
    "cut off": lambda path: path.unlink() or path.write_bytes(b""),
    "without a checksum": lambda path: path.with_suffix(".sha256").unlink(),
    "open to others": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.skipif(sys.platform == "win32", reason="files have owners and modes elsewhere")
def test_an_entry_that_is_not_what_was_written_is_built_anew(harm, cache, builds):
    library.library(TEXT)
    forget()
    HARM[harm](next(cache.glob("*.so")))
    forget()
    builds.clear()
    assert library.is_ready(TEXT) == (harm == "replaced")  # which shows when it is loaded
    assert library.library(TEXT).answer() == 42
    assert len(builds) == 1
    forget()
    assert library.library(TEXT).answer() == 42
    assert len(builds) == 1


@pytest.fixture
def umask():
    before = os.umask(0)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("allowed", [0o000, 0o002, 0o022])
@pytest.mark.skipif(sys.platform == "win32", reason="files have modes elsewhere")
def test_what_is_kept_is_found_again_whatever_the_umask_allows_others(allowed, cache, builds, umask):
    umask(allowed)
    library.library(TEXT)
    forget()
    assert library.library(TEXT).answer() == 42
    assert len(builds) == 1


def a_folder_at(suffix):
    return lambda cache: (cache / f"{library.key_of(TEXT)}{suffix}").mkdir(parents=True)


def read_only(cache):
    cache.mkdir(mode=0o500)


ODD = {
    "a folder is the entry": a_folder_at(".so"),
    "a folder is the lock": a_folder_at(".lock"),
    "read-only": read_only,
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.skipif(sys.platform == "win32", reason="folders have modes elsewhere")
def test_where_nothing_can_be_kept_it_is_said_and_built_all_the_same(odd, cache, caplog):
    library._say_once.cache_clear()
    ODD[odd](cache)
    try:
        if odd == "read-only" and os.access(cache, os.W_OK):
            pytest.skip("root may write everywhere")
        assert library.library(TEXT).answer() == 42
    finally:
        cache.chmod(0o700)
    assert [record.message for record in caplog.records if "is not kept" in record.message]


def test_a_build_that_fails_in_the_cache_is_made_elsewhere(cache, monkeypatch):
    built = library._built

    def no_room(text, path):
        if cache in path.parents:
            raise OSError(28, "no space left")
        return built(text, path)

    monkeypatch.setattr(library, "_built", no_room)
    assert library.library(TEXT).answer() == 42


def test_folders_of_builds_that_were_killed_go(cache):
    old, new = (cache / f"{library._BUILD}{name}.tmp" for name in ("old", "new"))
    for place in (old, new):
        place.mkdir(parents=True)
        (place / "step.cpp").write_text(TEXT)
    os.utime(old, (0, 0))
    library.library(TEXT)
    assert not old.exists()
    assert new.exists()
    assert len(list(cache.glob(f"{library._BUILD}*"))) == 1


def test_the_compiler_may_have_arguments(cache, monkeypatch):
    plain = library.key_of(TEXT)
    monkeypatch.setenv("CXX", f"{library.compiler()} -DANSWER=43")
    assert library.key_of(TEXT) != plain
    assert library.library(TEXT.replace("42", "ANSWER")).answer() == 43


@pytest.mark.parametrize("wanted", ["no-such-compiler -O2", "'"])
def test_a_compiler_that_is_named_and_not_found_is_named_in_the_reason(wanted, monkeypatch):
    monkeypatch.setenv("CXX", wanted)
    with pytest.raises(library.NoCompiler, match=r"CXX is .* not found"):
        library.compiler()


def own_compiler(folder, monkeypatch, *lines):
    """A script in the place of the compiler, which counts its calls."""
    script = folder / "compiler"
    script.write_text("\n".join(["#!/bin/sh", f"echo called >> {folder}/calls", *lines]))
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return folder / "calls"


@pytest.mark.skipif(sys.platform == "win32", reason="a script for a shell")
def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(cache, tmp_path, monkeypatch):
    calls = own_compiler(tmp_path, monkeypatch, f"sleep 60 & echo $! > {tmp_path}/child", "wait")
    monkeypatch.setattr(library, "_PATIENCE_SECONDS", 1.0)
    with pytest.raises(CannotCompile, match="was not done after 1 s"):
        library.library(TEXT)
    assert calls.read_text().split() == ["called"]
    time.sleep(0.2)
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.skipif(sys.platform == "win32", reason="a script for a shell")
@pytest.mark.parametrize("end", ["kill -INT $$", "echo error: nonsense >&2; exit 1"])
def test_a_compiler_that_is_ended_or_fails_is_not_called_again(end, cache, tmp_path, monkeypatch):
    calls = own_compiler(tmp_path, monkeypatch, end)
    with pytest.raises(CannotCompile, match=r"signal 2|nonsense"):
        library.library(TEXT)
    assert calls.read_text().split() == ["called"]


@pytest.mark.skipif(sys.platform == "win32", reason="sessions are elsewhere")
def test_the_compiler_is_in_a_session_that_a_terminal_does_not_interrupt(cache, tmp_path, monkeypatch):
    own_compiler(tmp_path, monkeypatch, f"ps -o sid= -p $$ > {tmp_path}/session; exit 1")
    with pytest.raises(CannotCompile):
        library.library(TEXT)
    session = (tmp_path / "session").read_text().strip()
    assert not session or int(session) != os.getsid(0)


@pytest.mark.skipif(sys.platform == "win32", reason="folders have modes elsewhere")
def test_a_folder_that_others_can_write_to_is_not_used(cache, builds, caplog):
    cache.mkdir()
    cache.chmod(0o777)
    for _ in range(2):
        assert library.library(TEXT).answer() == 42
        forget()
    assert len(builds) == 2
    assert not list(cache.iterdir())
    assert [record.message for record in caplog.records if "others" in record.message]


def test_another_text_processor_or_compiler_is_another_entry(cache, monkeypatch):
    first = library.key_of(TEXT)
    assert library.key_of(TEXT + "\n") != first
    monkeypatch.setattr(library, "processor", lambda: "another")
    assert library.key_of(TEXT) != first


def test_a_text_that_does_not_compile_has_the_compilers_words_for_it(cache):
    with pytest.raises(CannotCompile, match="error"):
        library.library("int answer( {")


PROCESS = """
import sys
from cmalight.compiled.native import library, source
built, library._built = library._built, lambda *given: print("built") or built(*given)
print(library.library(sys.argv[1]).answer())
"""


def test_processes_that_want_the_same_build_it_once(cache):
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, TEXT], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = [process.communicate(timeout=300)[0].split() for process in started]
    assert [words[-1] for words in said] == ["42"] * 3
    assert sum("built" in words for words in said) == 1


def test_the_seeds_of_a_study_build_once_for_each_solver(cache, builds):
    for seed in range(3):
        for optimizer in ("sgd", "adam"):
            forget()  # as in processes of their own
            torch.manual_seed(seed)
            fit(model(seed), MSE, data(64), optimizer=optimizer, seed=seed, batch_size=10, max_epochs=1,
                progress=False, engine="compiled")  # fmt: skip
    assert len(builds) == 2


def test_auto_compiles_a_short_run_whose_steps_were_built_before(cache, builds):
    def engine():
        forget()
        return fit(model(), MSE, data(64), optimizer="sgd", batch_size=4, max_epochs=20, progress=False).engine

    assert engine() == "eager"
    fit(model(), MSE, data(64), optimizer="sgd", batch_size=4, max_epochs=1, progress=False, engine="compiled")
    assert engine() == "compiled"
    assert len(builds) == 1


@pytest.mark.parametrize("samples", [61, 68])
def test_auto_does_not_take_other_sizes_of_batches_for_what_was_built_before(samples, cache, builds):
    options = {"optimizer": "sgd", "batch_size": 4, "progress": False}
    fit(model(), MSE, data(64), max_epochs=1, engine="compiled", **options)
    assert fit(model(), MSE, data(samples), max_epochs=20, **options).engine == "eager"
    assert len(builds) == 1


def test_auto_asks_again_whether_it_pays_where_the_mark_was_wrong(cache, builds, monkeypatch):
    options = {"optimizer": "sgd", "batch_size": 4, "progress": False}
    monkeypatch.setattr(library, "is_remembered", lambda _: True)
    result = fit(model(), MSE, data(64), max_epochs=20, **options)
    assert (result.engine, builds) == ("eager", [])
    assert "compiling would save about" in result.engine_reason


WITHOUT_COMPILER = """
import logging, torch
from torch import nn
from cmalight import fit
from cmalight.compiled.engine import select
logging.basicConfig(format="%(message)s")
select.pays = lambda *_: True
x = torch.randn(64, 4)
for _ in range(2):
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    result = fit(network, nn.MSELoss(), (x, x[:, :1]), batch_size=4, max_epochs=30, progress=False)
    print(result.engine, result.epochs, result.engine_reason)
"""


def test_without_a_compiler_a_process_says_so_once_and_trains_eagerly(tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path), "CMALIGHT_CACHE": str(tmp_path / "cache")}
    environment.pop("CXX", None)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["eager", "30"]] * 2
    assert all("no C++ compiler" in line for line in lines)
    assert done.stderr.count("no C++ compiler") == 1
