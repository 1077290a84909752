"""The engine as a rule of a comparison, and several starts a run."""

import pytest

from cmalight.bench import plan
from cmalight.bench.running.one_run import Job, train
from cmalight.bench.spec.study import SpecError
from cmalight.compiled.native.library import compiler
from tests.bench.common import contents, finished, spec, start, toml
from tests.training.common import needs_compiler


def trained(**changes):
    return [train(Job(run), lambda told: None) for run in plan(spec(**changes))]


def test_the_engine_and_the_starts_define_a_run_where_they_are_not_the_defaults():
    (eager,), (compiled,) = plan(spec(engine="eager", starts=1)), plan(spec(engine="compiled"))
    (default,), (several,) = plan(spec()), plan(spec(engine="compiled", starts=3))
    assert eager.key == default.key
    assert "engine" not in default.definition.to_plain()
    assert len({default.key, compiled.key, several.key}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "auto"}, "expected one of eager, compiled"),
        ({"starts": 0, "engine": "compiled"}, "from 1 to 1000"),
        ({"starts": 2}, "set engine to 'compiled'"),
        ({"starts": 2, "engine": "compiled", "time_limit": 1.0}, "cannot be compared"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        spec(**changes)


@needs_compiler
@pytest.mark.slow
def test_a_compiled_run_measures_what_the_eager_one_does_and_more_starts_end_no_worse():
    (eager,) = trained(solvers=["cmalight"])
    (compiled,) = trained(solvers=["cmalight"], engine="compiled")
    (several,) = trained(solvers=["cmalight"], engine="compiled", starts=3)
    assert compiled["epochs"]["outcome"] == eager["epochs"]["outcome"]
    assert compiled["epochs"]["train_loss"] == pytest.approx(eager["epochs"]["train_loss"], rel=1e-4)
    assert (eager["compile_seconds"], eager["status"]) == (0.0, "done")
    assert compiled["compile_seconds"] > 0
    assert several["final_loss"] <= eager["final_loss"] * (1 + 1e-4)


def test_a_solver_that_cannot_be_compiled_fails_with_the_reason():
    (result,) = trained(solvers=["rmsprop"], engine="compiled")
    assert result["status"] == "failed"
    assert "RMSprop are not compiled" in result["error"]["message"]


@needs_compiler
@pytest.mark.slow
def test_the_command_builds_once_per_network_and_solver_whatever_the_seeds_and_processes(tmp_path):
    """Counted by the compiler itself, in an empty cache."""
    builds, script = tmp_path / "builds", tmp_path / "compiler"
    script.write_text(f"""#!/bin/sh
case "$*" in *step.cpp*) echo "$*" >> {builds};; esac
exec {compiler()} "$@"
""")
    script.chmod(0o755)
    path = toml(tmp_path / "spec.toml", networks=["1x5", "2x5"], solvers=["sgd", "adam"], seeds=3, engine="compiled")
    out = tmp_path / "out"
    environment = {"CXX": str(script), "CMALIGHT_CACHE": str(tmp_path / "cache")}
    code, _, stderr = finished(start("run", path, "--out", out, "--workers", 2, "--quiet", env=environment))
    assert code == 0, stderr
    assert [one["status"] for one in contents(out).values()] == ["done"] * 12
    assert len(builds.read_text().splitlines()) == 4
