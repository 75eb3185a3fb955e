"""Pages that show a part of another page are written again when it changes.

Sphinx reads a page again only if it has changed. But every page lists the
titles of all, and links lead to sections of others: when a title or a section
has changed, all pages are written, and a link that leads nowhere is a warning.
"""

from hashlib import sha256


def list_outdated(app, env) -> list[str]:
    """Return all pages if the sections of one are not those of the last build."""
    contents = "".join(env.tocs[name].pformat() for name in sorted(env.tocs))
    found = sha256(contents.encode()).hexdigest()
    before = getattr(env, "book_contents", found)
    env.book_contents = found
    return [] if found == before else sorted(env.found_docs)


def setup(app) -> None:
    app.connect("env-updated", list_outdated)
