"""The command line: parse, call one function of ``autoselect.api``, print.

It refuses to know how anything is done; nothing else prints.
"""

import os

from autoselect.isolation.machine import steady_kernels

os.environ.update(steady_kernels())  # The modules of this package load NumPy, and it OpenBLAS.
