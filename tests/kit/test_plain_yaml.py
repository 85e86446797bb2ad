"""What the reader of plain YAML accepts has the value that PyYAML gives it."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.kit.plain_yaml import NotPlain, parse_plain_yaml

KUBECONFIG = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTg+/==
    server: https://10.0.0.1:6443
  name: arn:aws:eks:us-west-2:1234:cluster/gpu
contexts:
  - context:
      cluster: arn:aws:eks:us-west-2:1234:cluster/gpu
      user: admin
    name: gpu
current-context: gpu
kind: Config
preferences: {}
users:
- name: admin
  user:
    token: 54LpcuRnjrMxhIpX_KC0nlzWs-Ug
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      args:
      - --region
      - eks
      command: aws
      env: null
      provideClusterInfo: false
"""
PIECES = st.sampled_from(
    ["a", "b:", "- ", "-", " ", "  ", "    ", "\n", "\n", "a: b", "- a", "no", "null", "{}", "[]",
     "~", "1", "x1", "1x", ":", "#", " #c", "'", '"', "|", ">", "&a", "*a", "!t", "---", "...",
     "<<:", "=", "on:", "true", "True", "?", "%", "@", "\t", ",", "{", "é", ".inf", "--b", "-1",
     "a:b", "b: ", "0x1", "0o1", "1_", "1k", "1.0e+2",
     "2026-01-01", "\r", "\u2028", "/a", "Null", "e1", "-e", "k: v", "- k: v"]
)  # fmt: skip
DOCUMENTS = st.recursive(
    st.sampled_from(
        ["a", "v1", "https://h:1/p", "no", "", "1", "1k", "0b1", "a b", "x:", None, True, 3]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b-c", "name", "on", "1", ""]), inner, max_size=3)
    ),
    max_leaves=12,
)


def accepted(text: str) -> object:
    """Value of a text; ``NotPlain`` where the reader leaves it to PyYAML."""
    try:
        return parse_plain_yaml(text)
    except NotPlain:
        return NotPlain


def test_a_kubeconfig_as_kubectl_writes_it_is_read_without_pyyaml() -> None:
    assert parse_plain_yaml(KUBECONFIG) == yaml.safe_load(KUBECONFIG)


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "0x1",
        "1.5",
        "0o7",
        "1e5",
        "1_0",
        "2026-01-01T10:00:00Z",
        "a #b",
        "'a'",
        "a: b",
        "~",
        "True",
        "|",
    ],
)
def test_values_that_are_no_plain_texts_are_left_to_pyyaml(value: str) -> None:
    assert accepted(f"a: {value}\n") is NotPlain


@pytest.mark.parametrize("key", ["on", "Null", "yes", "1", "'a'", "a b"])
def test_keys_that_are_no_plain_texts_are_left_to_pyyaml(key: str) -> None:
    assert accepted(f"{key}: a\n") is NotPlain


@given(DOCUMENTS)
def test_documents_that_pyyaml_writes_have_their_value_or_are_left_to_it(document: object) -> None:
    for indented in (False, True):
        text = yaml.dump(document, Dumper=_Indented if indented else yaml.SafeDumper)
        assert accepted(text) in (document, NotPlain)


@given(st.lists(PIECES, max_size=14).map("".join))
@example("a:\n- b\n c: d")
@example("- a: b\n  c:\n  - d\n- e")
@example("a: b\n  c")
@example("a:\nb: c")
@example("a:\n  b:\nc: d")
@example("a: b:")
@example("- b:c:")
@example("a:\n  - b\n  c: d")
def test_any_text_has_the_value_of_pyyaml_or_is_left_to_it(text: str) -> None:
    value = accepted(text)
    if value is not NotPlain:
        assert value == yaml.safe_load(text)


class _Indented(yaml.SafeDumper):
    """Writes lists below a key indented, as many editors do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)
