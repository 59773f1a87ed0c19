"""Searches with a target, on the embedded case."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pump
import pytest

import autoselect
from autoselect.api.reporting import recovered
from autoselect.errors import AutoselectError, UsageError
from autoselect.runs.folder import RunFolder
from autoselect.study.recording.kept_case import kept_units

TFLM = Path(__file__).resolve().parents[2] / "search_spaces" / "targets" / "tflm.toml"


def test_a_front_for_tflm_has_no_hybrid_op_and_an_int8_interface(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", target="tflm", trials=8, early_exit=False)
    assert len(run.front) > 1
    for name in run.front["id"]:
        found = autoselect.inspect(run.model_path(name), target="tflm")
        assert found["target"]["refusal"] is None
        ops = found["subgraphs"][0]["ops"]
        assert "hybrid" not in {op["kind"] for op in ops}
        row = run.front[run.front["id"] == name].iloc[0]
        assert row["penalty"] == pytest.approx(found["target"]["penalty"])
    assert not (run.trials["origin"] == "baseline:drq").any()
    assert run.manifest["settings"]["fallback"] == "float"
    assert run.manifest["settings"]["io_type"] == "int8"


def test_hybrid_ops_are_refused_before_any_work_where_they_do_not_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'tflm'.* hybrid .*--fallback float"):
        pump.search(tmp_path / "run", target="tflm", fallback="drq")
    assert not (tmp_path / "run").exists()


def test_an_unknown_target_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'tflmm'.*'tflm'"):
        pump.search(tmp_path / "run", target="tflmm")


def test_without_vela_a_search_for_ethos_u_tells_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"pip install 'autoselect\[ethos-u\]'"):
        pump.search(tmp_path / "run", target="ethos-u55-128")


def test_a_target_that_no_candidate_can_satisfy_is_told_with_the_rule_and_the_node(tmp_path: Path) -> None:
    rule = '\n[[reject]]\nops = ["{}"]\nprecisions = ["int8", "float"]\nby = "runtime"\nwhy = "No such op."\n'
    op_type = autoselect.inspect(pump.MODEL_PATH)["subgraphs"][0]["ops"][0]["op_type"]
    (tmp_path / "own.toml").write_text(TFLM.read_text() + rule.format(op_type))
    with pytest.raises(UsageError, match=rf"'tflm': .*{op_type} '.*No such"):
        pump.search(tmp_path / "run", target=str(tmp_path / "own.toml"))


def test_a_node_that_the_target_takes_in_integers_only_is_kept_there(tmp_path: Path) -> None:
    ops = {op["op_type"] for op in autoselect.inspect(pump.MODEL_PATH)["subgraphs"][0]["ops"]}
    kept = "FULLY_CONNECTED"
    assert kept in ops
    rule = f'\n[[reject]]\nops = ["{kept}"]\nprecisions = ["float"]\nby = "compiler"\nwhy = "No float one."\n'
    (tmp_path / "own.toml").write_text(TFLM.read_text() + rule)
    run = pump.search(tmp_path / "run", target=str(tmp_path / "own.toml"), trials=6, early_exit=False)
    assert any(kept in warning and "in integers" in warning for warning in run.summary["warnings"])
    for name in run.front["id"]:
        found = autoselect.inspect(run.model_path(name))["subgraphs"][0]["ops"]
        assert {op["kind"] for op in found if op["op_type"] == kept} == {"integer"}


NPU = """schema_version = 1
name = "own-npu"
why = "An NPU without ADD and MUL, which the CPU computes between its pieces."
unit = "microseconds"
segments = "any"
[crossing]
fixed = {crossing}
per_byte = 0.0
[accelerator]
name = "the NPU"
[accelerator.int8]
ops = ["SUB", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "CONV_2D", "LOGISTIC", "CONCATENATION", "MEAN", "FULLY_CONNECTED"]
per_mac = 1e-6
per_element = 1e-4
[host]
name = "the CPU"
int8 = {{ ops = "all", per_mac = 1e-4, per_element = 1e-3 }}
float = {{ ops = "all", per_mac = 1e-1, per_element = 2e-3 }}
conversion = {{ ops = "all", per_mac = 0.0, per_element = 2e-3 }}
"""


@pytest.mark.parametrize("crossing", [0.0, 1000.0])
def test_a_good_integer_model_in_many_pieces_is_the_only_one_if_no_other_costs_less(
    crossing: float, tmp_path: Path
) -> None:
    (tmp_path / "npu.toml").write_text(NPU.format(crossing=crossing))
    run = pump.search(tmp_path / "run", target=str(tmp_path / "npu.toml"), max_drop=0.6, trials=4)
    first, *others = run.trials["penalty"]
    if crossing:
        assert min(others) < first
    else:
        assert others == []
        assert run.summary["ended_early"]


def test_a_check_builds_the_models_that_a_target_leaves(tmp_path: Path) -> None:
    rule = '\n[[reject]]\nops = ["SOFTMAX"]\nprecisions = ["int8", "int16"]\nby = "runtime"\nwhy = "No such op."\n'
    (tmp_path / "own.toml").write_text(TFLM.read_text() + rule)
    found = autoselect.check(**pump.LIVE, target=str(tmp_path / "own.toml"), io_type="float32", workers=1)
    assert found.refused == ""
    assert found.build_seconds > 0.0
    assert found.search_seconds > 0.0


def chip(path: Path, **host: float) -> str:
    """A chip of one processor, with what a multiply-accumulate costs in each precision that it runs."""
    kinds = "".join(f'{kind} = {{ ops = "all", per_mac = {cost}, per_element = 1.0 }}\n' for kind, cost in host.items())
    head = 'schema_version = 1\nname = "own-chip"\nwhy = "A test."\nunit = "cycles"\nsegments = "none"\nio = "int8"\n'
    path.write_text(f'{head}[crossing]\nfixed = 0.0\nper_byte = 0.0\n[host]\nname = "the CPU"\n{kinds}')
    return str(path)


def test_the_best_of_a_chip_may_have_16_bits_that_the_other_chip_lacks(tmp_path: Path) -> None:
    wide = Path(chip(tmp_path / "wide.toml", int8=3.0, int16=1.0, float=9.0, conversion=0.0))
    narrow = Path(chip(tmp_path / "narrow.toml", int8=1.0, float=9.0, conversion=0.0))
    narrow.write_text(narrow.read_text().replace("own-chip", "narrow-chip"))
    run = pump.search(tmp_path / "run", target=f"{wide},{narrow}", trials=1)
    (integer,) = run.trials["penalty"]
    assert integer > 1.5


def test_what_a_target_refuses_is_tried_once(tmp_path: Path) -> None:
    path = Path(chip(tmp_path / "chip.toml", int8=1.0, float=9.0, conversion=0.0))
    path.write_text(f'{path.read_text()}hybrid = {{ ops = ["FULLY_CONNECTED"], per_mac = 1.0, per_element = 1.0 }}\n')
    run = pump.search(tmp_path / "run", target=str(path), trials=5, repairs=True, early_exit=False)
    assert run.trials["origin"].tolist().count("baseline:drq") == 1


def test_a_chip_without_float_is_searched_in_8_and_16_bits(tmp_path: Path) -> None:
    target = chip(tmp_path / "chip.toml", int8=1.0, int16=3.0)
    run = pump.search(tmp_path / "run", target=target, trials=8, early_exit=False, int16=None)
    recipes = [autoselect.Recipe.from_json(text) for text in run.trials["recipe"]]
    wide = [bool(recipe.int16_nodes) for recipe in recipes]
    assert run.summary["counts"]["failed"] == 0
    assert not any(recipe.denylisted_nodes or recipe.float_nodes for recipe in recipes)
    assert set(run.trials["float_ops"].dropna()) == {0}
    assert sum(run.trials["origin"][wide] == "surrogate") > 0
    everything = frozenset[str]().union(*(recipe.int16_nodes for recipe in recipes))
    assert kept_units(RunFolder(run.directory))[1].not_outside == everything
    all_in_16 = run.trials["penalty"].max()
    assert all_in_16 > 2.0 * run.trials["penalty"].min()
    assert run.summary["references"]["float"]["penalty"] > 0.9 * all_in_16


def test_a_chip_that_runs_8_bits_alone_gets_the_repaired_integer_model(tmp_path: Path) -> None:
    target = chip(tmp_path / "chip.toml", int8=1.0)
    run = pump.search(tmp_path / "run", target=target, trials=8, early_exit=False, repairs=["bias"])
    outlook = autoselect.check(**pump.LIVE, target=target, trials=8, repairs=["bias"], workers=1)
    assert (outlook.trials, outlook.phase_seconds["probes"]) == (len(run.trials), 0.0)
    assert set(run.trials["origin"]) == {"baseline:fiq", "baseline:fiq+repairs"}
    assert "whole models" in run.summary["ended_early"]
    assert run.picks["recommended"] in set(run.front["id"])


def test_a_chip_without_integers_is_told_of_before_the_trials(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"quantize\. .* int8"):
        pump.search(tmp_path / "run", target=chip(tmp_path / "chip.toml", float=1.0))


def test_a_chip_of_16_bits_alone_beside_a_float_processor_gets_16_bits(tmp_path: Path) -> None:
    """A node that the target refuses in 8 bits is float or has 16 bits."""
    target = Path(chip(tmp_path / "chip.toml", float=9.0, conversion=0.0))
    dsp = '[accelerator]\nname = "the DSP"\nint16 = { ops = "all", per_mac = 0.1, per_element = 0.1 }\n'
    target.write_text(target.read_text().replace('"none"', '"any"') + dsp)
    run = pump.search(tmp_path / "run", target=str(target), trials=8, early_exit=False, int16=True)
    recipes = [autoselect.Recipe.from_json(text) for text in run.trials["recipe"]]
    assert run.summary["counts"]["failed"] == 0
    everything = max((recipe.denylisted_nodes | recipe.int16_nodes for recipe in recipes), key=len)
    assert all(recipe.denylisted_nodes | recipe.int16_nodes == everything for recipe in recipes)
    mixed = [bool(recipe.int16_nodes) and bool(recipe.denylisted_nodes) for recipe in recipes]
    assert sum(run.trials["origin"][mixed] == "surrogate") > 0
    recommended = run.front.set_index("id").loc[run.picks["recommended"]]
    assert recommended["penalty"] < 0.3 * run.summary["references"]["float"]["penalty"]


def test_a_chip_of_one_scale_a_tensor_is_told_and_obeyed(tmp_path: Path) -> None:
    target = Path(chip(tmp_path / "chip.toml", int8=1.0, float=9.0, conversion=0.0))
    target.write_text(target.read_text().replace("io =", "per_channel = false\nio ="))
    run = pump.search(tmp_path / "run", target=str(target), trials=2, early_exit=False)
    assert not any(autoselect.Recipe.from_json(text).per_channel for text in run.trials["recipe"])
    assert any("one scale" in warning for warning in run.summary["warnings"])
    recipe, output = autoselect.Recipe(io_type="int8"), tmp_path / "built.tflite"
    with pytest.raises(AutoselectError, match="one scale"):
        autoselect.build(recipe, model=pump.MODEL_PATH, calibration=pump.calibration, target=str(target), output=output)
    assert not output.exists()


def test_a_chip_on_which_float_costs_as_little_as_integers_gets_the_float_model(tmp_path: Path) -> None:
    """Mixes change precision, which costs; the all-integer model does so at its ends. Float cannot lose anything."""
    target = Path(chip(tmp_path / "chip.toml", int8=1.0, float=1.0, conversion=1.0))
    target.write_text(target.read_text().replace('io = "int8"', 'io = "float32"'))
    run = pump.search(tmp_path / "run", target=str(target), trials=8)
    chosen = run.trials.set_index("id").loc[run.picks["recommended"]]
    assert chosen["float_ops"] == run.trials["float_ops"].max()
    assert chosen["penalty"] == run.trials["penalty"].min()
    own = run.front.set_index("id").loc[run.picks["recommended"]]
    assert [own[key] for key in ("drop", "drop_bound", "heldout_drop_low", "heldout_drop_high")] == [0.0] * 4
    assert run.picks["accurate"] == run.picks["recommended"]
    killed = shutil.copytree(run.directory, tmp_path / "killed")
    (killed / "summary.json").unlink()
    RunFolder(killed).work.mkdir()
    assert recovered(killed).picks["recommended"] == run.picks["recommended"]
