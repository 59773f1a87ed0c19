import os
import subprocess
import sys

import pytest

_WARM_UP = "from autoselect.quantize.preparing import converter; converter.import_tensorflow(); import sys; "


def said(code: str, **environment: str) -> str:
    """What a fresh process prints."""
    known = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**known, **environment}
    )
    return done.stdout.strip()


def test_a_worker_imports_tensorflow_without_keras() -> None:
    loaded = "print(*sorted({'tensorflow', 'keras'} & {*sys.modules}))"
    assert said(_WARM_UP + loaded) == "tensorflow"


@pytest.mark.slow
def test_keras_is_there_for_those_who_use_it() -> None:
    """In copies of one process that was warmed up."""
    users = [
        "import keras; from tensorflow.keras import layers; print(layers.Dense is keras.layers.Dense)",
        "import tensorflow.keras.layers as layers; import keras; print(layers.Dense is keras.layers.Dense)",
        "import tensorflow as tf; import keras; print(tf.keras.layers.Dense is keras.layers.Dense)",
        "import keras, tensorflow as tf; print(tf.optimizers.Adam is keras.optimizers.Adam)",
    ]
    copies = f"""
import os
for code in {users!r}:
    if copy := os.fork():
        os.waitpid(copy, 0)
    else:
        exec(code)
        break
"""
    assert said(_WARM_UP + copies).split() == ["True"] * len(users)


@pytest.mark.slow
def test_legacy_keras_stays_where_it_is_asked_for() -> None:
    code = "import tensorflow as tf; print(tf.keras.layers.Dense.__module__)"
    assert said(_WARM_UP + code, TF_USE_LEGACY_KERAS="1").startswith("tf_keras.")
