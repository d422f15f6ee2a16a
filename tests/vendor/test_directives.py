"""Which words a prompt or a model name may hold, and what they mean."""

import pytest

from tests.vendor.directives import Script, ScriptError, read_script


@pytest.mark.parametrize(
    ("prompt", "model", "script"),
    [
        ("Say hello", "demo-large", Script()),
        ("[[demography cut=3]] [[x]]", "scripted", Script()),
        (
            '[[demo ms=5 text="one \\n [two]" cut=3]] hi',
            "m",
            Script(ms=5, text="one \n [two]", cut=3),
        ),
        ("[[demo ms=5 cr]] then [[demo ms=7]]", "m", Script(ms=7, cr=True)),
        ("hello", "script.ms=5.cut=3.gzip", Script(ms=5, cut=3, gzip=True)),
        ("[[demo ms=1]]", "script.ms=5.cut=3", Script(ms=1, cut=3)),
        ("[[demo tokens=10,2,3,5,1]]", "m", Script(tokens=(10, 2, 3, 5, 1))),
    ],
)
def test_scripts(prompt, model, script):
    assert read_script(prompt, model) == script


@pytest.mark.parametrize(
    ("prompt", "model", "named"),
    [
        ("[[demo explode]]", "m", "explode"),
        ("[[demo ms=5 explode=1]]", "m", "explode"),
        ("[[demo !]]", "m", "!"),
        ("", "script.explode", "explode"),
        *((f"[[demo {word}]]", "m", "ms") for word in ("ms", "ms=fast", "ms=-1")),
        ("[[demo status=200]]", "m", "status"),
        ("[[demo gzip=1]]", "m", "gzip"),
        ("[[demo usage=much]]", "m", "usage"),
        ('[[demo text="\\x"]]', "m", "text"),
        *(
            (f"[[demo tokens={value}]]", "m", "tokens")
            for value in ("1,2,3", "1,2,3,4,5,6", "10,8,3,5,0", "10,0,0,5,6", "a,b,c,d,e")
        ),
    ],
)
def test_a_wrong_word_is_named(prompt, model, named):
    with pytest.raises(ScriptError, match=f"'{named}'"):
        read_script(prompt, model)
