"""Solutions of the exercises that the library does not already answer.

Chapter: all of them
Source: none
Axes: none
"""
