"""The small words of the grammar, as tables: articles, pronouns, adverbs.

The notation is that of `words`, and one thing more: equal digits are sure
links, a word without a digit may go with any word of the other side, and where
no word has a digit, every link is sure.
"""

DETERMINERS = """
the the / le|l' la|l' les
a|an - / un une -
this these / ce|cet cette ces
my my / mon ma|mon mes
your your / ton ta|ton tes
his his / son sa|son ses
her her / son sa|son ses
our our / notre notre nos
their their / leur leur leurs
every - / chaque chaque -
- two / - - deux
- three / - - trois
- some / - - quelques
"""

# subject, object in English; subject, clitic in French; person; gender; plural
PRONOUNS = """
i me / je|j' me|m' 0 m singular
you you / tu te|t' 1 m singular
he him / il le|l' 2 m singular
she her / elle la|l' 2 f singular
it it / il le|l' 2 m singular
it it / elle la|l' 2 f singular
we us / nous nous 3 m plural
they them / ils les 4 m plural
they them / elles les 4 f plural
"""

# a preposition, and the kinds of nouns that follow it
PREPOSITIONS = {
    "in / dans": "area building",
    "near1 / près1 de|d'": "place building furniture",
    "behind / derrière": "building furniture",
    "in front1 of / devant1": "building",
    "next1 to / à côté1 de|d'": "place building furniture",
    "under / sous": "furniture",
    "with / avec": "living",
}
ADVERBS = {
    "often": "souvent",
    "always": "toujours",
    "rarely": "rarement",
    "already": "déjà",
}
NEGATIONS = {"not": "pas", "never": "jamais"}
POSSESSIVE = ("my", "your", "his", "her", "our", "their")
PLACES = ("here / ici", "there / là")
MANNERS = ("slowly / lentement", "quickly / rapidement")
WHEN = {
    "past": (
        "yesterday / hier",
        "last1 week2 / la semaine2 dernière1",
        "last1 year2 / l' année2 dernière1",
        "this1 morning2 / ce1 matin2",
        "two1 days2 ago3 / il3 y3 a3 deux1 jours2",
        "three1 years2 ago3 / il3 y3 a3 trois1 ans2",
    ),
    "present": (
        "today / aujourd'hui",
        "now / maintenant",
        "every1 day2 / chaque1 jour2",
    ),
    "future": (
        "tomorrow / demain",
        "next1 week2 / la semaine2 prochaine1",
        "next1 year2 / l' année2 prochaine1",
        "this1 evening2 / ce1 soir2",
    ),
}

BE = (
    ("present", "am are is are are", "suis es est sommes sont"),
    ("past", "was were was were were", "étais étais était étions étaient"),
    ("future", "be be be be be", "serai seras sera serons seront"),
)
HAVE = ("ai", "as", "a", "avons", "ont")
FUTURE_ENDINGS = ("ai", "as", "a", "ons", "ont")
CONTRACTED = {
    "do": "don't",
    "does": "doesn't",
    "did": "didn't",
    "will": "won't",
    "can": "can't",
    "is": "isn't",
    "are": "aren't",
    "was": "wasn't",
    "were": "weren't",
}
