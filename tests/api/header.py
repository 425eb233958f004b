"""The structs of the public headers as ctypes classes, read from the headers themselves."""

import ctypes as c
import re

from project import ROOT

SCALARS = {
    "bool": c.c_bool,
    "char": c.c_char,
    "double": c.c_double,
    "float": c.c_float,
    "int": c.c_int,
    "int32_t": c.c_int32,
    "int64_t": c.c_int64,
    "size_t": c.c_size_t,
    "uint32_t": c.c_uint32,
    "uint64_t": c.c_uint64,
}


def _enum_values(text):
    values = {}
    for body in re.findall(r"typedef enum \w+ \{([^}]*)\}", text):
        following = 0
        for item in filter(None, (part.strip() for part in body.split(","))):
            name, _, value = (part.strip() for part in item.partition("="))
            if not name.isidentifier():
                break  # made by a macro
            following = int(value, 0) if value else following
            values[name], following = following, following + 1
    return values


def _type(base, stars, count, known):
    if stars:
        pointed = known.get(base)
        if base == "char":
            kind = c.c_char_p if stars == 1 else c.POINTER(c.c_char_p)
        else:
            kind = c.POINTER(pointed) if pointed and stars == 1 else c.c_void_p
    else:
        kind = known[base]
    return kind * count if count else kind


def _fields(body, known, values):
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        if "(*" in declaration:
            yield re.search(r"\(\*(\w+)\)", declaration)[1], c.c_void_p
            continue
        base, rest = re.sub(r"\bconst\b", " ", declaration).split(None, 1)
        for item in rest.split(","):
            stars, name, count = re.fullmatch(r"([*\s]*)(\w+)(?:\[(\w+)\])?", item.strip()).groups()
            if count:
                count = values[count] if count in values else int(count)
            yield name, _type(base, stars.count("*"), count, known)


def read_structs(*names):
    """{name: class} for every struct of these headers of include/reprise, in the order given.
    Enums are ints, function types and opaque structs pointers."""
    text = "".join((ROOT / "include" / "reprise" / name).read_text() for name in names)
    text = re.sub(r"/\*.*?\*/|^#.*?(?<!\\)$", " ", text, flags=re.S | re.M)
    values, known = _enum_values(text), dict(SCALARS)
    known.update(dict.fromkeys(re.findall(r"typedef enum (\w+)", text), c.c_int))
    known.update(dict.fromkeys(re.findall(r"\(\*(\w+)\)\(", text), c.c_void_p))
    found = {}
    for name, body in re.findall(r"typedef struct (\w+) \{([^}]*)\} \1;", text):
        fields = list(_fields(body, known, values))
        known[name] = found[name] = type(name, (c.Structure,), {"_fields_": fields})
    return found
