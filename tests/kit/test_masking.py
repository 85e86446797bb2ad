"""Secrets are masked before a command line or an environment is stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.masking import (
    MASK,
    masked_arguments,
    masked_command,
    masked_environment,
    masked_text,
)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DB_PASSWORD",
        "MY_CREDENTIALS", "SSH_PRIVATE_KEY", "GIT_AUTH", "SENTRY_DSN", "mypasswd",
    ],
)  # fmt: skip
def test_a_variable_whose_name_says_so_is_secret(name) -> None:
    assert masked_environment({name: "hunter2"}) == {name: MASK}


@pytest.mark.parametrize("name", ["RANK", "MASTER_ADDR", "PATH", "NCCL_DEBUG", "OMP_NUM_THREADS"])
def test_other_variables_are_kept(name) -> None:
    assert masked_environment({name: "value"}) == {name: "value"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("train.py", "--lr", "0.1"), ("train.py", "--lr", "0.1")),
        (("--api-key", "hunter2", "--lr", "1"), ("--api-key", MASK, "--lr", "1")),
        (("--token=hunter2",), (f"--token={MASK}",)),
        (("--password", "--lr", "1"), ("--password", "--lr", "1")),
        (("s3://u:hunter2@host/a",), (f"s3://u:{MASK}@host/a",)),
        (("hf_abcdefghijkl",), (MASK,)),
        (("wandb.api_key=hunter2",), (f"wandb.api_key={MASK}",)),
    ],
)
def test_arguments_of_secret_options_are_masked(given, kept) -> None:
    assert masked_arguments(given) == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 0.1"),
        ("python train.py --api-key hunter2 --lr 1", f"python train.py --api-key {MASK} --lr 1"),
        ("train --password two words --lr 1", f"train --password {MASK} --lr 1"),
        ("train --password=two words --lr 1", f"train --password={MASK} --lr 1"),
        ("train wandb.api_key=hunter2", f"train wandb.api_key={MASK}"),
        ("train --password --lr 1", "train --password --lr 1"),
        ("train s3://u:hunter2@host/a hf_abcdefghijkl", f"train s3://u:{MASK}@host/a {MASK}"),
        ("", ""),
    ],
)
def test_secrets_of_a_joined_command_line_are_masked(given, kept) -> None:
    assert masked_command(given) == kept


def test_tokens_in_logs_are_masked() -> None:
    text = "login with ghp_0123456789abcdef at https://me:pw@host/ step 3"

    assert masked_text(text) == f"login with {MASK} at https://me:{MASK}@host/ step 3"


@given(st.text(max_size=50), st.text(alphabet="abcXYZ019", min_size=6, max_size=30))
def test_no_secret_of_a_secret_variable_or_option_is_left(prefix, secret) -> None:
    name = f"{prefix}_TOKEN"

    assert masked_environment({name: secret})[name[:500]] == MASK
    assert secret not in "".join(masked_arguments(["--token", secret, f"--token={secret}"]))
    assert secret not in masked_command(f"x --token {secret} {secret} --a_token={secret} {secret}")


def test_the_result_is_bounded() -> None:
    environment = {f"V{number}": "x" * 10_000 for number in range(2000)}

    found = masked_environment(environment)

    assert len(found) == 500
    assert {len(value) for value in found.values()} == {500}
    assert len(masked_arguments(["y" * 10_000] * 2000)) == 500
