"""The kernel is built once, kept privately, and sound under sanitizers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from cmalight.compiled import CannotCompile, library


@pytest.fixture
def fresh(monkeypatch):
    """As in a new process."""
    library._kernel_or_reason.cache_clear()
    yield
    library._kernel_or_reason.cache_clear()


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
    library._kernel_or_reason.cache_clear()
    return made


def test_a_second_process_finds_the_library(builds, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    library.kernel()
    library._kernel_or_reason.cache_clear()
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
    library._kernel_or_reason.cache_clear()
    library.kernel()
    assert len(builds) == 2
    assert path.read_bytes() == copy


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nothing_is_kept_where_others_could_write(builds, tmp_path, monkeypatch, caplog, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("CMALIGHT_CACHE", str(shared / "cache"))
    monkeypatch.setattr(library, "_is_private_group", lambda number: False)
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


def test_under_umask_002_the_library_is_kept(builds, tmp_path, monkeypatch):
    before = os.umask(0o002)
    try:
        (tmp_path / "home" / ".cache").mkdir(parents=True)  # by another program
        monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "home" / ".cache" / "new" / "cmalight"))
        monkeypatch.setattr(library, "_is_private_group", lambda number: number == os.getgid())
        library.kernel()
    finally:
        os.umask(before)
    assert (tmp_path / "home" / ".cache").stat().st_mode & 0o020
    assert not (tmp_path / "home" / ".cache" / "new").stat().st_mode & 0o077
    assert list(tmp_path.rglob("*.so"))


def test_a_group_is_private_only_if_it_bears_the_name_of_the_user_and_has_no_other_member(monkeypatch):
    import grp
    import pwd

    user = pwd.getpwuid(os.getuid()).pw_name
    for name, members, expected in (
        (user, [], True),
        (user, [user], True),
        (user, ["eve"], False),
        ("staff", [], False),
    ):
        group = grp.struct_group((name, "x", 7, members))
        monkeypatch.setattr(grp, "getgrgid", lambda number, group=group: group)
        assert library._is_private_group(7) is expected


NO_LIBRARY = "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('no library')"


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler", "no-such-compiler"),
        ("g++ 'unclosed", "CXX"),
        ("false", "failed"),
        ("true", "wrote no library"),
        (
            f"{sys.executable} -c \"import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('no library')\"",
            "loaded",
        ),
    ],
)
def test_a_compiler_that_builds_nothing_is_a_reason(fresh, tmp_path, monkeypatch, compiler, reason):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    assert_refused(reason)


def assert_refused(reason: str) -> None:
    with pytest.raises(CannotCompile, match=reason) as caught:
        library.kernel()
    assert "\n" not in str(caught.value)


def test_a_library_of_something_else_is_a_reason(fresh, tmp_path, monkeypatch):
    source = tmp_path / "other.cpp"
    source.write_text("int something;")
    monkeypatch.setattr(library, "SOURCE", source)
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    assert_refused("cmalight_workspace")


@pytest.fixture
def noexec(monkeypatch):
    """Makes libraries below some folders fail to load, as on a file system that is mounted with noexec."""
    real, folders = ctypes.CDLL, []

    def load(name, *args, **options):
        if any(str(name).startswith(str(folder)) for folder in folders):
            raise OSError(f"{name}: failed to map segment from shared object")
        return real(name, *args, **options)

    monkeypatch.setattr(ctypes, "CDLL", load)
    return folders


def test_a_cache_that_cannot_be_executed_from_is_not_used(builds, noexec, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    noexec.append(tmp_path / "cache")
    library.kernel()
    assert len(builds) == 1


def test_a_machine_that_executes_no_library_is_a_reason_that_is_remembered(builds, noexec, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    noexec.append("/")
    for _ in range(2):
        assert_refused("failed to map segment")
    assert len(builds) == 1


def test_no_place_for_temporary_files_is_a_reason(builds, tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert_refused("nowhere")


def test_without_a_home_the_kernel_is_built_and_not_kept(builds, monkeypatch, caplog):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CMALIGHT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    library.kernel()
    assert len(builds) == 1
    assert "home directory" in caplog.text


def test_first_builds_at_the_same_time_build_once(builds, tmp_path, monkeypatch):
    """Threads stand for processes: each opens the lock anew."""
    copying = library.build

    def slow(path, command):
        time.sleep(0.2)
        return copying(path, command)

    monkeypatch.setattr(library, "build", slow)
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
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
