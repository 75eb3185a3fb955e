from attnbook.records import read_record
from workshop.experiments import exponential_cost as probe


def test_a_tile_has_two_products_and_exponentials():
    found = probe.measure_tile(16, 2)
    assert {*found} == {"scores", "values", "exponentials"}
    for row in found.values():
        assert 0 < row["least"] <= row["low"] <= row["middle"] <= row["high"]


def test_the_record_has_every_width():
    record = read_record("exponential_cost")
    widths = record["results"]["widths"]
    assert {*widths} == {str(D) for D in record["widths"]}
    assert min(record["results"]["rates"].values()) > 1e7
