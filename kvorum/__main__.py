"""`python -m kvorum` is the command `kvorum`."""

from kvorum.cli.main import main

if __name__ == "__main__":
    main()
