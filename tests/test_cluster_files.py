"""The files for clusters in the documentation have the form that their readers expect; no cluster is asked."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import autoselect

FOLDER = Path(__file__).parents[1] / "docs" / "distributed"
PAGE = FOLDER.with_suffix(".md").read_text(encoding="utf-8")


def test_the_script_for_slurm_calls_what_there_is_and_is_the_pages() -> None:
    text = (FOLDER / "slurm.py").read_text(encoding="utf-8")
    assert text in PAGE
    (call,) = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and "search" in ast.dump(node.func)
    ]
    assert {keyword.arg for keyword in call.keywords} <= set(inspect.signature(autoselect.search).parameters)


def test_the_cluster_for_kubernetes_is_one_of_the_operator() -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (found["apiVersion"], found["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    for part in ("worker", "scheduler"):
        pod = found["spec"][part]["spec"]
        (container,) = pod["containers"]
        assert container["args"][:2] == ["dask", part]
        assert all(isinstance(arg, str) for arg in container["args"])
        assert {"--tls-ca-file", "--tls-cert", "--tls-key"} <= set(container["args"])
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    names = {port["name"] for port in found["spec"]["scheduler"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in found["spec"]["scheduler"]["service"]["ports"]} == names


def options_of(command: str) -> set[str]:
    cli = pytest.importorskip(f"distributed.cli.dask_{command}", reason="needs autoselect[distributed]")
    return {name for option in cli.main.params for name in [*option.opts, *option.secondary_opts]}


@pytest.mark.parametrize("file", ["ssh.sh", "kubernetes.yaml"])
def test_the_options_of_dask_exist(file: str) -> None:
    text = re.sub("#.*", "", (FOLDER / file).read_text(encoding="utf-8"))
    said = set(re.findall(r"--[a-z][a-z-]+", text))
    assert "--tls-ca-file" in said
    assert said <= options_of("scheduler") | options_of("worker")


def test_the_options_of_dask_ssh_exist() -> None:
    (line,) = re.findall("`dask-ssh (.*?)`", PAGE)
    assert set(re.findall(r"--[a-z-]+", line)) <= options_of("ssh")


def test_the_script_for_ssh_is_a_shell_script() -> None:
    shell = shutil.which("sh")
    if shell is None:
        pytest.skip("no shell")
    subprocess.run([shell, "-n", str(FOLDER / "ssh.sh")], check=True)
