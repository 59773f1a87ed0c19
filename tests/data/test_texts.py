"""What is wrong in settings is told by its place, in our words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from autoselect.data.texts import first_wrong, toml_of
from autoselect.errors import UsageError


def known(name: str) -> str:
    if name != "ADD":
        raise ValueError(f"there is no op {name!r}")
    return name


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["a", "b"] = "a"
    ops: Literal["all"] | list[str] = "all"
    trials: int = Field(default=1, ge=1)

    @field_validator("trials")
    @classmethod
    def _even(cls, value: int) -> int:
        if value == 7:
            raise ValueError("expected another number")
        return value


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "c", "trials": 0}, "kind: Input should be 'a' or 'b', got 'c'."),
        ({"ops": 3, "trials": 0}, "ops: Input should be 'all' or a list, got 3."),
        ({"ops": ["x", 3]}, "ops.1: Input should be a valid string, got 3."),
        ({"trials": 7}, "trials: expected another number, got 7."),
        ({"trails": {"x": 1}}, "trails: there is no such key, got a table."),
    ],
    ids=["the first of two", "a word or a list", "an item", "our own words", "an unknown key"],
)
def test_the_first_wrong_value_is_told(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(values)
    assert first_wrong(caught.value) == words


class Prices(BaseModel):
    model_config = ConfigDict(extra="forbid")
    per_mac: float
    others: dict[Annotated[str, AfterValidator(known)], float] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"per_macs": 1.0}, r"^per_macs: .*'per_mac'\?$"),
        ({"cost": 1.0}, r"^per_mac: .*missing\.$"),
        ({"per_mac": 1.0, "others": {"ADDD": 1}}, r"^others\.ADDD: there is no op 'ADDD'\.$"),
    ],
    ids=["a name much like it", "another name", "a key that is wrong itself"],
)
def test_a_wrong_key_is_told_with_the_one_that_it_should_be(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Prices.model_validate(values)
    assert re.search(words, first_wrong(caught.value))


class _Inner(BaseModel):
    kind: Literal["a"]


class _Other(BaseModel):
    kind: Literal["b"]


class _Outer(BaseModel):
    names: tuple[str, ...] = ()
    costs: dict[str, float] = Field(default_factory=dict)
    inner: _Inner | None = None
    either: Annotated[_Inner | _Other, Field(discriminator="kind")] | None = None


@pytest.mark.parametrize(
    "values", [{"names": "x"}, {"costs": 3}, {"inner": 3}, {"either": 3}, {"either": {"name": "x"}}]
)
def test_what_is_expected_has_no_names_of_pythons(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        _Outer.model_validate(values)
    told = first_wrong(caught.value)
    assert not any(word in told for word in ("tuple", "dictionary", "instance", "object", "discriminator", "_Inner"))


def test_the_mark_of_an_editor_before_a_text_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b'\xef\xbb\xbfmodel = "\xc3\xbc"\n')
    assert toml_of(path, called="It") == {"model": "ü"}


@pytest.mark.parametrize("name", ["\0.toml", "x" * 5000], ids=["no path", "too long"])
def test_what_is_no_path_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        toml_of(Path(name), called="It")
