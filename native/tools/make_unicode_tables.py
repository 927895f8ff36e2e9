"""Write src/unicode_tables.inc from this Python's own Unicode database.

usage: python make_unicode_tables.py ../src/unicode_tables.inc

What the tokenizer needs: the general categories L* and N* (as ranges), and canonical
decomposition, composition and combining classes for NFC. Hangul syllables are left out: they are
arithmetic. The file says which Unicode version it was made from.
"""

import sys
import unicodedata

HANGUL = range(0xAC00, 0xAC00 + 11172)
LIMIT = sys.maxunicode + 1


def ranges(member):
    """[first, last] of every run of code points for which member(cp) is true."""
    found = []
    for cp in range(LIMIT):
        if member(cp):
            if found and found[-1][1] == cp - 1:
                found[-1][1] = cp
            else:
                found.append([cp, cp])
    return found


def canonical(cp):
    """The one-step canonical decomposition of cp, or []."""
    fields = unicodedata.decomposition(chr(cp)).split()
    return [] if not fields or fields[0].startswith("<") else [int(f, 16) for f in fields]


def rows(items, per_line=8):
    for i in range(0, len(items), per_line):
        yield "    " + " ".join(f"{item}," for item in items[i : i + per_line])


def table(name, kind, items):
    return [f"constexpr {kind} {name}[] = {{", *rows(items), "};", ""]


def main(path):
    letters = ranges(lambda cp: unicodedata.category(chr(cp))[0] == "L")
    numbers = ranges(lambda cp: unicodedata.category(chr(cp))[0] == "N")

    classes = []  # [first, last, ccc]
    for cp in range(LIMIT):
        ccc = unicodedata.combining(chr(cp))
        if ccc:
            if classes and classes[-1][1] == cp - 1 and classes[-1][2] == ccc:
                classes[-1][1] = cp
            else:
                classes.append([cp, cp, ccc])

    pool, decompositions, compositions = [], [], []
    for cp in range(LIMIT):
        if cp in HANGUL or not canonical(cp):
            continue
        full = [ord(c) for c in unicodedata.normalize("NFD", chr(cp))]
        decompositions.append((cp, len(pool), len(full)))
        pool += full
        pair = canonical(cp)
        # What NFC of the pair does not give back is a composition exclusion.
        if len(pair) == 2 and unicodedata.normalize("NFC", chr(pair[0]) + chr(pair[1])) == chr(cp):
            compositions.append((pair[0], pair[1], cp))
    compositions.sort()

    lines = [
        f"// Made by tools/make_unicode_tables.py from Unicode {unicodedata.unidata_version}. Do not edit.",
        "// clang-format off",
        f'constexpr const char* kUnicodeVersion = "{unicodedata.unidata_version}";',
        "",
    ]
    lines += table("kLetters", "Range", [f"{{0x{a:X}, 0x{b:X}}}" for a, b in letters])
    lines += table("kNumbers", "Range", [f"{{0x{a:X}, 0x{b:X}}}" for a, b in numbers])
    lines += table(
        "kCombining", "ClassRange", [f"{{0x{a:X}, 0x{b:X}, {c}}}" for a, b, c in classes]
    )
    lines += table("kDecomposed", "char32_t", [f"0x{c:X}" for c in pool])
    lines += table(
        "kDecompositions", "Decomposition", [f"{{0x{c:X}, {o}, {n}}}" for c, o, n in decompositions]
    )
    lines += table(
        "kCompositions",
        "Composition",
        [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for a, b, c in compositions],
    )
    lines.append("// clang-format on")
    with open(path, "w", encoding="ascii", newline="\n") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
