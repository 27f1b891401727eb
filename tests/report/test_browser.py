"""The report in a real browser: every figure loads, and nothing is cut off at any width."""

import html
import json
import re
import shutil
import subprocess

import pytest

from jaxlab.report.collect import collect
from jaxlab.report.page import page
from tests.report import samples

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE, DESKTOP = (390, 844), (1280, 900)

# A window of Chromium has a least width, a frame has not. So the untouched page is shown in a frame
# of a phone's size, and the page around it looks inside.
WRAPPER = """<!DOCTYPE html><body>
<iframe src="PAGE" style="border: 0; width: WIDTHpx; height: HEIGHTpx"></iframe>
<script>
const name = (element) => element.outerHTML.slice(0, 200);
const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);

// What of a cell lies outside of the boxes around it, if none of these scrolls.
function isCut(cell) {
  if (cell.scrollWidth > cell.clientWidth + 1) return true;
  if (cell.scrollHeight > cell.clientHeight + 1) return true;
  const right = cell.getBoundingClientRect().right;
  for (let box = cell.parentElement; box !== null; box = box.parentElement) {
    if (right <= box.getBoundingClientRect().right + 1) continue;
    return !(scrolls(box) && box.scrollWidth > box.clientWidth);
  }
  return false;
}

async function measure() {
  const frame = document.querySelector("iframe");
  const inside = frame.contentDocument, view = frame.contentWindow;
  inside.querySelectorAll("details").forEach((details) => { details.open = true; });
  const images = [...inside.images], cells = [...inside.querySelectorAll("td")];
  await Promise.allSettled(images.map((image) => image.decode()));
  return {
    inner_width: view.innerWidth,
    scroll_width: inside.documentElement.scrollWidth,
    images: images.length,
    broken: images.filter((image) => image.naturalWidth === 0).map(name),
    cells: cells.length,
    hidden: cells.filter((cell) => cell.getClientRects().length === 0).map(name),
    cut: cells.filter(isCut).map(name),
    scripts: inside.scripts.length,
    requests: view.performance.getEntriesByType("resource").map((entry) => entry.name),
  };
}

onload = async () => {
  const result = document.createElement("pre");
  result.textContent = JSON.stringify(await measure());
  document.body.append(result);
};
</script>
"""


@pytest.fixture(scope="module")
def browser():
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"no browser on the PATH: none of {', '.join(BROWSERS)}")
    return found


def measured(browser, folder, text, size):
    """What a browser says of a page."""
    (folder / "page.html").write_text(text)
    wrapper = WRAPPER.replace("PAGE", "page.html")
    for word, value in zip(("WIDTH", "HEIGHT"), size, strict=True):
        wrapper = wrapper.replace(word, str(value))
    (folder / "wrapper.html").write_text(wrapper)
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}",
            f"--window-size={max(size[0] + 100, 600)},{size[1] + 100}",
            "--virtual-time-budget=20000", "--dump-dom", (folder / "wrapper.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    found = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    assert found, f"the page was not measured: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("size", [PHONE, (768, 1024), DESKTOP], ids=["phone", "tablet", "desktop"])
def test_every_figure_loads_and_nothing_is_cut_off(browser, tmp_path, size):
    results = collect(samples.nasty(tmp_path / "results"))
    figures = sum(run.figure is not None for section in results.sections
                  for run in section.experiments)  # fmt: skip
    seen = measured(browser, tmp_path, page(results), size)
    assert seen["inner_width"] == size[0]
    assert seen["scroll_width"] <= size[0]
    assert seen["images"] == figures == 3
    assert seen["cells"] > 1000
    assert seen["broken"] == seen["hidden"] == seen["cut"] == seen["requests"] == []
    assert seen["scripts"] == 0


def test_a_png_loads_too(browser, tmp_path):
    samples.write_run(tmp_path / "results")
    (tmp_path / "results/dual_sgd/figure.svg").unlink()
    seen = measured(browser, tmp_path, page(collect(tmp_path / "results")), PHONE)
    assert (seen["images"], seen["broken"]) == (1, [])


BROKEN = {
    "cut": (
        '</table><div style="width: 90px; overflow: hidden"><table><td>Longlongwordwithoutend',
        '<table style="table-layout: fixed; width: 90px"><td style="overflow: hidden">Longlongword',
        '<td style="display: block; height: 9px; overflow: hidden">a<br>b',
    ),
    "hidden": ('<tr style="display: none"><td>x',),
    "broken": ("<img src='data:image/png;base64,AAAA'>", "<img src='none.png'>"),
    "requests": ("<img src='http://127.0.0.1:59999/none.png'>",),
}


@pytest.mark.parametrize(
    ("fault", "body"), [(fault, body) for fault, bodies in BROKEN.items() for body in bodies]
)
def test_faults_are_noticed(browser, tmp_path, fault, body):
    seen = measured(browser, tmp_path, f"<!DOCTYPE html><table>{body}", PHONE)
    assert len(seen[fault]) == 1


def test_the_page_without_its_style_is_too_wide(browser, tmp_path):
    text = page(collect(samples.nasty(tmp_path / "results")))
    bare = re.sub("<style>.*?</style>", "", text, flags=re.DOTALL)
    assert measured(browser, tmp_path, bare, PHONE)["scroll_width"] > PHONE[0]


def test_a_table_in_a_container_that_scrolls_is_not_cut(browser, tmp_path):
    text = '<!DOCTYPE html><div style="overflow-x: auto"><table><td style="white-space: nowrap">'
    seen = measured(browser, tmp_path, text + "word " * 100, PHONE)
    assert (seen["cells"], seen["cut"]) == (1, [])
    assert seen["scroll_width"] <= PHONE[0]
