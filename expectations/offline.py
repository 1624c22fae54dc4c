"""Great Expectations' pages made to open without a network.

How it works: a page's scripts, style sheets and pictures from elsewhere are replaced by files of ours (assets/), which
lie beside the pages; what has no file of ours, such as the library for charts that no page of ours has, is left out.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"

# Part of an address elsewhere -> where the same is in a site.
_FILES = {
    "jquery": "assets/js/jquery.min.js",
    "popper": "assets/js/popper.min.js",
    "bootstrap.min.js": "assets/js/bootstrap.min.js",
    "bootstrap-table.min.js": "assets/js/bootstrap-table.min.js",
    "bootstrap-table-filter-control.min.js": "assets/js/bootstrap-table-filter-control.min.js",
    "bootstrap-datepicker.min.js": "assets/js/bootstrap-datepicker.min.js",
    "bootstrap.min.css": "assets/css/bootstrap.min.css",
    "bootstrap-table.min.css": "assets/css/bootstrap-table.min.css",
    "bootstrap-table-filter-control": "assets/css/bootstrap-table-filter-control.min.css",
    "bootstrap-datepicker.min.css": "assets/css/bootstrap-datepicker.min.css",
    "bootstrap-prefers-dark": "assets/css/bootstrap-prefers-dark.min.css",
    "font-awesome": "assets/css/fontawesome.min.css",
    "logo": "static/images/logo-long.png",
}

_ELSEWHERE = r"""["'](?P<address>(?:https?:)?//[^"']*)["']"""
_SCRIPT = re.compile(rf"<script\b[^>]*\bsrc={_ELSEWHERE}[^>]*>\s*</script>", re.IGNORECASE)
_LINK = re.compile(rf"<link\b[^>]*\bhref={_ELSEWHERE}[^>]*>", re.IGNORECASE)
_IMAGE = re.compile(rf"(?P<before>\bsrc=){_ELSEWHERE}", re.IGNORECASE)
_STYLE = re.compile(rf"(?P<before>\burl\(){_ELSEWHERE}\)", re.IGNORECASE)
# Its pages look for their icon one folder too low.
_STATIC = re.compile(r"""(?<=["'])(?:\.{1,2}/)*(?=static/)""")
# The pages of suites are not made: what a suite holds, the page of each of its results shows.
_SUITE = re.compile(r"""\bhref=["'](?:\.\./)*expectations/[^"']*["']""", re.IGNORECASE)
# An invitation to a newsletter.
_FOOTER = re.compile(r"<footer>.*?</footer>", re.IGNORECASE | re.DOTALL)


def bring_assets(site: Path) -> None:
    """Put what pages load into the site."""
    shutil.copytree(ASSETS, site / "assets", dirs_exist_ok=True)


def localise(site: Path, pages: Iterable[Path]) -> None:
    """Rewrite pages of the site so that they load nothing from elsewhere."""
    for page in pages:
        written = page.read_text(encoding="utf-8")
        local = localised(written, "../" * len(page.relative_to(site).parents[:-1]))
        if local != written:
            page.write_text(local, encoding="utf-8")


def localised(page: str, up: str) -> str:
    """The page, loading nothing from elsewhere. up: from where it is to the site's root, such as `../`."""

    def script(found: re.Match[str]) -> str:
        ours = _ours(found["address"])
        return f'<script src="{up}{ours}"></script>' if ours else ""

    def link(found: re.Match[str]) -> str:
        ours = _ours(found["address"])
        return f'<link rel="stylesheet" href="{up}{ours}">' if ours else ""

    def address(found: re.Match[str]) -> str:
        closing = ")" if found["before"].endswith("(") else ""
        return f'{found["before"]}"{up}{_ours(found["address"]) or "missing"}"{closing}'

    page = _STATIC.sub(up, _SUITE.sub("", _FOOTER.sub("", page)))
    for pattern, replacement in ((_SCRIPT, script), (_LINK, link), (_IMAGE, address), (_STYLE, address)):
        page = pattern.sub(replacement, page)
    return page


def _ours(address: str) -> str | None:
    # several names may fit an address: the longest says most
    fits = [part for part in _FILES if part in address]
    return _FILES[max(fits, key=len)] if fits else None
