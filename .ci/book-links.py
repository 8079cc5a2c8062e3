"""Follows every link of a built book: `book-links.py SOURCE BOOK`.

A link into the repository, such as ../../examples/vec_add.loom, leads out of the book. The file is copied to BOOK/repository, and the
link is rewritten. A link that leads nowhere, or to a place that a page does not have, is reported, and the status is 1.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from urllib.parse import unquote, urlsplit

SOURCE, BOOK = map(os.path.abspath, sys.argv[1:3])
ROOT = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True).stdout.strip() or os.getcwd()
ROOT = os.path.abspath(ROOT)
COPIES = "repository"
LINK = re.compile(r'(<(?:a|img)\b[^>]*?\b(?:href|src)=")([^"]*)(")')
faults = []
copied = set()


def files(path):
    """The files of a folder that belong to the repository; its other files are nobody's business."""
    found = subprocess.run(["git", "ls-files", "-z", path], cwd=ROOT, capture_output=True, text=True).stdout
    return [name for name in found.split("\0") if name] or (
        [os.path.relpath(os.path.join(d, f), ROOT) for d, _, names in os.walk(os.path.join(ROOT, path)) for f in names]
    )


def copy(name):
    """Puts a file or a folder of the repository into the book; the path of the copy from the book's root."""
    source = os.path.join(ROOT, name)
    if os.path.isfile(source):
        if name not in copied:
            target = os.path.join(BOOK, COPIES, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
            copied.add(name)
        return f"{COPIES}/{name}"
    page = os.path.join(COPIES, name, "index.html")
    if name not in copied:
        copied.add(name)
        names = files(name)
        for one in names:
            copy(one)
        lines = "\n".join(f'<li><a href="{os.path.relpath(one, name)}">{os.path.relpath(one, name)}</a></li>' for one in names)
        text = f"<!DOCTYPE html><meta charset=utf-8><title>{name}</title><h1>{name}</h1><ul>\n{lines}\n</ul>\n"
        os.makedirs(os.path.join(BOOK, COPIES, name), exist_ok=True)
        with open(os.path.join(BOOK, page), "w", encoding="utf-8") as out:
            out.write(text)
    return page


def pages():
    for folder, _, names in os.walk(BOOK):
        if os.path.relpath(folder, BOOK).split(os.sep)[0] != COPIES:
            yield from (os.path.join(folder, name) for name in names if name.endswith(".html"))


places = {}


def has_place(page, place):
    if page not in places:
        with open(page, encoding="utf-8") as text:
            places[page] = set(re.findall(r'\b(?:id|name)="([^"]*)"', text.read()))
    return place in places[page]


def target(page, link):
    """What a link of a page is to be: the same, a copy's path, or `None` where it leads nowhere."""
    parts = urlsplit(html.unescape(link))
    if parts.scheme or parts.netloc:
        return link
    folder = os.path.dirname(page)
    path = unquote(parts.path)
    inside = os.path.normpath(os.path.join(BOOK if path.startswith("/") else folder, path.lstrip("/"))) if path else page
    if os.path.isdir(inside):
        inside = os.path.join(inside, "index.html")
    if os.path.exists(inside) and inside.startswith(BOOK + os.sep):
        if parts.fragment and inside.endswith(".html") and not has_place(inside, unquote(parts.fragment)):
            return None
        return link
    # The same link in the source: mdBook has made .html of .md, and index.html of README.md.
    source = os.path.normpath(os.path.join(SOURCE, os.path.relpath(folder, BOOK), path))
    stem = source.removesuffix(".html")
    for name in [source, f"{stem}.md", os.path.join(os.path.dirname(source), "README.md") if stem.endswith("/index") else source]:
        if os.path.exists(name) and name.startswith(ROOT + os.sep):
            made = copy(os.path.relpath(name, ROOT))
            fragment = f"#{parts.fragment}" if parts.fragment and not name.endswith(".md") else ""
            return os.path.relpath(os.path.join(BOOK, made), folder) + fragment
    return None


for page in sorted(pages()):
    with open(page, encoding="utf-8") as text:
        before = text.read()

    def rewritten(match):
        to = target(page, match[2])
        if to is None:
            faults.append(f"{os.path.relpath(page, BOOK)}: `{match[2]}` leads nowhere")
        return match[1] + (match[2] if to is None else to) + match[3]

    # 404.html is served for any path: its links are those of the book's root.
    after = before if page.endswith("404.html") else LINK.sub(rewritten, before)
    if after != before:
        with open(page, "w", encoding="utf-8") as out:
            out.write(after)

print(f"book: {BOOK}, with {len(copied)} copies from the repository")
for fault in faults:
    print(f"book: {fault}", file=sys.stderr)
sys.exit(1 if faults else 0)
