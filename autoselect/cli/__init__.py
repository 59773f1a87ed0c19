"""The command line: parse, call one function of ``autoselect.api``, print. Only this room prints."""
