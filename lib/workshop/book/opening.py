"""Openings: what a chapter's page and the first page show before the text.

A chapter begins with a list (afterwards you can, you need, level, time,
hardware), plain Markdown for every reader; on its page the list becomes a
card, with what can be done with the chapter under it. The first page shows a
widget alive: the one that a chapter's notebook has stored.
"""

import json
import re
from pathlib import Path

from workshop.book.repository import BRANCH, make_colab_address

LIST = re.compile(r'<ul class="simple">\n<li><p><em>Afterwards.*?</ul>', re.S)
ITEM = re.compile(r"<li><p><em>([^<]+)</em>:?\s*(.*?)</p></li>", re.S)
ROW = re.compile(
    r'<tr class="row-\w+">(?=<td><p><a[^>]*href="(\d\d_\w+)\.html")'
)
MOUNT = re.compile(
    r'(<div data-book-widget="alignment_player">'
    r'<script type="application/json">)(.*?)(</script>.*?</figure>).*?</div>',
    re.S,
)
WIDGET_CHAPTER = "02_bahdanau"


def get_repository_address(app) -> str:
    """Return the repository's address, if `make repository` set one."""
    options = app.config.html_theme_options
    ours = options.get("use_edit_page_button")  # else the URL is a stranger's
    return options.get("repository_url", "") if ours else ""


def format_activities(app, context) -> str:
    """Return links: to run a chapter, to take it along, to change it."""
    url = get_repository_address(app)
    options = app.config.html_theme_options
    colab_too = (options.get("launch_buttons") or {}).get("colab_url")
    slug = Path(context["sourcename"]).stem
    made = app.builder.templates.environment.get_template("activities.html")
    return made.render(
        notebook=context["pathto"](f"_sources/{context['sourcename']}", 1),
        colab=make_colab_address(url, slug) if url and colab_too else "",
        source=f"{url}/edit/{BRANCH}/chapters/{slug}.md" if url else "",
    )


def format_card(match: re.Match) -> str:
    """Return a chapter's opening list as a card."""
    rows = "".join(
        f"<div><dt>{name}</dt><dd>{text[:1].upper()}{text[1:]}</dd></div>\n"
        for name, text in ITEM.findall(match[0])
    )
    return f'<dl class="opening">\n{rows}</dl>\n'


def format_chapter(app, context, number: int) -> str:
    """Return a chapter's text with its number, its card and its links."""
    body = LIST.sub(format_card, context["body"], count=1)
    body = body.replace(
        "<h1>", f'<p class="over">Chapter {number}</p>\n<h1>', 1
    )
    end = body.index("</dl>") + 5 if 'class="opening"' in body else 0
    end = end or body.index("</h1>") + 5
    return f"{body[:end]}\n{format_activities(app, context)}{body[end:]}"


def read_live_widget(app) -> str:
    """Return a stored widget's mount, with the first of its examples."""
    path = Path(app.srcdir) / "chapters" / f"{WIDGET_CHAPTER}.ipynb"
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/html", ""))
            if found := MOUNT.search(text):
                state = json.loads(found[2])
                state["examples"] = state["examples"][:1]
                kept = json.dumps(state, ensure_ascii=False)
                kept = kept.replace("<", "\\u003c")
                return f"{found[1]}{kept}{found[3]}</div>"
    raise ValueError(f"{path} has stored no alignment player")


def format_first_page(app, body: str) -> str:
    """Return the first page's text with a widget alive after its opening."""
    body = ROW.sub(r'<tr data-chapter="\1">', body)
    end = body.index("</p>", body.index("</h1>")) + 4
    link = f'<a href="{WIDGET_CHAPTER}.html">Chapter 2</a>'
    invitation = (
        '<p class="try">Try it: a model predicts the pronunciation of '
        "<em>nanotechnology</em>, and you see to which letters it attends for "
        f"each sound. Then switch off its attention. {link} builds it.</p>"
    )
    return f"{body[:end]}\n{invitation}\n{read_live_widget(app)}\n{body[end:]}"
