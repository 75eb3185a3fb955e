"""The tests of one exercise run together, and no test is lost."""

from types import SimpleNamespace

from exercise_order import put_exercises_together


class Item:
    """A collected test.

    Args:
        name: of it.
        params: its parameters; none if it has no parameters at all.
    """

    def __init__(self, name, **params):
        self.name = name
        if params:
            self.callspec = SimpleNamespace(params=params)


def test_an_exercise_has_its_tests_where_its_first_one_was():
    one = SimpleNamespace(solution=len, mistakes=())
    two = SimpleNamespace(solution=abs, mistakes=())
    items = [
        Item("plain"),
        Item("one, wrong", exercise=one, seed=1),
        Item("two, wrong", exercise=two),
        Item("number", seed=3),
        Item("one, right", seed=2, exercise=one),
        Item("two, right", exercise=two),
    ]
    names = [item.name for item in put_exercises_together(items)]
    assert names == [
        "plain",
        "one, wrong",
        "one, right",
        "two, wrong",
        "two, right",
        "number",
    ]


def test_equal_exercises_are_kept_apart():
    twins = [SimpleNamespace(solution=len, mistakes=()) for _ in range(2)]
    items = [Item(f"{i}", exercise=twins[i % 2]) for i in range(4)]
    names = [item.name for item in put_exercises_together(items)]
    assert names == ["0", "2", "1", "3"]
