"""Rewrites in an order, the view of a graph that they edit, and files that are parsed and serialised once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import zoo

from autoselect.rewrites.rewriting import GraphView, Rewrite, has_ops, rewrite, rewritten
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile


def branching() -> bytes:
    """A layer that two ops read, whose sum, of one of them twice, is an output; the other is one too."""

    def call(x: Any) -> Any:
        tf = zoo.tf()
        layer = tf.matmul(x, zoo.weights(8, 8))
        left, right = tf.tanh(layer), tf.nn.sigmoid(layer)
        return {"sum": tf.add(left * left, right), "right": right}

    return zoo.from_function(call, (1, 8)).float_model


def renamed(model: fb.Model) -> list[fb.Operator]:
    ops = GraphView(model).typed("TANH")
    for op in ops:
        op.opcodeIndex = editing.add_code(model, "RELU")
    return ops


RELUS = Rewrite(name="made RELUs", applies=has_ops("TANH"), deed=renamed, note="{} TANH became RELU.")


def refused(_model: fb.Model) -> list[fb.Operator]:
    raise AssertionError("the condition is not met")


def test_rewrites_are_done_in_their_order_and_say_what_they_did() -> None:
    model = fb.parse(branching())
    nothing = Rewrite(name="nothing", deed=lambda _: [], note="{} of nothing.")
    unmet = Rewrite(name="unmet", applies=has_ops("TANH"), deed=refused)
    quiet = Rewrite(name="quiet", applies=has_ops("RELU"), deed=lambda _: ["part"])
    done = rewrite(model, (nothing, RELUS, unmet, quiet))
    assert done.notes == (RELUS.note.format(1),)
    assert list(done.found) == ["made RELUs", "quiet"]
    assert not GraphView(model).typed("TANH")


def test_a_file_that_others_hold_stays_as_it_is() -> None:
    file = TfliteFile(branching())
    before = file.content
    found = rewritten(file, (RELUS,))
    assert found != file
    assert rewritten(found, (RELUS,)) is found
    assert fb.serialise(file.model) == fb.serialise(fb.parse(before))


def test_the_view_says_who_writes_and_who_reads() -> None:
    view = GraphView(fb.parse(branching()))
    [layer], [tanh], [sigmoid], [product], [total] = (
        view.typed(name) for name in ("FULLY_CONNECTED", "TANH", "LOGISTIC", "MUL", "ADD")
    )
    of = {name: int(op.outputs[0]) for name, op in (("layer", layer), ("tanh", tanh), ("sigmoid", sigmoid))}
    assert {id(op) for op in view.readers(of["layer"])} == {id(tanh), id(sigmoid)}
    assert view.writer(of["layer"]) is layer
    assert view.writer(int(view.graph.inputs[0])) is None
    assert view.sole_reader(of["layer"]) is None  # two ops read it
    assert view.sole_reader(of["tanh"]) is None  # one op reads it twice
    assert view.sole_reader(of["sigmoid"]) is None  # a caller reads it too
    assert view.sole_reader(int(product.outputs[0])) is total
    assert view.sole_reader(int(view.graph.inputs[0])) is None  # no op writes it
    assert view.is_output(of["sigmoid"])
    assert not view.is_output(of["layer"])


def test_ops_take_the_place_of_the_last_of_others() -> None:
    view = GraphView(fb.parse(branching()))
    [tanh], [product] = view.typed("TANH"), view.typed("MUL")
    types = [view.type_of(op) for op in view.graph.operators]
    new = editing.new_op(view.model, "RELU", [int(tanh.inputs[0])], int(product.outputs[0]))
    view.replace([product, tanh], [new])
    wanted = ["RELU" if name == "MUL" else name for name in types if name != "TANH"]
    assert [view.type_of(op) for op in view.graph.operators] == wanted
    assert view.writer(int(product.outputs[0])) is new
    assert view.writer(int(tanh.outputs[0])) is None
    view.replace([])
    assert [view.type_of(op) for op in view.graph.operators] == wanted


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often models are parsed and serialised."""
    found: Counter[str] = Counter()

    def counted(name: str) -> Callable[[Any], Any]:
        plain = getattr(fb, name)

        def call(given: Any) -> Any:
            found[name] += 1
            return plain(given)

        return call

    for name in ("parse", "serialise"):
        monkeypatch.setattr(fb, name, counted(name))
    return found


def test_a_file_is_parsed_and_serialised_once(calls: Counter[str]) -> None:
    content = branching()
    calls.clear()
    file = TfliteFile(content)
    assert file.content is content
    assert not calls
    assert file.model is file.model
    assert len(file.graph.ops) == len(file.model.subgraphs[0].operators)
    assert calls == {"parse": 1}
    other = TfliteFile(model=file.copied())
    assert other.content is other.content
    assert calls == {"parse": 1, "serialise": 1}


def test_objects_that_are_taken_are_nobody_elses() -> None:
    content = branching()
    for file in (TfliteFile(content), TfliteFile(model=fb.parse(content))):
        taken = file.taken()
        renamed(taken)
        assert has_ops("TANH")(file.model)
        assert fb.serialise(file.model) == fb.serialise(fb.parse(content))


def test_a_file_goes_to_another_process_as_its_bytes() -> None:
    file = TfliteFile(model=fb.parse(branching()))
    assert pickle.loads(pickle.dumps(file)) == file
    assert len(pickle.dumps(file)) < len(file.content) + 200
