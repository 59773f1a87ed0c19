"""The Python API: the functions behind the commands, with the same names (``report`` is ``write_report``)."""
