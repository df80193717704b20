"""`python -m hubbub_cli` is `hubbub`."""

from hubbub_cli import main

if __name__ == "__main__":
    main()
