"""Images of a page."""

from __future__ import annotations

import io

from PIL import Image

from workbench.report.html import each_once, image


def figure(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20), colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_an_image_that_stands_several_times_is_in_the_page_once() -> None:
    red, blue = image(figure("red"), 'a "red" one', "red"), image(figure("blue"), "blue", "blue")
    found = each_once(f"<p>{red}</p><p>{blue}</p><p>{red}</p>")
    data = red.split('src="')[1].split('"')[0]
    assert found.count(data) == 1
    assert blue in found
    assert found.count('<use href="#image-0"/>') == 2
    assert found.count('aria-label="a &quot;red&quot; one" viewBox="0 0 30 20"') == 2


def test_images_that_stand_once_stay_as_they_are() -> None:
    body = f"<p>{image(figure('red'), 'red', 'red')}</p>"
    assert each_once(body) == body
