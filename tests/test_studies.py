"""Experiments say what their results depend on, and run again if and only if that changed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
import studies  # noqa: E402 - found by the path above

sys.path.remove(str(EXPERIMENTS))
STEPS = studies.read_steps()


@pytest.fixture
def runner(script: Callable[[Path], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """experiments/all.py, with the module of declarations that is imported above: no test may run the real studies."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    monkeypatch.setitem(sys.modules, "studies", studies)
    module = script(EXPERIMENTS / "all.py")
    assert module.studies is studies
    return module


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another repository, of one study: ``first`` makes a file of data, from which ``second`` makes a table."""
    root = tmp_path / "repository"
    folder = root / "experiments" / "sums"
    (root / "experiments" / "words").mkdir(parents=True)
    folder.mkdir()
    (root / "experiments" / "words" / "spoken.py").write_text('"""Said aloud."""\nWORD = "sum"\n', encoding="utf-8")
    (folder / "first.py").write_text("import sys\nopen(sys.argv[1], 'w').write(sys.argv[2])\n", encoding="utf-8")
    (folder / "second.py").write_text(
        "import os, sys, spoken\n"
        "seen = open(os.path.join(sys.argv[3], 'seen'), 'a')\n"
        "seen.write('x')\n"
        "seen.close()\n"
        "text = open(sys.argv[2]).read() + open(os.environ['AUTOSELECT_REAL_DATA'] + '/few').read()\n"
        "open(sys.argv[1] + '/table.md', 'w').write(spoken.WORD + ' ' + text)\n"
        "sys.exit('broken' in text)\n",
        encoding="utf-8",
    )
    declare(folder, full="one")
    data = tmp_path / "data"
    data.mkdir()
    (data / "few").write_text("1 2", encoding="utf-8")
    monkeypatch.setenv("AUTOSELECT_REAL_DATA", str(data))
    monkeypatch.setattr(studies, "ROOT", root)
    monkeypatch.setattr(studies, "HERE", root / "experiments")
    return root


def declare(folder: Path, full: str) -> None:
    (folder / "study.toml").write_text(
        f"""counts = []
[first]
script = "first.py"
where = "{{out}}/made"
full = "{full}"
small = "little"

[second]
script = "second.py"
where = "{{out}} {{sums.first}}/made {{work}}"
writes = ["table.md"]
data = ["few"]
imports = ["experiments/words"]
after = ["sums.first"]
""",
        encoding="utf-8",
    )


def told(runner: ModuleType, work: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What --list says of the step with results."""
    capsys.readouterr()
    runner.main(["--list", "--work", str(work)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("sums.first: once")]
    return line.removeprefix("sums.second: ")


def test_a_step_runs_until_it_is_up_to_date_and_again_if_what_it_reads_changes(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, folder = tmp_path / "work", repository / "experiments" / "sums"
    assert told(runner, work, capsys) == "never run"
    runner.main(["--work", str(work)])
    assert (folder / "results" / "table.md").read_text(encoding="utf-8") == "sum one1 2"
    assert told(runner, work, capsys) == "up to date"
    stamp = json.loads((folder / "results" / "stamp.json").read_text(encoding="utf-8"))["second"]
    assert stamp.keys() == {"commit", "date", "seconds", "inputs", "results"}
    assert stamp["inputs"].keys() == {
        "options",
        "code of experiments/sums/second.py",
        "code of experiments/words/spoken.py",
        "data few",
        "step sums.first",
    }

    module = repository / "experiments" / "words" / "spoken.py"
    module.write_text('"""Said."""\n# A comment.\nWORD = "sum"\n', encoding="utf-8")
    assert told(runner, work, capsys) == "up to date"
    module.write_text('WORD = "total"\n', encoding="utf-8")
    assert told(runner, work, capsys) == "stale: code of experiments/words/spoken.py changed"
    declare(folder, full="two")
    (tmp_path / "data" / "few").write_text("3", encoding="utf-8")
    assert told(runner, work, capsys) == (
        "stale: code of experiments/words/spoken.py changed; data few changed; step sums.first changed"
    )
    runner.main(["--work", str(work)])
    assert (folder / "results" / "table.md").read_text(encoding="utf-8") == "total two3"
    log = (work / "log.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[1] for line in log] == [*2 * [*2 * ["sums.first:"], *2 * ["sums.second:"]], "sums.second:"]
    assert re.search(r"exit code 0 after [\d.]+ s, \d+ s of processor time$", log[-2])
    assert log[-1].endswith(": table.md")


def test_results_of_before_a_change_that_is_declared_to_leave_them_are_up_to_date(
    runner: ModuleType,
    repository: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, module = tmp_path / "work", repository / "experiments" / "words" / "spoken.py"
    runner.main(["--work", str(work)])
    digests = [studies.digest_of_code(module.read_text("utf-8"))]
    for word in ("sum of", "sum"):
        module.write_text(f'# One word, two steps.\nWORD = "{word}".split()[0]\n', encoding="utf-8")
        digests.append(studies.digest_of_code(module.read_text("utf-8")))
    assert told(runner, work, capsys).startswith("stale")
    name = "code of experiments/words/spoken.py"
    rows = [
        f'[[equal]]\ninput = "{name}"\nbefore = "{before}"\nnow = "{now}"\nwhy = "{why}"\n'
        for before, now, why in zip(digests, digests[1:], ["It is the same word.", "Likewise."], strict=False)
    ]
    for count, is_stale in ((1, True), (2, False)):
        declared = tmp_path / f"{count}.toml"
        declared.write_text("".join(rows[:count]), encoding="utf-8")
        monkeypatch.setattr(studies, "EQUAL", declared)
        assert told(runner, work, capsys).startswith("stale") is is_stale


def test_each_change_that_is_declared_to_leave_results_leads_to_some() -> None:
    equal = studies.equal_inputs(studies.EQUAL)
    kept = {pair for step in STEPS.values() if (stamp := studies.stamp_of(step)) for pair in stamp["inputs"].items()}
    assert all((name, before) in kept or (name, before) in equal for (name, _), before in equal.items())


def test_a_result_that_was_edited_is_stale_and_one_whose_data_is_not_here_is_not(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    runner.main(["--work", str(work)])
    (tmp_path / "data" / "few").unlink()
    assert told(runner, work, capsys) == "up to date (cannot run here: no few in the folder of data)"
    table = repository / "experiments" / "sums" / "results" / "table.md"
    table.write_text("sum of another hand", encoding="utf-8")
    assert told(runner, work, capsys).startswith("stale: table.md is not as it was written")
    runner.main(["--work", str(work)])
    assert table.read_text(encoding="utf-8") == "sum of another hand"
    assert "left out: no few" in capsys.readouterr().out
    (tmp_path / "data" / "few").write_text("1 2", encoding="utf-8")
    runner.main(["--stamp", "--only", "sums.second"])
    assert told(runner, work, capsys) == "up to date"
    assert "seconds" not in studies.stamp_of(studies.read_steps()["sums.second"])


def test_commands_run_beside_each_other_but_behind_what_they_read_and_timed_ones_alone(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = repository / "experiments" / "sums" / "study.toml"
    text = declared.read_text(encoding="utf-8")
    third = text[text.index("[second]") :].replace("second]", "third]").replace("table.md", "other.md")
    declared.write_text(f"{text}\n{third}runs_alone = true\n", encoding="utf-8")
    program = repository / "experiments" / "sums" / "second.py"
    slow = "import time\ntime.sleep(0.3)\nopen(sys.argv[1] + '/other.md', 'w').close()\nsys.exit"
    program.write_text(program.read_text(encoding="utf-8").replace("sys.exit", slow), encoding="utf-8")
    runner.main(["--jobs", "3", "--work", str(tmp_path / "work")])
    ids = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert ids == [name for name in ("sums.first:", "sums.second:", "sums.third:") for _ in range(2)]


def test_all_is_made_again_once_and_results_that_differ_are_told(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.main(["--work", str(tmp_path / "work")])
    capsys.readouterr()
    for lines in (4, 1):
        runner.main(["--again", "--work", str(tmp_path / "again")])
        assert len(capsys.readouterr().out.splitlines()) == lines
    program = repository / "experiments" / "sums" / "second.py"
    program.write_text(program.read_text(encoding="utf-8").replace("' '", "' and '"), encoding="utf-8")
    runner.main(["--again", "--work", str(tmp_path / "again")])
    assert capsys.readouterr().out.splitlines()[-1].endswith(": table.md")


def test_a_step_reads_the_kept_files_of_one_that_is_not_run_again(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.main(["--work", str(tmp_path / "first")])
    declared = repository / "experiments" / "sums" / "study.toml"
    text = declared.read_text(encoding="utf-8")
    kept = '[first]\nwrites = ["made"]\nonce = "the machine that made it is gone"\n'
    declared.write_text(text.replace("[first]\n", kept), encoding="utf-8")
    folder = repository / "experiments" / "sums" / "results"
    for content in ("7", "8"):
        (folder / "made").write_text(content, encoding="utf-8")
        assert told(runner, tmp_path / "work", capsys) == "stale: step sums.first changed"
        runner.main(["--work", str(tmp_path / "work")])
        assert (folder / "table.md").read_text(encoding="utf-8") == f"sum {content}1 2"
    assert not told(runner, tmp_path / "work", capsys).startswith("stale")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("table.md", "| sum | seconds |\n|---|---|\n| {} | {} |\n\n| seen |\n"),
        ("table.md", "| figure | value |\n|---|---|\n| sum | {} |\n| seconds | {} |\n"),
        ("table.json", '{{"rows": [{{"sum": {}, "seconds": {}}}]}}'),
        ("table.log", "sum {} after {}.5 s\n"),
        ("table.md", "sum {}, time 0:00:0{}\n"),
    ],
    ids=["columns", "rows", "fields", "a log", "a text"],
)
def test_times_make_no_other_results(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, form: str
) -> None:
    declared, program = (repository / "experiments" / "sums" / name for name in ("study.toml", "second.py"))
    text = declared.read_text(encoding="utf-8").replace("table.md", name)
    declared.write_text(f'{text}time_columns = ["seconds"]\n', encoding="utf-8")
    lines = len(capsys.readouterr().out.splitlines())
    for figures, more in (((1, 2), 4), ((1, 3), 4), ((4, 3), 5)):
        written = f"open(sys.argv[1] + '/{name}', 'w').write({form.format(*figures)!r})"
        program.write_text(f"import sys\n{written}\n", encoding="utf-8")
        runner.main(["--work", str(tmp_path / str(figures))])
        assert len(capsys.readouterr().out.splitlines()) == lines + more


def test_what_fails_leaves_the_results_and_its_folder_so_that_it_goes_on(
    runner: ModuleType, repository: Path, tmp_path: Path
) -> None:
    work, data = tmp_path / "work", tmp_path / "data" / "few"
    table = repository / "experiments" / "sums" / "results" / "table.md"
    runner.main(["--work", str(work)])
    data.write_text(" broken", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"sums\.second: exit code 1, see .*said\.txt"):
            runner.main(["--work", str(work)])
    assert table.read_text(encoding="utf-8") == "sum one1 2"
    seen = [path.read_text(encoding="utf-8") for path in work.rglob("seen")]
    assert sorted(seen) == ["x", "xx"]  # The second try has the folder of the first; other data has another folder.


def test_a_small_pass_runs_all_and_keeps_nothing(
    runner: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    runner.main(["--small", "--work", str(work)])
    assert not (repository / "experiments" / "sums" / "results").exists()
    assert (work / "sums" / "second" / "small" / "out" / "table.md").read_text(encoding="utf-8") == "sum little1 2"
    assert told(runner, work, capsys) == "never run"


def test_a_wrong_declaration_and_a_wrong_name_are_told(runner: ModuleType, repository: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"'sum'\. Steps: sums\.first, sums\.second"):
        runner.main(["--only", "sum"])
    declared = repository / "experiments" / "sums" / "study.toml"
    text = declared.read_text(encoding="utf-8")
    declared.write_text(text.replace("writes =", "write ="), encoding="utf-8")
    with pytest.raises(ValueError, match=r"sums/study.toml, \[second\]: .*got \['write'\]"):
        studies.read_steps()
    declared.write_text(text.replace('["sums.first"]', '["sums.zeroth"]'), encoding="utf-8")
    with pytest.raises(ValueError, match=r"'after', got \['sums.zeroth'\]"):
        studies.read_steps()


def commands() -> Iterator[tuple[str, str]]:
    """Study and script of each command in a README of an experiment."""
    for page in sorted(EXPERIMENTS.glob("*/README.md")):
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S):
            for path in re.findall(r"python3?\S* ([\w./]+\.py)", block):
                if not path.startswith("tests/"):
                    name = path.removeprefix("experiments/").removeprefix("../")
                    yield (name.split("/")[0], name.split("/")[1]) if "/" in name else (page.parent.name, name)


def test_each_command_of_a_readme_is_a_step_and_each_study_has_one() -> None:
    steps = {(step.study, step.script) for step in STEPS.values()}
    assert set(commands()) <= steps
    assert {step.study for step in STEPS.values()} == {path.parent.name for path in EXPERIMENTS.glob("*/README.md")}


@pytest.mark.parametrize("name", STEPS)
def test_a_declaration_names_what_there_is(name: str, runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    step = STEPS[name]
    for variable in step.needs:
        monkeypatch.setenv(variable, "there")
    assert all(path.is_file() for path in studies.scripts_of(step))
    assert all(folder.is_dir() for folder in step.search_path)
    assert step.cost in runner.COSTS
    assert step.tested in {"quick", "slow", "night"}
    assert set(step.counts) <= {"builder", "packages", *studies.ROOMS}
    assert step.once or step.results or any(name in other.after for other in STEPS.values())
    for small in (False, True):
        command = runner.command_of(step, STEPS, Path("/work"), small)
        assert Path(command[1]).is_file()
        assert not any("{" in word or "$" in word for word in command), command
    kept = step.folder / "results"
    if kept.is_dir() and studies.stamp_of(step):
        assert [result for result in step.results if not step.place_of(result).exists()] == []


def test_results_that_have_a_stamp_are_as_they_were_written() -> None:
    """Nobody types a result in. If its command was run by hand: ``experiments/all.py --stamp --only STEP`` says so."""
    edited = [
        f"{step.id}: {name}"
        for step in STEPS.values()
        for name, digest in (studies.stamp_of(step) or {"results": {}})["results"].items()
        if studies.digest_of(step.place_of(name)) != digest
    ]
    assert edited == []


SMALL = [name for name, step in STEPS.items() if step.results and not step.once and step.tested == "quick"]
"""``make studies`` runs the others."""


@pytest.mark.parametrize("name", SMALL)
def test_the_command_of_a_step_still_runs(
    name: str, runner: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> None:
    step = STEPS[name]
    before = [step, *(STEPS[other] for other in step.after if step.reads_files_of(STEPS[other], True))]
    lacks = "; ".join(filter(None, (studies.why_blocked(each, small=True) for each in before)))
    if lacks:
        pytest.skip(lacks)
    runner.main(["--small", "--only", name, "--work", str(tmp_path_factory.getbasetemp() / "studies")])
