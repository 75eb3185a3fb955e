"""Colors that a canvas shows; a map is painted just before the first frame."""

PIXEL = """([what, x, y, unlike]) => {
  const pen = document.querySelector(what).getContext("2d");
  const found = [...pen.getImageData(x, y, 1, 1).data];
  return found[3] > 0 && `${found}` !== `${unlike}` && found;
}"""


def read_pixel(page, canvas, x=3, y=3, unlike=()):
    """Return red, green, blue and alpha of a pixel as soon as it is painted.

    Args:
        page: an open page.
        canvas: a selector.
        x: columns from the left.
        y: rows from the top.
        unlike: an earlier color of this pixel, which has to change first.
    """
    place = [canvas, x, y, list(unlike)]
    return page.wait_for_function(PIXEL, arg=place).json_value()
