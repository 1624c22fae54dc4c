"""Rewrites Great Expectations' pages so that they open without a network.

How it works: scripts, style sheets and images from other servers are replaced by our copies (assets/), which are stored
with the pages. Links without a copy, such as a charts library that no page uses, are removed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"

# Part of an external address -> path of our copy in the site.
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
# Great Expectations' relative paths to the icon are wrong by one folder.
_STATIC = re.compile(r"""(?<=["'])(?:\.{1,2}/)*(?=static/)""")
# Links to the pages of suites, which are not built: the page of each result shows its suite.
_SUITE = re.compile(r"""\bhref=["'](?:\.\./)*expectations/[^"']*["']""", re.IGNORECASE)
# An invitation to a newsletter.
_FOOTER = re.compile(r"<footer>.*?</footer>", re.IGNORECASE | re.DOTALL)


def bring_assets(site: Path) -> None:
    """Copy the assets that pages load into the site."""
    shutil.copytree(ASSETS, site / "assets", dirs_exist_ok=True)


def localise(site: Path, pages: Iterable[Path]) -> None:
    """Rewrite pages of the site so that they load nothing from other servers."""
    for page in pages:
        written = page.read_text(encoding="utf-8")
        local = localised(written, "../" * len(page.relative_to(site).parents[:-1]))
        if local != written:
            page.write_text(local, encoding="utf-8")


def localised(page: str, up: str) -> str:
    """The page without references to other servers. up: path from the page to the site's root, such as `../`."""

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
    # If several names match an address, the longest is the most specific.
    fits = [part for part in _FILES if part in address]
    return _FILES[max(fits, key=len)] if fits else None
