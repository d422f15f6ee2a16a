import pytest

from tests.vendor.directives import Script, ScriptError, read_script, without_directives


def test_no_words_is_the_default_script():
    assert read_script("Say hello", "demo-large") == Script()


def test_words_of_the_prompt():
    script = read_script('[[demo ms=5 text="one \\n [two]" cut=3 comments]] hello', "demo-large")
    assert (script.ms, script.text, script.cut, script.comments) == (5, "one \n [two]", 3, True)


def test_several_directives_add_up_and_the_last_wins():
    script = read_script("[[demo ms=5 cr]] then [[demo ms=7]]", "demo-large")
    assert (script.ms, script.cr) == (7, True)


def test_words_of_the_model_name():
    script = read_script("hello", "script.ms=5.cut=3.gzip")
    assert (script.ms, script.cut, script.gzip) == (5, 3, True)


def test_the_prompt_wins_over_the_model_name():
    assert read_script("[[demo ms=1]]", "script.ms=5.cut=3").ms == 1


def test_other_double_brackets_are_no_script():
    assert read_script("[[demography cut=3]] [[x]]", "scripted") == Script()


@pytest.mark.parametrize(
    ("prompt", "model", "named"),
    [
        ("[[demo explode]]", "m", "explode"),
        ("[[demo ms=5 explode=1]]", "m", "explode"),
        ("[[demo !]]", "m", "!"),
        ("", "script.explode", "explode"),
        ("[[demo ms]]", "m", "ms"),
        ("[[demo ms=fast]]", "m", "ms"),
        ("[[demo ms=-1]]", "m", "ms"),
        ("[[demo status=200]]", "m", "status"),
        ("[[demo gzip=1]]", "m", "gzip"),
        ("[[demo usage=much]]", "m", "usage"),
        ('[[demo text="\\x"]]', "m", "text"),
    ],
)
def test_a_wrong_word_is_named(prompt, model, named):
    with pytest.raises(ScriptError, match=f"'{named}'"):
        read_script(prompt, model)


def test_directives_are_no_part_of_what_was_asked():
    assert without_directives(" [[demo ms=1]] Hello [[demo cr]]") == "Hello"


@pytest.mark.parametrize("value", ["1,2,3", "1,2,3,4,5,6", "10,8,3,5,0", "10,0,0,5,6", "a,b,c,d,e"])
def test_token_counts_that_do_not_fit(value):
    with pytest.raises(ScriptError, match="tokens"):
        read_script(f"[[demo tokens={value}]]", "tea")
    assert read_script("[[demo tokens=10,2,3,5,1]]", "tea").tokens == (10, 2, 3, 5, 1)
