"""``python -m autoselect``."""

from autoselect.cli.main import main

if __name__ == "__main__":
    main()
