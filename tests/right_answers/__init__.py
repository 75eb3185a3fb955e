"""Right answers that look different, one module per chapter.

`ANSWERS` of a module maps an exercise's name to (how it differs, answer).
"""
