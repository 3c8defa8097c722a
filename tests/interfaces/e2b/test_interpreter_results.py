"""Results of cells in the form that E2B gives them: strings, charts and saved images."""

import base64

import pytest

from tests.interfaces.e2b.conftest import Live
from tests.interfaces.e2b.patient import Patient

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.


@pytest.fixture(scope="module")
def box(live: Live, interpreter: None):
    made = Patient.create(timeout=300, **live.options)
    yield made
    made.kill()


STRINGS = {
    "'plain'": "plain",
    '"it\'s"': "it's",
    r"'two\nlines'": r"two\nlines",
    "''": "",
    "('a', 'b')": "('a', 'b')",
    "b'bytes'": "b'bytes'",
    "type('Quote', (), {'__repr__': lambda self: chr(39)})()": "'",
}


@pytest.mark.parametrize("code", STRINGS)
def test_a_string_result_has_no_quotes(box, code):
    assert box.run_code(code).text == STRINGS[code]


@pytest.mark.slow
def test_a_string_result_of_javascript_has_no_quotes(box):
    assert box.run_code("['a'].join() + \"'s\"", language="js").text == "a's"
    assert box.run_code("process.cwd()", language="js").text == "/home/user"


def chart(box, drawing):
    code = f"import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n{drawing}\nplt.show()"
    (shown,) = [each.chart for each in box.run_code(code).results if each.png]
    return shown


def are_floats(values):
    return all(type(value) is float for value in values)


def test_numbers_of_a_line_chart_are_floats_and_labels_that_are_not_set_are_null(box):
    shown = chart(box, "ax.plot([1, 2], [3, 4])")
    assert shown.to_dict()["title"] is None
    assert (shown.x_label, shown.y_label, shown.x_unit, shown.y_unit) == (None,) * 4
    (line,) = shown.elements
    assert (line.label, line.points) == ("Line 0", [(1, 3), (2, 4)])
    assert all(are_floats(point) for point in line.points)
    assert are_floats([*shown.x_ticks, *shown.y_ticks])


def test_ticks_of_categories_are_numbers_and_their_labels_names(box):
    shown = chart(box, "ax.plot(['x', 'y'], [1, 2])")
    assert (shown.x_ticks, shown.x_tick_labels) == ([0.0, 1.0], ["x", "y"])
    assert [x for x, _ in shown.elements[0].points] == ["x", "y"]


def test_angles_of_a_pie_are_rounded(box):
    shown = chart(box, "ax.pie([90, 10], labels=['no', 'yes'], startangle=90)")
    slices = [(each.label, each.angle, each.radius) for each in shown.elements]
    assert slices == [("no", 324.0, 1.0), ("yes", 36.0, 1.0)]
    assert all(are_floats(numbers) for _, *numbers in slices)


def test_bars_without_a_label_are_a_numbered_group(box):
    shown = chart(box, "ax.bar(['a', 'b'], [1, 2])")
    bars = [(each.label, each.value, each.group) for each in shown.elements]
    assert bars == [("a", 1.0, "Group 0"), ("b", 2.0, "Group 0")]
    assert are_floats(value for _, value, _ in bars)


def test_the_categories_of_lying_bars_are_on_x(box):
    shown = chart(box, "ax.barh(['a'], [1.5]); ax.set(xlabel='cost (k)', ylabel='who')")
    assert (shown.x_label, shown.y_label, shown.y_unit) == ("who", "cost (k)", "k")
    assert [(each.label, each.value) for each in shown.elements] == [("a", 1.5)]


SCORES = "{'A': [85, 90, 78, 92, 88], 'B': [95, 89, 76, 91, 84, 87], 'C': [75, 82, 88, 79, 86]}"


@pytest.mark.parametrize("options", ["", ", patch_artist=True", ", vert=False, patch_artist=True"])
def test_a_box_plot_is_known_by_its_boxes_whether_filled_open_or_lying(box, options):
    shown = chart(
        box, f"scores = {SCORES}\nax.boxplot(scores.values(), labels=scores.keys(){options})"
    )
    assert shown.type.value == "box_and_whisker"
    boxes = {
        each.label: (each.min, each.first_quartile, each.median, each.third_quartile, each.max)
        for each in shown.elements
    }
    assert boxes == {
        "A": (78, 85, 88, 90, 92),
        "B": (84, 84.75, 88, 90.5, 95),
        "C": (75, 79, 82, 86, 88),
    }
    assert all(are_floats(numbers) for numbers in boxes.values())
    assert [each.outliers for each in shown.elements] == [[], [76.0], []]


IMAGE = "from PIL import Image\nimage = Image.new('RGBA', (16, 16), 'red')\n"


@pytest.mark.parametrize("code", ["image.save('/tmp/saved.png')", "image.show()", "image"])
def test_an_image_is_a_result_when_it_is_saved_shown_or_last(box, code):
    (result,) = box.run_code(IMAGE + code).results
    assert base64.b64decode(result.png).startswith(b"\x89PNG")


def test_an_image_is_no_result_when_it_is_saved_elsewhere_than_to_a_file_or_is_no_png(box):
    done = box.run_code(
        f"{IMAGE}import io; image.save(io.BytesIO(), 'PNG')\n"
        "image.convert('CMYK').save('/tmp/saved.jpg')"
    )
    assert (done.results, done.logs.stderr, done.error) == ([], [], None)
