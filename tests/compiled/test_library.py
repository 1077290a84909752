"""The kernel is built once, kept privately, and sound under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cmalight.compiled import CannotCompile, library


@pytest.fixture
def fresh():
    """As in a new process."""
    library._kernel_or_reason.cache_clear()
    yield
    library._kernel_or_reason.cache_clear()


@pytest.fixture
def builds(monkeypatch, tmp_path, fresh):
    """What was built into a new cache; the real library is copied, since a build takes seconds."""
    made: list[Path] = []
    library.kernel()
    intact = library._private_folder() / f"kernel-{library._key(library.build_command())}.so"

    def copying(path, command):
        made.append(path)
        return Path(shutil.copy(intact, path))

    monkeypatch.setattr(library, "build", copying)
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    library._kernel_or_reason.cache_clear()
    return made


def refusal() -> str:
    with pytest.raises(CannotCompile) as caught:
        library.kernel()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_second_process_finds_the_library(builds, tmp_path):
    library.kernel()
    library._kernel_or_reason.cache_clear()
    library.kernel()
    assert len(builds) == 1
    assert len(list((tmp_path / "cache" / "compiled").glob("*.so"))) == 1


@pytest.mark.parametrize("place", ["cache/compiled", "cache", "."])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o700])
def test_nothing_is_kept_where_others_could_write_or_put_another_in_its_place(builds, tmp_path, caplog, place, mode):
    """A parent that belongs to the user's group is safe, as under umask 002, and one with the sticky bit, as /tmp."""
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)
    library.kernel()
    kept = mode == 0o700 or (mode != 0o777 and place != "cache/compiled")
    assert bool(list(tmp_path.rglob("*.so"))) is kept
    assert ("others can write" in caplog.text) is not kept


NO_LIBRARY = f"{sys.executable} -c \"import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('no library')\""


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler", "no-such-compiler"),
        ("g++ 'unclosed", "No closing quotation"),
        ("false", "failed"),
        ("true", "wrote no library"),
        (NO_LIBRARY, "loaded"),
    ],
)
def test_a_compiler_that_builds_nothing_is_a_reason(fresh, tmp_path, monkeypatch, compiler, reason):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    assert reason in refusal()


def test_a_library_that_cannot_be_loaded_is_a_reason_that_is_remembered(builds, monkeypatch):
    def noexec(name):
        raise OSError(f"{name}: failed to map segment from shared object")

    monkeypatch.setattr(library.ctypes, "CDLL", noexec)
    for _ in range(2):
        assert "failed to map segment" in refusal()
    assert len(builds) == 1


def test_first_builds_at_the_same_time_build_once(builds, monkeypatch):
    """Threads stand for processes: each opens the lock anew."""
    copying = library.build

    def slow(path, command):
        time.sleep(0.2)
        return copying(path, command)

    monkeypatch.setattr(library, "build", slow)
    threads = [threading.Thread(target=library.kernel) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads the sanitizers' libraries")
def test_the_kernel_is_clean_under_sanitizers(tmp_path):
    """Every layer, loss and optimizer once, in both precisions, with memory of exactly the right size."""
    command = [word for word in library.build_command() if word != "-O3"]
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run([command[0], f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        if not Path(found.stdout.strip()).is_absolute():
            pytest.skip("this compiler has no sanitizers")
        runtimes.append(found.stdout.strip())
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    built = library.build(tmp_path / "kernel.so", [*command, *flags])
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(library.__file__).parents[2]), str(Path(__file__).parents[2])]),
    }
    driver = Path(__file__).with_name("under_sanitizers.py")
    done = subprocess.run(
        [sys.executable, str(driver), str(built)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all clean" in done.stdout
