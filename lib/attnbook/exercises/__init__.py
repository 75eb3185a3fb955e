"""Exercises that grade themselves, a package per chapter, a file per exercise.

Reading order of the machinery: outcome (what a call gave, as data), runner (the
only place that meets a learner's function), cached_outcomes (what our own
answers give), verdict (what to say), exercise (the declaration that ties them
together), edited (mistakes as edits of the solution). Quizzes are beside them.
"""
