"""A stand-in for a terminal."""


class Terminal:
    """Keeps what is written; says whether it is a terminal."""

    def __init__(self, real):
        self.real, self.text = real, ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return self.real
