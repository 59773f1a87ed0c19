"""What the server of a page says over HTTP: to whom, and that it says what ``run.what_if`` does."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asked_page import Asked
from reviewing import Reviewed

import autoselect
from autoselect.domain.recipe import Recipe
from autoselect.runs.files import plain
from autoselect.scoring.target_file import read_target


@pytest.fixture(scope="module")
def run(explored: Path) -> autoselect.Run:
    return autoselect.load_run(explored)


@pytest.fixture(scope="module")
def nodes(page: Asked) -> list[dict[str, Any]]:
    return list(page.get("/api/run")["nodes"])


@pytest.fixture
def stranger(page: Asked) -> Iterator[httpx.Client]:
    """A client of this machine without the cookie."""
    with httpx.Client(base_url=page.base) as client:
        yield client


PATHS = ["/", "/api/run", "/api/jobs", "/api/jobs/1/file", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "autoselect-1=x"}], ids=str)
def test_nothing_is_told_without_the_token(stranger: httpx.Client, path: str, headers: dict[str, str]) -> None:
    answer = stranger.get(path, headers=headers)
    assert answer.status_code == 403
    assert "token" in answer.json()["error"]


def test_a_wrong_token_opens_nothing(stranger: httpx.Client) -> None:
    answer = stranger.get("/", params={"token": "wrong"})
    assert answer.status_code == 403
    assert not answer.cookies


def test_the_token_becomes_a_cookie_that_no_script_reads(page: Asked, stranger: httpx.Client) -> None:
    answer = stranger.get("/", params={"token": page.token})
    told = answer.headers["set-cookie"].lower()
    assert "httponly" in told
    assert "samesite=strict" in told
    assert f"autoselect-{page.base.rsplit(':', 1)[1]}=" in told
    assert 'content="0; url=/"' in answer.text
    assert page.token not in answer.text


def test_a_notebook_may_use_the_token_itself(page: Asked, stranger: httpx.Client) -> None:
    answer = stranger.get("/api/run", headers={"Authorization": f"Bearer {page.token}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "localhost:1", "127.0.0.1.example.com:80", ""])
def test_a_name_of_another_site_leads_nowhere(page: Asked, host: str) -> None:
    """A page of another site may let its own name lead to this machine."""
    for path in ("/api/run", f"/?token={page.token}"):
        answer = page.client.get(path, headers={"Host": host})
        assert answer.status_code == 403
        assert page.token not in answer.text


def test_localhost_is_this_machine(page: Asked) -> None:
    port = page.base.rsplit(":", 1)[1]
    assert page.client.get("/api/run", headers={"Host": f"localhost:{port}"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://example.com", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_a_page_of_another_site_may_not_ask(page: Asked, origin: str) -> None:
    answer = page.client.post("/api/ask", json={}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert "another site" in answer.json()["error"]


def test_the_page_itself_may_ask(page: Asked) -> None:
    assert page.client.post("/api/ask", json={}, headers={"Origin": page.base}).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/ask"), ("POST", "/api/jobs"), ("DELETE", "/api/jobs/1")])
def test_a_form_of_another_site_lacks_a_header(reviewed: Reviewed, page: Asked, method: str, path: str) -> None:
    with httpx.Client(base_url=page.base, cookies=page.client.cookies) as client:
        answer = client.request(method, path, content=b"{}")
    assert answer.status_code == 403
    reviewed("a request without the header", answer.json()["error"])


def test_it_listens_at_one_address_alone(page: Asked) -> None:
    """All of 127.0.0.0/8 is this machine: who listens at every address is found at each of these."""
    port = int(page.base.rsplit(":", 1)[1])
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", port))


def test_answers_are_kept_by_nobody(page: Asked) -> None:
    headers = page.client.get("/api/run").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_loads_nothing_from_elsewhere(page: Asked) -> None:
    answer = page.client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    nonce = policy.split("'nonce-", 1)[1].split("'", 1)[0]
    assert f'nonce="{nonce}"' in answer.text
    assert "unsafe-eval" not in policy
    assert f"'nonce-{nonce}'" not in page.client.get("/").headers["content-security-policy"]


def test_it_knows_what_can_be_chosen(page: Asked, run: autoselect.Run, nodes: list[dict[str, Any]]) -> None:
    told = page.get("/api/run")
    assert [node["name"] for node in nodes] == list(run.what_if("int8").nodes)
    assert [start["name"] for start in told["starts"]] == [*run.picks, "int8", "int16", "hybrid", "float"]
    assert (told["unit"], told["to_unit"], told["metric"]) == ("points", 100.0, "accuracy")
    assert told["target"] == told["targets"][0] == "integer-only"
    assert {"litert-cpu", "tflm"} < {*told["targets"]}
    assert told["recommended"] == run.picks["recommended"]
    assert {tuple(node["states"]) for node in nodes} >= {
        ("int8", "int16", "hybrid", "float"),
        ("int8", "int16", "float"),
    }


def test_what_a_node_can_be_is_what_becomes_of_it(page: Asked, nodes: list[dict[str, Any]]) -> None:
    options = {"int8": "int8", "int16": "int16", "hybrid": "deny", "float": "in_float"}
    kinds = {"int8": "integer", "int16": "int16", "hybrid": "hybrid", "float": "float"}
    for node in nodes:
        for state, option in options.items():
            answer = page.post(
                "/api/ask", start="int8" if state != "int8" else "float", changes={option: [node["name"]]}
            )
            became = answer.status_code == 200 and answer.json()["nodes"][node["name"]] in (kinds[state], "folded")
            assert became == (state in node["states"]), (node["name"], state)
            assert (state in node["why"]) != (state in node["states"])


def test_the_points_are_the_trials(page: Asked, run: autoselect.Run) -> None:
    points = page.get("/api/run")["points"]
    assert [point["number"] for point in points] == run.trials["number"].tolist()
    picked = {point["pick"]: point for point in points if point["pick"]}
    member = run.front[run.front["id"] == run.picks["recommended"]].iloc[0]
    chosen = next(point for point in points if point["id"] == member["id"])
    assert picked
    assert chosen["on_front"]
    assert chosen["drop"] == pytest.approx(member["expected_drop"])
    assert chosen["penalty"] == member["penalty"]


def test_an_answer_is_that_of_what_if(page: Asked, run: autoselect.Run, nodes: list[dict[str, Any]]) -> None:
    names = [node["name"] for node in nodes]
    for start, changes in [
        ("recommended", {}),
        ("int8", {"deny": names[:3], "in_float": names[4:6]}),
        ("accurate", {"int8": names[8:], "int16": names[:2]}),
        (0, {"repairs": []}),
    ]:
        told, own = page.ask(start, **changes), run.what_if(start, **changes)
        for key, value in plain(own.as_dict()).items():
            assert told[key] == value, key
        again = page.ask(told["recipe"])
        assert (again["size_bytes"], again["penalty"]) == (told["size_bytes"], told["penalty"])


def test_an_answer_has_its_graph(page: Asked, nodes: list[dict[str, Any]]) -> None:
    told = page.ask("int8", in_float=[nodes[9]["name"]])
    ops, pieces, crossings = (told["graph"][key] for key in ("ops", "pieces", "crossings"))
    assert len(ops) == len(pieces)
    assert max(piece or 0 for piece in pieces) == told["segments"]
    assert len({edge[0] for edge in crossings}) <= told["crossing_tensors"] <= len(crossings)
    kinds = {nodes[op[2]]["name"]: op[1] for op in ops if isinstance(op[2], int) and op[1] not in ("boundary",)}
    assert kinds[nodes[9]["name"]] == "float"
    assert all(source < place for place, op in enumerate(ops) for source in op[6])


@pytest.mark.parametrize("target", ["litert-cpu", "ethos-u55-128", "edgetpu", "tflm"])
def test_other_targets_are_asked_about_too(page: Asked, target: str) -> None:
    told = page.post("/api/ask", start="int8", target=target).json()
    assert told["target"] == target
    shown = max(piece or 0 for piece in told["graph"]["pieces"])
    assert shown == told["segments"] or read_target(target).segments == "scheduled"


MISTAKES: dict[str, tuple[str, Any, str]] = {
    "unknown start": ("/api/ask", {"from": "best"}, "The run has no candidate 'best'. There are its picks"),
    "unknown node": ("/api/ask", {"changes": {"deny": ["SOFTMAXX"]}}, "Did you mean"),
    "two states": ("/api/ask", {"changes": {"deny": ["SOFTMAX"], "int8": ["SOFTMAX"]}}, "a node has one state"),
    "unknown target": ("/api/ask", {"target": "ethos"}, "There is no target 'ethos'"),
    "unknown repair": ("/api/ask", {"changes": {"repairs": ["magic"]}}, "magic"),
    "unknown key": ("/api/ask", {"change": {}}, "change: "),
    "no list": ("/api/ask", {"changes": {"deny": "SOFTMAX"}}, "changes.deny: "),
    "no recipe": ("/api/ask", {"from": {"nodes": []}}, "from: "),
    "truth for a start": ("/api/ask", {"from": True}, "from."),
    "truth for trials": ("/api/jobs", {"kind": "search", "trials": True}, "trials: "),
    "no goal": ("/api/cheapest", {"from": "int8"}, "goal: "),
    "unknown goal": ("/api/cheapest", {"goal": "speed"}, "goal: "),
    "unknown kind": ("/api/jobs", {"kind": "train"}, "kind: "),
    "unknown pin": (
        "/api/jobs",
        {"kind": "search", "pins": {"keep_float": ["x"]}},
        "keep_float: No node is called 'x'",
    ),
    "unknown node of a job": ("/api/jobs", {"kind": "score", "changes": {"deny": ["x"]}}, "deny: No node"),
    "too many trials": ("/api/jobs", {"kind": "search", "trials": 10**9}, "trials: "),
}


@pytest.mark.parametrize(("path", "body", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_in_words(page: Asked, path: str, body: Any, words: str) -> None:
    answer = page.client.post(path, json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"1", b'{"from": "int8"'], ids=str)
def test_what_is_no_question_is_told(page: Asked, body: bytes) -> None:
    answer = page.client.post("/api/ask", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_question_has_a_length(page: Asked) -> None:
    answer = page.client.post("/api/ask", content=b'{"from": "' + b"x" * 5_000_000 + b'"}')
    assert answer.status_code == 413


def test_a_state_without_a_kernel_is_told(page: Asked, nodes: list[dict[str, Any]]) -> None:
    lacking = [node for node in nodes if "int16" not in node["states"]]
    for node in lacking:
        answer = page.post("/api/ask", changes={"int16": [node["name"]]})
        assert answer.status_code == 400
        assert "cannot have 16-bit activations" in answer.json()["error"]
    bare = next(node for node in nodes if "hybrid" not in node["states"])
    told = page.ask("int8", deny=[bare["name"]])
    assert told["fallbacks"][bare["name"]] == "no hybrid form"
    assert told["nodes"][bare["name"]] == "float"


def test_sentences_are_those_of_a_page(reviewed: Reviewed, page: Asked, nodes: list[dict[str, Any]]) -> None:
    strange = page.ask("int8", repairs=["equalization"])
    reviewed("what nobody knows", strange["sentences"])
    assert not any("--" in sentence for sentence in strange["sentences"])


def test_there_is_nothing_else(page: Asked) -> None:
    for method, path, status in [
        ("GET", "/api/none", 404),
        ("GET", "/api/jobs/none/file", 404),
        ("DELETE", "/api/jobs/none", 404),
        ("GET", "/api/ask", 405),
        ("GET", "/../manifest.json", 404),
    ]:
        answer = page.client.request(method, path)
        assert answer.status_code == status
        assert answer.json()["error"]


def test_a_bug_is_told_and_the_server_stays(explored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autoselect.explore.session import Session

    with autoselect.load_run(explored).explore(browser=False) as served, Asked(served.url) as page:
        with monkeypatch.context() as patch:
            patch.setattr(Session, "ask", lambda *_: 1 / 0)
            answer = page.post("/api/ask")
        assert answer.status_code == 500
        assert "ZeroDivisionError" in answer.json()["error"]
        assert "report it" in answer.json()["error"]
        assert page.ask()["size_bytes"] > 0


@pytest.mark.parametrize("goal", ["penalty", "size", "drop"])
def test_the_cheapest_steps_are_what_they_say(page: Asked, goal: str) -> None:
    figure = {"penalty": "penalty", "size": "size_bytes", "drop": "drop"}[goal]
    start, before = ("hybrid", page.ask("hybrid")) if goal != "drop" else ("int8", page.ask("int8"))
    moves = page.post("/api/cheapest", start=start, goal=goal).json()["moves"]
    assert 0 < len(moves) <= 8
    options = {"int8": "int8", "int16": "int16", "hybrid": "deny", "float": "in_float"}
    for move in moves:
        after = page.ask(start, **{options[move["state"]]: move["nodes"]})
        for key in ("size_bytes", "penalty"):
            assert move[key] == after[key]
        if after["trial"] is None and move["drop"] is not None:
            assert move["drop"] == pytest.approx(after["drop"], abs=1e-6)
            assert move["drop_low"] <= move["drop"] <= move["drop_high"]
        if goal == "drop":
            assert move["more_drop"] < 0.0
        else:
            assert move[figure] < before[figure]
        assert "penalty" in move["says"]


def test_steps_take_less_than_a_second(page: Asked) -> None:
    page.post("/api/cheapest", goal="penalty")
    begun = time.monotonic()
    page.post("/api/cheapest", goal="penalty")
    assert time.monotonic() - begun < 1.0


def test_two_tabs_are_answered_at_once(page: Asked, run: autoselect.Run) -> None:
    names, answers = ["int8", "int16", "hybrid", "float"] * 3, dict[int, Any]()

    def asked(place: int, name: str) -> None:
        with Asked(page.url) as tab:
            answers[place] = tab.ask(name)["size_bytes"]

    threads = [threading.Thread(target=asked, args=pair) for pair in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[i] for i in range(len(names))] == [run.what_if(name).size_bytes for name in names]


def test_asking_changes_nothing_in_the_run(page: Asked, explored: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in explored.rglob("*")}
    page.ask("int8", deny=["SOFTMAX"])
    page.post("/api/cheapest", goal="drop")
    page.get("/api/jobs")
    assert {path: path.stat().st_mtime_ns for path in explored.rglob("*")} == before


def test_the_recipe_of_an_answer_is_one(page: Asked) -> None:
    told = page.ask("int8", deny=["SOFTMAX"])
    assert Recipe.from_json(json.dumps(told["recipe"])).denylisted_nodes
