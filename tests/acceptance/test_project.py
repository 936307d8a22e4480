"""The files around the code: workflows, hooks, templates and the changelog."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import primavista

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def read_commands(path: Path) -> list[str]:
    """Every `run:` of a workflow."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


def test_there_are_three_workflows():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "tests"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "jobs", "permissions"} <= set(content)
    targets = {word for line in read_commands(path) for word in re.findall(r"\bmake (\S+)", line)}
    assert targets, "a workflow calls make"
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, re.M), target


def recipe_lines(target: str) -> list[str]:
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert recipe is not None
    pytest_line = re.search(r"^PYTEST := (.*)$", MAKEFILE, re.M)
    assert pytest_line is not None
    text = recipe[1].replace("$(PYTEST)", pytest_line[1]).replace(" $(ARGS)", "")
    return [line.strip().removeprefix("$(BIN)/") for line in text.splitlines()]


def test_windows_runs_what_make_runs():
    """There is no make on Windows: each command of `make test` is in its job."""
    commands = "\n".join(read_commands(ROOT / ".github" / "workflows" / "tests.yml"))
    for line in recipe_lines("lint") + recipe_lines("test"):
        assert line in commands, line
    assert "pip install --require-hashes --no-deps -r locks/all.txt -r locks/torch.txt" in commands


def test_the_tests_run_on_three_systems_and_the_supported_pythons():
    jobs = yaml.safe_load(WORKFLOWS[2].read_text(encoding="utf-8"))["jobs"]
    assert jobs["unix"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    assert jobs["windows"]["runs-on"] == "windows-latest"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    for job in jobs.values():
        assert job["strategy"]["matrix"]["python"] == named


def test_a_release_waits_for_all_tests():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    [command] = [step["run"] for step in jobs["test"]["steps"] if "run" in step]
    assert command.startswith('make test-all PYTHON=python ARGS="--no-skips ')
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")


SKIPPING = """
import pytest


@pytest.mark.parametrize("reason", ["needs a GPU", "Avalanche is not installed", "no luck"])
def test_a(reason):
    pytest.skip(reason)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code"),
    [(["-k", "GPU or Avalanche"], 0), ([], 1), (["--may-skip", "no luck"], 0)],
)
def test_what_should_be_here_must_not_be_skipped(tmp_path, options, code):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--no-skips", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (TESTS, ROOT / "src")))}
    run = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == code
    assert ("--no-skips: tests were skipped: no luck" in run.stdout) == bool(code)
    assert re.search(r"\d+ seconds of processor time", run.stdout)


def test_pre_commit_has_the_checks_of_make_lint():
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = [hook["entry"] for repo in yaml.safe_load(text)["repos"] for hook in repo["hooks"]]
    for line in recipe_lines("lint"):
        command = line.split(" src ")[0]
        assert any(entry.startswith(command) for entry in entries), command


def test_issue_forms_are_valid():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.stem != "config":
            assert {"name", "description", "body"} <= set(form)
            assert all("label" in field["attributes"] for field in form["body"])


def test_the_newest_entry_of_the_changelog_is_the_version_of_the_package():
    """Changes that are not released yet may stand above it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = [name for name in re.findall(r"^## (.*)$", text, re.M) if name != "Unreleased"]
    assert sections[0].partition(":")[0] == primavista.__version__
