"""Exercises that check their own answers: a file a chapter, beside quizzes.

`declare` holds the form of an exercise, `check` calls an answer and compares what
it did, `isolation` and `limits` surround the call, `verdict` words what is found.
"""
