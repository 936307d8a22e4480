"""The files around the code: workflows, hooks, templates and the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import primavista

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
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


def test_windows_runs_what_make_runs():
    """There is no make on Windows: each command of `make test` is in its job."""
    commands = "\n".join(read_commands(ROOT / ".github" / "workflows" / "tests.yml"))
    for target in ("lint", "test"):
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
        assert recipe is not None
        for line in recipe[1].splitlines():
            assert line.strip().removeprefix("$(BIN)/") in commands, line
    assert "pip install --require-hashes --no-deps -r locks/all.txt -r locks/torch.txt" in commands


def test_the_tests_run_on_three_systems_and_the_supported_pythons():
    jobs = yaml.safe_load(WORKFLOWS[2].read_text(encoding="utf-8"))["jobs"]
    assert jobs["unix"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    assert jobs["windows"]["runs-on"] == "windows-latest"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    for job in jobs.values():
        assert job["strategy"]["matrix"]["python"] == named


def test_pre_commit_has_the_checks_of_make_lint():
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = [hook["entry"] for repo in yaml.safe_load(text)["repos"] for hook in repo["hooks"]]
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert recipe is not None
    for line in recipe[1].splitlines():
        command = re.sub(r"\$\(BIN\)/", "", line).split(" src ")[0].strip()
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
