"""Exercises that grade themselves, one module per chapter.

Reading order of the machinery: outcome (what a call gave, as data), runner
(the only place that meets a learner's function), remembered (what our own
answers give), verdict (what to say), exercise (the declaration that ties them
together). Quizzes are beside them.
"""
