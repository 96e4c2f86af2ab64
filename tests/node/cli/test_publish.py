"""chain-publish against a real S3 server in another process, and against a network that breaks off."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.config import Config

from config.errors import ConfigurationError
from node.object_store import object_key
from tests.node.cli.s3_front import Front, serve

if TYPE_CHECKING:
    from tests.node.cli.conftest import Ran, RunCli

EXAMPLE = Path(__file__).parents[3] / "examples" / "silu_fast"
SECRET = "a-secret-that-nobody-may-see"
BUCKET = "bundles"


@dataclass(frozen=True)
class Store:
    """The server: its URL and a client that may do everything."""

    url: str
    client: Any

    def keys(self, bucket: str = BUCKET) -> list[str]:
        """Every key of a bucket."""
        return [item["Key"] for item in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a server that this module shares."""
    script = Path(__file__).with_name("s3_server.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(60)


def client_of(url: str, service: str = "s3") -> Any:
    session = botocore.session.Session()
    session.set_credentials("publisher", SECRET)
    return session.create_client(
        service, region_name="us-east-1", endpoint_url=url, config=Config(s3={"addressing_style": "path"})
    )


@pytest.fixture
def store(server: str) -> Iterator[Store]:
    """The server with nothing but one empty bucket that anybody may read."""
    _control(server, "reset", b"")
    client = client_of(server)
    client.create_bucket(Bucket=BUCKET)
    client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(_public(BUCKET)))
    yield Store(server, client)
    client.close()


def _public(bucket: str) -> dict[str, object]:
    rule = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    return {"Version": "2012-10-17", "Statement": [rule]}


def _control(server: str, what: str, body: bytes) -> None:
    request = urllib.request.Request(
        f"{server}/moto-api/{what}", data=body, method="POST", headers={"Content-Type": "text/plain"}
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


@pytest.fixture
def aws(tmp_path: Path) -> dict[str, str]:
    """Credentials in the standard variables, and nothing from anybody's home folder or from a cloud."""
    return {
        "AWS_ACCESS_KEY_ID": "publisher",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_CONFIG_FILE": str(tmp_path / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def publish(cli: RunCli, url: str, env: dict[str, str], *more: str) -> Ran:
    flags = ["--bucket", BUCKET, "--endpoint-url", url, "--network", "devnet", "--json", *more]
    ran = cli("chain-publish", str(EXAMPLE), *flags, env=env, timeout=100)
    assert SECRET not in ran.out + ran.err
    return ran


def refusal(ran: Ran, code: int) -> dict[str, Any]:
    assert ran.code == code, ran.out + ran.err
    error: dict[str, Any] = ran.document["error"]
    return error


def test_the_archive_is_uploaded_once_under_its_hash(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """Key, type, cache header and metadata are those of the protocol; a second time nothing is uploaded."""
    packed = cli("chain-package", str(EXAMPLE), "--json").document["data"]
    with serve(Front(store.url)) as front:
        first = publish(cli, front.url, aws)
        assert first.code == 0, first.out + first.err
        data = first.document["data"]
        key = f"cacheon/miner-bundles/sha256/{packed['content_hash']}.tar.gz"
        assert data == {
            "url": f"{front.url}/{BUCKET}/{key}",
            "bucket": BUCKET,
            "key": key,
            "content_hash": packed["content_hash"],
            "archive_sha256": packed["archive_sha256"],
            "archive_bytes": packed["archive_bytes"],
            "uploaded": True,
            "dry_run": False,
        }
        again = publish(cli, front.url, aws).document["data"]
        assert again == data | {"uploaded": False}
        assert sum(line.startswith("PUT") for line in front.seen) == 1
    head = store.client.head_object(Bucket=BUCKET, Key=key)
    assert (head["ContentType"], head["CacheControl"]) == ("application/gzip", "public, max-age=31536000, immutable")
    assert head["Metadata"] == {
        "cacheon-content-sha256": packed["content_hash"],
        "cacheon-archive-sha256": packed["archive_sha256"],
        "cacheon-schema": "bundle-archive-v1",
    }
    assert store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == Path(packed["archive"]).read_bytes()


def test_the_next_command_is_named_and_the_url_is_data(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """Without --json the URL is on standard output, and standard error says how to go on."""
    ran = cli(
        "chain-publish",
        str(EXAMPLE),
        "--bucket",
        BUCKET,
        "--endpoint-url",
        store.url,
        "--prefix",
        "mine",
        "--network",
        "devnet",
        env=aws,
    )
    assert ran.code == 0, ran.err
    url = f"{store.url}/{BUCKET}/{store.keys()[0]}"
    assert url in ran.out
    assert store.keys()[0].startswith("mine/sha256/")
    assert f"--url {url} --network devnet" in ran.err


def test_a_dry_run_uploads_nothing(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """The URL is printed, the bucket stays empty."""
    data = publish(cli, store.url, aws, "--dry-run").document["data"]
    assert (data["dry_run"], data["uploaded"]) == (True, False)
    assert store.keys() == []


def test_a_private_bucket_is_named(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """An upload that nobody else can read is no publication."""
    store.client.delete_bucket_policy(Bucket=BUCKET)
    error = refusal(publish(cli, store.url, aws), 2)
    assert error["code"] == "S3_NOT_PUBLIC"
    assert len(store.keys()) == 1


def test_a_missing_bucket_is_named(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """The bucket is named, and where it was looked for."""
    store.client.delete_bucket(Bucket=BUCKET)
    error = refusal(publish(cli, store.url, aws), 2)
    assert error["code"] == "S3_BUCKET_MISSING"
    assert BUCKET in error["message"]


@pytest.mark.parametrize(("secret", "code"), [("right", "S3_ACCESS_DENIED"), ("wrong", "S3_CREDENTIALS_REFUSED")])
def test_credentials_that_may_not_write(cli: RunCli, store: Store, aws: dict[str, str], secret: str, code: str) -> None:
    """A key without the permission, and one that is wrong, are told apart."""
    iam = client_of(store.url, "iam")
    iam.create_user(UserName="reader")
    made = iam.create_access_key(UserName="reader")["AccessKey"]
    iam.close()
    keys = {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}
    if secret == "wrong":
        keys["AWS_SECRET_ACCESS_KEY"] = SECRET
    _control(store.url, "reset-auth", b"0")
    try:
        error = refusal(publish(cli, store.url, aws | keys), 2)
    finally:
        _control(store.url, "reset-auth", b"inf")
    assert error["code"] == code
    assert store.keys() == []


def test_no_credentials_are_named(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """The sentence names the variables and files that are read."""
    without = aws | {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    error = refusal(publish(cli, store.url, without), 2)
    assert error["code"] == "S3_CREDENTIALS_MISSING"
    assert "AWS_ACCESS_KEY_ID" in error["hint"]
    error = refusal(publish(cli, store.url, aws | {"AWS_PROFILE": "nobody"}), 2)
    assert error["code"] == "S3_CREDENTIALS_MISSING"
    assert "nobody" in error["message"]


def test_a_profile_of_the_shared_file_is_used(cli: RunCli, store: Store, aws: dict[str, str], tmp_path: Path) -> None:
    """AWS_PROFILE and the shared credentials file work as they do everywhere."""
    (tmp_path / "aws-credentials").write_text(
        f"[kernels]\naws_access_key_id = publisher\naws_secret_access_key = {SECRET}\n", "utf-8"
    )
    env = aws | {"AWS_PROFILE": "kernels", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    ran = publish(cli, store.url, env)
    assert ran.code == 0, ran.out + ran.err


def test_something_else_at_the_key_is_never_replaced(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """Foreign bytes stay as they are, and the refusal says what they are."""
    key = publish(cli, store.url, aws, "--dry-run").document["data"]["key"]
    store.client.put_object(Bucket=BUCKET, Key=key, Body=b"something else")
    error = refusal(publish(cli, store.url, aws), 2)
    assert error["code"] == "S3_OBJECT_DIFFERS"
    assert store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"something else"


def test_another_packing_of_the_same_bundle_is_good(
    cli: RunCli, store: Store, aws: dict[str, str], tmp_path: Path
) -> None:
    """Identity is the content hash: an archive that another compressor made is neither replaced nor refused."""
    import tarfile

    key = publish(cli, store.url, aws, "--dry-run").document["data"]["key"]
    other = tmp_path / "other.tar.gz"
    with tarfile.open(other, "w:gz", compresslevel=1) as archive:
        archive.add(EXAMPLE, "bundle", filter=lambda item: None if "__pycache__" in item.name else item)
    store.client.put_object(Bucket=BUCKET, Key=key, Body=other.read_bytes())
    ran = publish(cli, store.url, aws)
    assert ran.code == 0, ran.out
    assert ran.document["data"]["uploaded"] is False


@pytest.mark.parametrize("fault", ["break_uploads", "lose_answers"])
def test_an_upload_that_breaks_off_once_is_finished(cli: RunCli, store: Store, aws: dict[str, str], fault: str) -> None:
    """Whether the bytes or only the answer got lost: in the end the object is there, once and whole."""
    with serve(Front(store.url, **{fault: 1})) as front:
        ran = publish(cli, front.url, aws)
        assert ran.code == 0, ran.out + ran.err
        assert len(store.keys()) == 1


def test_an_upload_that_always_breaks_off_can_be_tried_again(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """Exit code 5, nothing half-written; the same command succeeds later."""
    with serve(Front(store.url, break_uploads=1000)) as front:
        error = refusal(publish(cli, front.url, aws), 5)
        assert error["code"] == "S3_UNREACHABLE"
        assert store.keys() == []
        front.break_uploads = 0
        assert publish(cli, front.url, aws).code == 0


def test_a_store_without_conditional_writes_works(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """Where the condition is not implemented, the read that found nothing has to do."""
    with serve(Front(store.url, knows_conditions=False)) as front:
        assert publish(cli, front.url, aws).code == 0
        assert "PUT conditional" in front.seen


@pytest.mark.parametrize(("hours", "word"), [(2, "behind"), (-2, "ahead of")])
def test_a_wrong_clock_is_named(cli: RunCli, store: Store, aws: dict[str, str], hours: int, word: str) -> None:
    """Exit code 6, and the sentence says in which direction this machine's clock is off."""
    with serve(Front(store.url, clock_ahead=timedelta(hours=hours))) as front:
        error = refusal(publish(cli, front.url, aws), 6)
        assert error["code"] == "S3_CLOCK_SKEWED"
        assert word in error["message"]


def test_a_store_that_is_away_is_a_network_error(cli: RunCli, aws: dict[str, str]) -> None:
    """Exit code 5: the same command may succeed later."""
    error = refusal(publish(cli, "http://127.0.0.1:9", aws), 5)
    assert error["code"] == "S3_UNREACHABLE"


def test_the_public_address_is_what_counts(cli: RunCli, store: Store, aws: dict[str, str]) -> None:
    """The URL is built from --public-url and fetched from there; other bytes there are refused."""
    store.client.create_bucket(Bucket="elsewhere")
    store.client.put_bucket_policy(Bucket="elsewhere", Policy=json.dumps(_public("elsewhere")))
    data = publish(cli, store.url, aws, "--dry-run", "--public-url", f"{store.url}/elsewhere/").document["data"]
    assert data["url"] == f"{store.url}/elsewhere/{data['key']}"
    store.client.put_object(Bucket="elsewhere", Key=data["key"], Body=b"stale")
    error = refusal(publish(cli, store.url, aws, "--public-url", f"{store.url}/elsewhere"), 2)
    assert error["code"] == "S3_PUBLIC_DIFFERS"


def test_a_url_that_nobody_may_commit_is_refused_before_the_upload(
    cli: RunCli, store: Store, aws: dict[str, str]
) -> None:
    """Plain http is for the devnet profile only."""
    ran = cli(
        "chain-publish",
        str(EXAMPLE),
        "--bucket",
        BUCKET,
        "--endpoint-url",
        store.url,
        "--network",
        "test",
        "--json",
        env=aws,
    )
    assert ran.code in (2, 3)
    assert ran.document["error"]["code"] in ("URL_REFUSED", "PAYLOAD_INVALID")
    assert store.keys() == []


@pytest.mark.parametrize("prefix", ["a b", "../x", "a/./b", "a//b", "ä"])
def test_a_prefix_that_needs_quoting_is_refused(prefix: str) -> None:
    """Keys stay plain in URLs."""
    with pytest.raises(ConfigurationError) as caught:
        object_key(prefix, "0" * 64)
    assert caught.value.code == "S3_PLACE_INVALID"


@pytest.mark.parametrize(("bucket", "url"), [("Not A Bucket", "http://127.0.0.1:9"), ("bundles", "no url")])
def test_a_place_that_cannot_be_is_refused(cli: RunCli, aws: dict[str, str], bucket: str, url: str) -> None:
    """Exit code 2 and one sentence, not a library's traceback."""
    ran = cli(
        "chain-publish",
        str(EXAMPLE),
        "--bucket",
        bucket,
        "--endpoint-url",
        url,
        "--network",
        "devnet",
        "--json",
        env=aws,
    )
    assert ran.code == 2
    assert ran.document["error"]["code"] == "S3_PLACE_INVALID"
