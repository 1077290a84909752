"""The kernel is built once, kept privately, and sound under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cmalight.compiled import CannotCompile, library


@pytest.fixture
def fresh(monkeypatch):
    """As in a new process."""
    library.kernel.cache_clear()
    yield
    library.kernel.cache_clear()


@pytest.fixture
def builds(monkeypatch, fresh):
    """What was built; the first build is real, later ones copy it, since a build takes seconds."""
    made: list[Path] = []
    real = library.build
    first = library._private_folder()
    intact = first / f"kernel-{library._key(library.build_command())}.so"
    if library._load(intact) is None:
        library.kernel()

    def copying(path, command):
        made.append(path)
        return Path(shutil.copy(intact, path)) if intact.exists() else real(path, command)

    monkeypatch.setattr(library, "build", copying)
    library.kernel.cache_clear()
    return made


def test_a_second_process_finds_the_library(builds, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    library.kernel()
    library.kernel.cache_clear()
    library.kernel()
    assert len(builds) == 1
    (built,) = (tmp_path / "cache" / "compiled").glob("*.so")
    assert built.stat().st_mode & 0o777 == 0o600


def test_a_damaged_library_is_built_again(builds, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    library.kernel()
    (path,) = (tmp_path / "compiled").glob("*.so")
    copy = path.read_bytes()
    path.unlink()  # the loaded one stays mapped
    path.write_bytes(copy[: len(copy) // 2])
    library.kernel.cache_clear()
    library.kernel()
    assert len(builds) == 2
    assert path.read_bytes() == copy


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nothing_is_kept_where_others_could_write(builds, tmp_path, monkeypatch, caplog, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("CMALIGHT_CACHE", str(shared / "cache"))
    library.kernel()
    assert not list(shared.rglob("*.so"))
    assert "others can write" in caplog.text


def test_a_folder_with_the_sticky_bit_may_be_above(builds, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("CMALIGHT_CACHE", str(shared / "cache"))
    library.kernel()
    assert list(shared.rglob("*.so"))


def test_without_a_compiler_there_is_a_reason(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CannotCompile, match="no-such-compiler"):
        library.kernel()


def test_a_failing_compiler_is_quoted(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    with pytest.raises(CannotCompile, match="failed"):
        library.kernel()


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
