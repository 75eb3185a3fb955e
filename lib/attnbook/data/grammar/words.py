"""The words of the little English-French grammar, as tables.

Left of a slash stands English, right of it French. ``x|y`` is written ``y``
where the next word starts with a vowel sound, else ``x``: ``le|l'``, ``a|an``.
Plurals, feminines and conjugations are regular unless they are written out.

A noun's line:      english [plural] / french [plural] m-or-f
An adjective's:     english [comparative] / masculine [feminine [plural]]
A verb's:           base past [particle] / infinitive [je tu il nous ils
                    participle future-stem] : subjects > objects
"""

KINDS = {
    "living": "person animal",
    "goods": "thing opening text food furniture",
    "place": "way area",
    "any": "person animal thing opening text food furniture way area building",
}

NOUNS = {
    "person": """man men / homme m, woman women / femme f, boy / garçon m,
        girl / fille f, king / roi m, queen / reine f, prince / prince m,
        princess / princesse f, uncle / oncle m, aunt / tante f,
        father / père m, mother / mère f, brother / frère m, sister / sœur f,
        actor / acteur m, actress / actrice f""",
    "animal": """animal / animal m, dog / chien m, cat / chat m,
        horse / cheval m, bird / oiseau m, cow / vache f,
        mouse mice / souris f, owl / hibou hiboux m, elephant / éléphant m,
        bee / abeille f, goat / chèvre f, wolf wolves / loup m,
        rabbit / lapin m, turtle / tortue f, ant / fourmi f, bear / ours m,
        giraffe / girafe f, frog / grenouille f""",
    "thing": """car / voiture f, hat / chapeau m, umbrella / parapluie m,
        key / clé f, boat / bateau m, bicycle / vélo m, lamp / lampe f,
        clock / horloge f, mirror / miroir m, coat / manteau m,
        dress / robe f, painting / tableau m""",
    "opening": """door / porte f, window / fenêtre f, box / boîte f,
        bottle / bouteille f, bag / sac m, suitcase / valise f""",
    "text": """book / livre m, letter / lettre f, story / histoire f,
        poem / poème m, song / chanson f""",
    "food": """apple / pomme f, egg / œuf m, cake / gâteau m, pear / poire f,
        carrot / carotte f, tomato tomatoes / tomate f""",
    "furniture": """table / table f, chair / chaise f, bed / lit m,
        bench / banc m""",
    "way": """street / rue f, road / route f, bridge / pont m,
        river / rivière f, avenue / avenue f, square / place f""",
    "area": """garden / jardin m, park / parc m, forest / forêt f,
        field / champ m, village / village m, valley / vallée f""",
    "building": """school / école f, museum / musée m, castle / château m,
        hospital / hôpital m, hotel / hôtel m, church / église f,
        station / gare f, theatre / théâtre m, restaurant / restaurant m""",
}

# (position in French, the kinds it is said of): adjectives
ADJECTIVES = {
    ("before", "animal goods place building"): """big bigger / grand,
        beautiful / beau|bel belle beaux""",
    ("before", "any"): """small smaller / petit,
        old older / vieux|vieil vieille vieux""",
    ("before", "living"): "young younger / jeune",
    ("before", "goods building"): "new / nouveau|nouvel nouvelle nouveaux",
    ("before", "person text food"): "good / bon bonne",
    ("before", "way text"): "long longer / long longue",
    ("after", "living"): """tired / fatigué, hungry / affamé, sad / triste,
        happy happier / heureux heureuse, thirsty / assoiffé, ill / malade,
        strong stronger / fort, worried / inquiet inquiète""",
    ("after", "person"): """rich richer / riche, poor poorer / pauvre,
        famous / célèbre, proud / fier fière""",
    ("after", "animal goods"): "white / blanc blanche, black / noir",
    ("after", "goods"): """red / rouge, blue / bleu, green / vert,
        yellow / jaune, strange / étrange""",
    ("after", "thing opening furniture"): """heavy heavier / lourd,
        dirty dirtier / sale, clean cleaner / propre, broken / cassé""",
    ("after", "place"): """wide wider / large, narrow narrower / étroit,
        flooded / inondé, deserted / désert, crowded / bondé""",
    ("after", "place building"): "quiet quieter / tranquille",
    ("after", "building"): "modern / moderne",
}
SAID_OF_PLACES_ONLY = ("wide", "narrow", "flooded", "deserted", "crowded")

VERBS = """
cross crossed / traverser : living > place
see saw / voir vois vois voit voyons voient vu verr : living > any
look looked at / regarder : living > any
look looked for / chercher : living > any
find found / trouver : living > any
love loved / aimer : person > any
hear heard / entendre entends entends entend entendons entendent entendu \
 entendr : living > living
chase chased / poursuivre poursuis poursuis poursuit poursuivons poursuivent \
 poursuivi poursuivr : living > living
wait waited for / attendre attends attends attend attendons attendent \
 attendu attendr : living > living
help helped / aider : living > living
listen listened to / écouter : living > living
visit visited / visiter : person > area building
eat ate / manger : living > food
buy bought / acheter achète achètes achète achetons achètent acheté achèter \
 : person > goods
sell sold / vendre vends vends vend vendons vendent vendu vendr \
 : person > goods
draw drew / dessiner : person > any
hide hid / cacher : living > goods
choose chose / choisir choisis choisis choisit choisissons choisissent choisi \
 choisir : person > goods building
lose lost / perdre perds perds perd perdons perdent perdu perdr \
 : person > thing text
open opened / ouvrir ouvre ouvres ouvre ouvrons ouvrent ouvert ouvrir \
 : living > opening
close closed / fermer : living > opening
write wrote / écrire écris écris écrit écrivons écrivent écrit écrir \
 : person > text
give gave / donner : person > goods
show showed / montrer : person > goods
sleep slept / dormir dors dors dort dormons dorment dormi dormir : living
walk walked / marcher : living
swim swam / nager : living
work worked / travailler : person
sing sang / chanter : person
dance danced / danser : living
jump jumped / sauter : living
cry cried / pleurer : person
arrive arrived / arriver : living
leave left / partir pars pars part partons partent parti partir : living
come came / venir viens viens vient venons viennent venu viendr : living
fall fell / tomber : living
stay stayed / rester : living
go went / aller vais vas va allons vont allé ir : living > building
can could / pouvoir peux peux peut pouvons peuvent pu pourr : living
must must / devoir dois dois doit devons doivent dû devr : living
want wanted to / vouloir veux veux veut voulons veulent voulu voudr : living
say said / dire dis dis dit disons disent dit dir : person
think thought / penser : person
know knew / savoir sais sais sait savons savent su saur : person
"""
WITH_ETRE = ("arrive", "leave", "come", "fall", "stay", "go")
SLOWLY = (
    *("cross", "walk", "swim", "work", "sing", "dance", "arrive", "leave"),
    *("come", "visit", "eat", "draw", "choose", "open", "close", "write"),
)
WITH_RECIPIENT = ("give", "show", "sell", "write")
MODALS = ("can", "must", "want")
OF_SPEECH = ("say", "think", "know")
OFTEN_SAID = "cross"
NEVER_POSSESSED = (
    "man",
    "woman",
    "boy",
    "girl",
)  # "my woman": ma femme is my wife
WITHOUT_DEGREE = ("broken", "flooded", "deserted")
