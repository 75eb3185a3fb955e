"""Openings: what a chapter's page and the first page show before the text.

A chapter begins with a list (afterwards you can, you need, level, time,
hardware), plain Markdown for every reader; on its page the list becomes a
card, with what can be done with the chapter under it. The first page shows a
widget alive: the one that a chapter's notebook has stored.
"""

import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.util.osutil import relative_uri

from workshop.book.repository import BRANCH, make_colab_address

MOUNT = re.compile(
    r'(<div data-book-widget="alignment_player">'
    r'<script type="application/json">)(.*?)(</script>.*?</figure>).*?</div>',
    re.S,
)
CHAPTER = re.compile(r"(\d\d_\w+)\.html")
WIDGET_CHAPTER = "02_bahdanau"


def get_repository_address(app) -> str:
    options = app.config.html_theme_options
    ours = options.get("use_edit_page_button")  # else the URL is a stranger's
    return options.get("repository_url", "") if ours else ""


class Element(nodes.General, nodes.TextElement):
    """An element of HTML: `tag`, and its classes."""


def open_element(translator, node) -> None:
    translator.body.append(translator.starttag(node, node["tag"], ""))


def close_element(translator, node) -> None:
    translator.body.append(f"</{node['tag']}>")


def format_activities(app, docname: str) -> str:
    """Return links: to run a chapter, to take it along, to change it."""
    url = get_repository_address(app)
    options = app.config.html_theme_options
    colab_too = (options.get("launch_buttons") or {}).get("colab_url")
    path = Path(app.env.doc2path(docname, base=False))
    page = app.builder.get_target_uri(docname)
    made = app.builder.templates.environment.get_template("activities.html")
    return made.render(
        notebook=relative_uri(page, f"_sources/{path.as_posix()}"),
        colab=make_colab_address(url, path.stem) if url and colab_too else "",
        source=f"{url}/edit/{BRANCH}/chapters/{path.stem}.md" if url else "",
    )


def find_opening(doctree) -> nodes.bullet_list | None:
    for found in doctree.findall(nodes.bullet_list):
        first = next(found.findall(nodes.emphasis), None)
        if first and first.astext().startswith("Afterwards"):
            return found
    return None


def format_card(opening: nodes.bullet_list) -> Element:
    card = Element(tag="dl", classes=["opening"])
    for item in opening:
        name, *text = item[0]
        if isinstance(text[0], nodes.Text):
            said = text[0].lstrip(": \n")
            text[0] = nodes.Text(said[:1].upper() + said[1:])
        row = Element(tag="div")
        row += Element("", nodes.Text(name.astext()), tag="dt")
        row += Element("", *(x.deepcopy() for x in text), tag="dd")
        card += row
    return card


def format_chapter(app, doctree, docname: str) -> None:
    """Give a chapter its card, and its links below."""
    links = nodes.raw("", format_activities(app, docname), format="html")
    if (opening := find_opening(doctree)) is not None:
        opening.replace_self([format_card(opening), links])
    else:
        section = next(doctree.findall(nodes.section))
        section.insert(1, links)


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


def format_first_page(app, doctree) -> None:
    """Show a widget alive after the first page's opening; mark its rows."""
    for row in doctree.findall(nodes.row):
        link = next(row[0].findall(nodes.reference), None)
        if found := CHAPTER.match(link.get("refuri", "") if link else ""):
            row["chapter"] = found[1]
        elif row[0].astext().endswith("(planned)"):
            row["classes"].append("planned")
    first = next(doctree.findall(nodes.paragraph))
    said = (
        '<p class="try">Try it: a model predicts the pronunciation of '
        "<em>nanotechnology</em>, and the figure shows how much each sound "
        "attends to each letter. Then switch attention off. The codes are sounds: "
        "AE is the <em>a</em> of <em>cat</em>, OW the <em>o</em> of <em>go</em>. "
        f'<a href="{WIDGET_CHAPTER}.html">Chapter 2</a> builds this model.</p>'
    )
    place = first.parent.index(first) + 1
    shown = nodes.raw("", f"{said}\n{read_live_widget(app)}\n", format="html")
    first.parent.insert(place, shown)


def open_page(app, doctree, docname: str) -> None:
    if app.builder.format != "html":
        return
    if docname == app.config.root_doc:
        format_first_page(app, doctree)
    elif re.match(r"\d\d_", Path(docname).name):
        format_chapter(app, doctree, docname)


def setup(app) -> None:
    app.add_node(Element, html=(open_element, close_element))
    app.connect("doctree-resolved", open_page)
