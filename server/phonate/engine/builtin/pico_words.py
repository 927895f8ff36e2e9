"""How signs and marks are called in the languages of the Pico voices."""

from __future__ import annotations

from phonate.engine.builtin.spoken_english import SIGNS

_ORDER = [".", "/", "-", "_", "@", ":", "?", "=", "&", "#", "%", "+", "~", ",", "!", ";"]
_NAMES = {
    "german": "Punkt|Schrägstrich|Bindestrich|Unterstrich|ät|Doppelpunkt|Fragezeichen|gleich|und"
    "|Raute|Prozent|plus|Tilde|Komma|Ausrufezeichen|Strichpunkt",
    "french": "point|barre oblique|tiret|tiret bas|arobase|deux points|point d'interrogation|égal"
    "|et|dièse|pour cent|plus|tilde|virgule|point d'exclamation|point-virgule",
    "spanish": "punto|barra|guion|guion bajo|arroba|dos puntos|signo de interrogación|igual|y"
    "|almohadilla|por ciento|más|tilde|coma|signo de exclamación|punto y coma",
    "italian": "punto|barra|trattino|trattino basso|chiocciola|due punti|punto interrogativo"
    "|uguale|e|cancelletto|per cento|più|tilde|virgola|punto esclamativo|punto e virgola",
}

SIGN_WORDS: dict[str, dict[str, str]] = {
    "english": {**SIGNS, "!": "exclamation mark", ";": "semicolon"},
    **{
        language: dict(zip(_ORDER, names.split("|"), strict=True))
        for language, names in _NAMES.items()
    },
}
"""Language -> sign -> word."""
ANY_MARK = {
    "english": "mark",
    "german": "Zeichen",
    "french": "signe",
    "spanish": "signo",
    "italian": "segno",
}
"""For a mark without a name of its own."""
