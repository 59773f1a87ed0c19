"""What was tried: the Optuna study, its journal, each trial as a record.

It refuses to know why it was proposed.
"""

import warnings

with warnings.catch_warnings():  # Optuna loads tqdm, which asks for ipywidgets in a notebook, and does without.
    warnings.filterwarnings("ignore", message="IProgress not found")
    import optuna as _optuna  # noqa: F401  # loaded here first, so that it is loaded in silence
