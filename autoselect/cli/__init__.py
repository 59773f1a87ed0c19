"""The command line: parse, call one function of ``autoselect.api``, print.

It refuses to know how anything is done; nothing else prints.
"""
