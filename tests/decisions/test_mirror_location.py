"""Where the copies of a checkpoint directory are."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.mirror_location import mirror_location

UIDS = st.from_regex(r"[a-z0-9]{12}", fullmatch=True)
NAMES = st.text(min_size=1, max_size=300).filter(lambda name: "/" not in name and name != ".")
FOLDERS = st.lists(NAMES, min_size=0, max_size=4).map(lambda parts: "/" + "/".join(parts))
BASES = st.sampled_from(("/mirror", "/mirror/", "s3://bucket", "s3://bucket/a/"))


@given(BASES, st.tuples(UIDS, FOLDERS), st.tuples(UIDS, FOLDERS))
def test_no_directory_shares_the_location_of_another(base, one, other) -> None:
    assert (mirror_location(base, *one) == mirror_location(base, *other)) == (one == other)


@given(BASES, UIDS, FOLDERS)
def test_a_location_is_a_plain_directory_below_that_of_the_cluster(base, uid, folder) -> None:
    found = mirror_location(base, uid, folder)

    rest = found.removeprefix(f"{base.rstrip('/')}/{uid}/")
    assert rest != found
    assert rest.isascii()
    assert not set(rest) & set("/?#%\\ \n")
    assert not rest.startswith(".")
    assert len(rest) <= 100


@given(st.binary(max_size=20).filter(lambda name: b"/" not in name))
def test_names_that_are_no_text_have_a_location(name) -> None:
    folder = "/" + name.decode("utf-8", "surrogateescape")

    assert mirror_location("/mirror", "0123456789ab", folder).isascii()
