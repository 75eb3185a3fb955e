"""The command `python -m attnbook.grade`; kept empty for child processes."""

if __name__ == "__main__":
    from attnbook.grade.command import main

    raise SystemExit(main())
